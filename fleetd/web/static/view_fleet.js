/** The fleet by rack: counts that are filters, the map or the same as a table, the queue and the news. */

import { Failure, get } from "./api.js";
import { h, hostHref, hostLink, nothing, prose, swap, table } from "./dom.js";
import { isQueued } from "./fleet.js";
import { age, count, plural } from "./format.js";
import { HeatMap } from "./heatmap.js";
import { heading } from "./view.js";
import { QUEUED, STATE_NAMES, badge, eventWords, flagWords, sign, stateOf } from "./words.js";

const ROWS = 200;
const LOOKED = 6;
const RECENT = 10;
const ASIDE_AGAIN_MS = 2000;

/** Open the view. Its filters live in the address, so that a link shows what its sender saw. */
export function fleetView(place, ctx, params) {
  return new FleetView(place, ctx, params);
}

class FleetView {
  #ctx;
  #filter;
  #map;
  #bar = h("div", { class: "bar", "aria-hidden": "true" });
  #legend = h("div", { class: "legend", role: "group", "aria-label": "Hosts by state; press to filter" });
  #said = h("p", { class: "note", role: "status" });
  #picture = h("div", {});
  #aside = h("aside", { class: "aside", "aria-label": "Queue and news" });
  #pools;
  #timer = null;
  #frame = 0;

  constructor(place, ctx, params) {
    this.#ctx = ctx;
    this.#filter = { state: params.state ?? "", pool: params.pool ?? "", q: params.q ?? "", table: params.table ?? "" };
    this.#map = new HeatMap((host) => ctx.go(hostHref(host.name)));
    this.#pools = h("select", { id: "pool", on: { change: (event) => this.#set({ pool: event.target.value }) } });
    place.replaceChildren(
      heading("Fleet", this.#tools()),
      this.#bar,
      this.#legend,
      h("div", { class: "fleet" }, h("div", { class: "fleet-main" }, this.#said, this.#picture), this.#aside),
    );
    this.#map.attach();
    if (ctx.fleet.position !== null) {
      this.#show();
      this.#later(0);
    } else {
      this.#said.textContent = "loading the fleet …";
    }
  }

  update(change) {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      if (!change.first) this.#map.pulse(change.names);
      this.#show();
    });
    this.#later(change.first ? 0 : ASIDE_AGAIN_MS);
  }

  refresh() {
    this.#later(0);
  }

  unmount() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.#map.detach();
  }

  // ── filters ────────────────────────────────────────────────────────────────────────────────────────────────────

