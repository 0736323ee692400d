/**
 * What the page knows of every host: the rows of the fleet map, kept up to date by changes. The only state that views
 * share; whoever wants to know listens for `change`, whose detail is {names, rows: [{before, after}], fleet}.
 */

import { get } from "./api.js";
import { byName } from "./format.js";
import { FLAG } from "./words.js";

export class Fleet extends EventTarget {
  /** name → {name, state, flags, gpus, rack, pool} */
  hosts = new Map();
  /** What the rows are of, opaque; null: nothing was loaded yet. */
  position = null;
  #states = [];
  #racks = null;

  /** Load the whole map, or learn that it has not changed. */
  async load() {
    const map = await get("/fleet/map");
    if (map.position === this.position) return;
    const first = this.position === null;
    this.#states = map.states;
    const before = this.hosts;
    this.hosts = new Map();
    for (const rack of map.racks) {
      for (const row of rack.hosts) this.#put(row, rack.name, rack.pool);
    }
    this.#settle(map.position, changed(before, this.hosts), first);
  }

  /** Take in a change; its rows are hosts as they are now. */
  apply({ position, rows, fleet }) {
    const pairs = rows.map(([name, state, flags, gpus, pool, rack]) => {
      const before = this.hosts.get(name) ?? null;
      return { before, after: this.#put([name, state, flags, gpus], rack, pool) };
    });
    this.#settle(position, pairs, false, fleet);
  }

  /** Forget everything: the next reader may not be allowed to see it. */
  clear() {
    this.hosts = new Map();
    this.position = null;
    this.#racks = null;
  }

  /** Racks with their hosts, in order: [{name, pool, hosts}]. */
  get racks() {
    this.#racks ??= grouped(this.hosts.values());
    return this.#racks;
  }

  /** Names of the pools, in order; hosts without one belong to none. */
  get pools() {
    return [...new Set(this.racks.map((rack) => rack.pool).filter((pool) => pool !== null))];
  }

  /** state → number of hosts. */
  counts() {
    const found = {};
    for (const host of this.hosts.values()) found[host.state] = (found[host.state] ?? 0) + 1;
    return found;
  }

  /** How many hosts stand in the queue. */
  queued() {
    let found = 0;
    for (const host of this.hosts.values()) found += isQueued(host) ? 1 : 0;
    return found;
  }

  #put([name, state, flags, gpus], rack, pool) {
    const host = { name, state: this.#states[state] ?? "unknown", flags, gpus, rack, pool };
    this.hosts.set(name, host);
    return host;
  }

  #settle(position, rows, first, fleet = true) {
    this.position = position;
    if (rows.length > 0) this.#racks = null;
    const detail = { rows, names: new Set(rows.map(({ before, after }) => (after ?? before).name)), fleet, first };
    this.dispatchEvent(new CustomEvent("change", { detail }));
  }
}

/** Whether a host stands in the queue: a hold is on it, or one is withheld. */
export const isQueued = (host) => (host.flags & (FLAG.held | FLAG.withheld)) !== 0;

function changed(before, after) {
  const pairs = [];
  for (const [name, host] of after) {
    const old = before.get(name) ?? null;
    if (old === null || old.state !== host.state || old.flags !== host.flags || old.gpus !== host.gpus) {
      pairs.push({ before: old, after: host });
    }
  }
  for (const [name, host] of before) {
    if (!after.has(name)) pairs.push({ before: host, after: null });
  }
  return pairs;
}

function at(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

function grouped(hosts) {
  const racks = new Map();
  for (const host of hosts) {
    const ofPool = at(racks, host.pool, () => new Map());
    at(ofPool, host.rack, () => ({ name: host.rack, pool: host.pool, hosts: [] })).hosts.push(host);
  }
  const last = (text) => (text === null ? "\uffff" : text);
  const order = (a, b) => byName(last(a.pool), last(b.pool)) || byName(last(a.name), last(b.name));
  const found = [...racks.values()].flatMap((ofPool) => [...ofPool.values()]);
  for (const rack of found) rack.hosts.sort((a, b) => byName(a.name, b.name));
  return found.sort(order);
}
