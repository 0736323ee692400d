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

  /** Take a change in; returns false when it is not enough and the map must be loaded again. */
  apply(change) {
    const rows = change.hosts;
    if (this.position === null || !rows.every(Array.isArray)) return false;
    const pairs = [];
    for (const [name, state, flags, gpus, rack, pool] of rows) {
      const before = this.hosts.get(name) ?? null;
      this.#put([name, state, flags, gpus], rack ?? null, pool ?? null);
      pairs.push({ before, after: this.hosts.get(name) });
    }
    this.#settle(change.position, pairs, false, Boolean(change.fleet));
    return true;
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

  /** How many hosts somebody should look at. */
  troubled() {
    let found = 0;
    for (const host of this.hosts.values()) found += needsLook(host) ? 1 : 0;
    return found;
  }

  #put([name, state, flags, gpus], rack, pool) {
    const word = typeof state === "number" ? (this.#states[state] ?? "unknown") : state;
    this.hosts.set(name, { name, state: word, flags, gpus, rack, pool });
  }

  #settle(position, rows, first, fleet = true) {
    this.position = position;
    if (rows.length > 0) this.#racks = null;
    const detail = { rows, names: new Set(rows.map(({ before, after }) => (after ?? before).name)), fleet, first };
    this.dispatchEvent(new CustomEvent("change", { detail }));
  }
}

/** Whether somebody should look at a host: the controller says so. */
export const needsLook = (host) => (host.flags & FLAG.look) !== 0;

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

function grouped(hosts) {
  const racks = new Map();
  for (const host of hosts) {
    const key = JSON.stringify([host.pool, host.rack]);
    if (!racks.has(key)) racks.set(key, { name: host.rack, pool: host.pool, hosts: [] });
    racks.get(key).hosts.push(host);
  }
  const last = (text) => (text === null ? "\uffff" : text);
  const order = (a, b) => byName(last(a.pool), last(b.pool)) || byName(last(a.name), last(b.name));
  for (const rack of racks.values()) rack.hosts.sort((a, b) => byName(a.name, b.name));
  return [...racks.values()].sort(order);
}