  #tools() {
    const q = h("input", {
      id: "name",
      type: "search",
      "data-filter": true,
      placeholder: "part of a name",
      autocomplete: "off",
      spellcheck: "false",
      value: this.#filter.q,
      on: { input: () => this.#set({ q: q.value.trim() }) },
    });
    const toggle = h(
      "button",
      {
        type: "button",
        "aria-pressed": String(this.#filter.table !== ""),
        on: {
          click: () => {
            this.#set({ table: this.#filter.table ? "" : "1" });
            toggle.setAttribute("aria-pressed", String(this.#filter.table !== ""));
          },
        },
      },
      "Table",
    );
    return h(
      "div",
      { class: "tools", role: "search" },
      h("label", { for: "pool" }, "Pool"),
      this.#pools,
      h("label", { for: "name" }, "Host"),
      q,
      toggle,
    );
  }

  #set(change) {
    Object.assign(this.#filter, change);
    const given = Object.entries(this.#filter).filter(([, value]) => value !== "");
    history.replaceState(null, "", `#/fleet${given.length ? `?${new URLSearchParams(given)}` : ""}`);
    this.#show();
  }

  #admits = (host) => {
    const { state, q } = this.#filter;
    if (state === "queued" ? !isQueued(host) : state !== "" && host.state !== state) return false;
    return q === "" || host.name.toLowerCase().includes(q.toLowerCase());
  };

  // ── showing ────────────────────────────────────────────────────────────────────────────────────────────────────

  #show() {
    const { fleet } = this.#ctx;
    const { pool } = this.#filter;
    const racks = pool === "" ? fleet.racks : fleet.racks.filter((rack) => rack.pool === pool);
    this.#showPools(fleet.pools);
    this.#showLegend();
    const hosts = racks.flatMap((rack) => rack.hosts);
    const shown = hosts.filter(this.#admits);
    const all = `${plural(hosts.length, "host")} in ${plural(racks.length, "rack")}`;
    const said = shown.length === hosts.length ? all : `${count(shown.length)} of ${all} match`;
    if (this.#said.textContent !== said) this.#said.textContent = said;
    if (fleet.hosts.size === 0) {
      swap(this.#picture, nothing("No host has reported yet: an agent that connects appears here by itself."));
    } else if (this.#filter.table) {
      swap(this.#picture, hostTable(shown));
    } else {
      if (this.#picture.firstChild !== this.#map.element) this.#picture.replaceChildren(this.#map.element);
      this.#map.show(racks, this.#admits);
    }
  }

  #showPools(pools) {
    const wanted = ["", ...pools];
    const has = [...this.#pools.options].map((option) => option.value);
    if (wanted.join("\n") === has.join("\n")) return;
    this.#pools.replaceChildren(...wanted.map((pool) => h("option", { value: pool }, pool === "" ? "all" : pool)));
    this.#pools.value = wanted.includes(this.#filter.pool) ? this.#filter.pool : "";
  }

  #showLegend() {
    const counts = this.#ctx.fleet.counts();
    const names = [...STATE_NAMES, ...Object.keys(counts).filter((name) => !STATE_NAMES.includes(name))];
    const chip = (key, number, ...label) =>
      h(
        "button",
        {
          type: "button",
          class: number === 0 ? "chip empty" : "chip",
          "data-key": `state-${key}`,
          "aria-pressed": String(this.#filter.state === key),
          title: stateOf(key).says || null,
          on: { click: () => this.#set({ state: this.#filter.state === key ? "" : key }) },
        },
        ...label,
        h("span", { class: "number" }, count(number)),
      );
    swap(
      this.#legend,
      names.map((name) => chip(name, counts[name] ?? 0, sign(name), stateOf(name).label)),
      chip("queued", this.#ctx.fleet.queued(), "in the queue"),
      h(
        "span",
        { class: "signs" },
        h("span", {}, h("i", { class: "sign-hollow" }), "agent away"),
        h("span", {}, h("i", { class: "sign-corner" }), "withheld"),
      ),
    );
    this.#bar.replaceChildren(
      ...names
        .filter((name) => counts[name])
        .map((name) => h("span", { class: `state-${name}`, style: { "flex-grow": counts[name] } })),
    );
  }

  // ── the queue and the news: asked for after the map is there ────────────────────────────────────────────────────

  #later(milliseconds) {
    if (this.#timer !== null && milliseconds > 0) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#load();
    }, milliseconds);
  }

  async #load() {
    try {
      const news = get("/facts", { people: false, newest: true, limit: RECENT });
      const [queue, recent] = await Promise.all([get("/hosts", { flag: QUEUED, limit: LOOKED }), news]);
      swap(this.#aside, lookList(queue, this.#ctx.fleet.queued()), recentList(recent.facts));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.status !== 401) swap(this.#aside, h("p", { class: "refused" }, error.message));
    }
  }
}

function hostTable(hosts) {
  const rows = hosts
    .slice(0, ROWS)
    .map((host) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, hostLink(host.name)),
        h("td", {}, badge(host.state)),
        h("td", {}, flagWords(host.flags).join(", ")),
        h("td", {}, host.rack ?? "–"),
        h("td", {}, host.pool ?? "–"),
        h("td", { class: "num" }, count(host.gpus)),
      ),
    );
  const more = hosts.length - rows.length;
  return [
    table("Hosts", ["Host", "State", "(Besides)", "Rack", "Pool", ["GPUs", "num"]], rows),
    more > 0 && h("p", { class: "note" }, `${plural(more, "more host")}: filter by name, state or pool to see them.`),
  ];
}

function lookList(queue, queued) {
  const items = queue.hosts.map((host) =>
    h("li", {}, sign(host.state), h("div", {}, hostLink(host.name), h("p", {}, prose(host.why))), age(host.since_s)),
  );
  return h(
    "section",
    {},
    h("h2", {}, "In the queue"),
    items.length === 0 ? nothing("Nothing is held or withheld.") : h("ul", { class: "feed" }, items),
    queued > items.length && h("p", {}, h("a", { href: "#/queue" }, `all ${count(queued)}`)),
  );
}

function recentList(facts) {
  const items = facts.map((fact) =>
    h(
      "li",
      { class: fact.refused ? "refused-fact" : null },
      h(
        "div",
        {},
        fact.host ? hostLink(fact.host) : "fleet",
        " ",
        h("em", {}, eventWords(fact.event)),
        h("p", {}, prose(fact.why)),
      ),
      age(fact.at_s),
    ),
  );
  return h(
    "section",
    {},
    h("h2", {}, "Just now"),
    items.length === 0 ? nothing("Nothing has happened yet.") : h("ul", { class: "feed" }, items),
  );
}
