/** How the power budgets stand: areas as a tree, and the hosts that get less than they want. */

import { Failure, get } from "./api.js";
import { h, hostLink, nothing, section, table } from "./dom.js";
import { ABSENT, byName, plural, span, watts } from "./format.js";
import { dataView, meter } from "./view.js";

const ROWS = 100;

export const powerView = dataView({
  title: () => "Power",
  concerns: (change) => change.fleet,
  every: 10, // leases live for a minute
  fetch: () =>
    get("/power").catch((error) => {
      if (error instanceof Failure && error.status === 404) return error;
      throw error;
    }),
  render: (use) => (use instanceof Failure ? nothing(use.message) : tree(use)),
});

function tree(use) {
  return [
    use.settles_s > 0 &&
      h(
        "p",
        { class: "warn" },
        `No raises for ${span(use.settles_s)}: what an earlier controller granted has not lapsed.`,
      ),
    section("Areas", {}, areas(use.areas)),
    hosts(use.hosts),
  ];
}

function areas(found) {
  const rows = below(found).map(({ area, depth }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", style: { "padding-left": `${8 + 18 * depth}px` } }, area.name),
      h("td", { class: "with-meter" }, meter(area.reserved_watts, area.budget_watts, { tone: toneOf(area) })),
      h("td", { class: "num" }, watts(area.reserved_watts)),
      h("td", { class: "num" }, watts(area.budget_watts)),
      h("td", { class: "num" }, watts(area.demand_watts)),
      h("td", { class: "num" }, watts(area.stranded_watts)),
    ),
  );
  const heads = [
    "Area",
    "(Reserved of the budget)",
    ["Reserved", "num"],
    ["Budget", "num"],
    ["Demand", "num"],
    ["Stranded", "num"],
  ];
  return table("Areas", heads, rows);
}

const toneOf = (area) =>
  area.demand_watts > area.budget_watts ? "full" : area.reserved_watts > 0.9 * area.budget_watts ? "near" : "";

/** Areas below their parents, each with its depth; one whose parent is not listed stands at the top. */
function below(found) {
  const names = new Set(found.map((area) => area.name));
  const inside = (parent, depth) =>
    found
      .filter((area) => (names.has(area.parent) ? area.parent : null) === parent)
      .sort((a, b) => byName(a.name, b.name))
      .flatMap((area) => [{ area, depth }, ...inside(area.name, depth + 1)]);
  return inside(null, 0);
}

/** Those first that get least of what they want. */
function hosts(found) {
  const short = (host) => host.demand_watts - host.reserved_watts;
  const worst = [...found].sort((a, b) => short(b) - short(a) || byName(a.name, b.name)).slice(0, ROWS);
  const rows = worst.map((host) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, hostLink(host.name)),
      h("td", {}, host.area),
      h("td", { class: "with-meter" }, meter(host.reserved_watts, host.max_watts)),
      h("td", { class: "num" }, watts(host.reserved_watts)),
      h("td", { class: "num" }, watts(host.max_watts)),
      h("td", { class: "num" }, watts(host.demand_watts)),
      h("td", { class: "num" }, host.lease_watts === null ? "none: safe cap" : watts(host.lease_watts)),
      h("td", { class: "num" }, host.left_s === null ? ABSENT : span(host.left_s)),
      h("td", {}, host.uncapped),
    ),
  );
  const heads = [
    "Host",
    "Area",
    "(Reserved of the highest)",
    ["Reserved", "num"],
    ["Highest", "num"],
    ["Demand", "num"],
  ];
  return section(
    "Hosts",
    { note: found.length > ROWS ? `the ${ROWS} of ${plural(found.length, "host")} that lack most` : null },
    rows.length === 0
      ? nothing("No host is in the tree.")
      : table("Hosts", [...heads, ["Lease", "num"], ["Left", "num"], "Uncapped"], rows),
  );
}
