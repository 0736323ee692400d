/** What automation may do: the kill switch, what its budgets have left, and incidents that wait for a person. */

import { fleetButton } from "./actions.js";
import { get } from "./api.js";
import { h, hostLink, nothing, prose, section, table } from "./dom.js";
import { age, count, plural, span } from "./format.js";
import { dataView, meter } from "./view.js";

export const automationView = dataView({
  title: () => "Automation",
  concerns: () => true,
  async fetch() {
    const [fleet, policy] = await Promise.all([get("/fleet"), get("/policy")]);
    return { fleet, policy };
  },
  render: ({ fleet, policy }, ctx) => [
    killSwitch(fleet.stopped, ctx),
    tripped(fleet.tripped, ctx),
    budgets(policy),
    incidents(fleet.incidents, ctx),
  ],
});

function killSwitch(stopped, ctx) {
  return section(
    "Kill switch",
    { class: stopped ? "switch off" : "switch" },
    h(
      "div",
      { class: "switch-line" },
      stopped
        ? h(
            "p",
            {},
            h("b", {}, "Automation is stopped"),
            ` by ${stopped.who}, `,
            age(stopped.at_s),
            h("span", { class: "reason" }, stopped.reason),
          )
        : h("p", {}, h("b", {}, "Automation is running"), " within its policy and its budgets."),
      fleetButton(ctx, stopped ? "resume" : "stop"),
    ),
  );
}

function tripped(found, ctx) {
  if (found.length === 0) return null;
  return section(
    "Tripped budgets",
    { class: "alarm", note: "Automatic quarantines in these areas are withheld until a person re-arms." },
    h(
      "ul",
      { class: "lines" },
      found.map((trip) => h("li", {}, h("b", {}, areaWords(trip.key)), " ", prose(trip.why), " ", age(trip.at_s))),
    ),
    fleetButton(ctx, "rearm"),
  );
}

/** An area in words. */
export function areaWords({ area, name }) {
  return name ? `${String(area).replaceAll("_", " ")} ${name}` : String(area).replaceAll("_", " ");
}

function budgets(policy) {
  const rows = policy.budgets.map((budget) =>
    h(
      "tr",
      { class: budget.tripped ? "accused" : null },
      h("th", { scope: "row" }, areaWords(budget.key), budget.tripped && h("span", { class: "tag" }, "tripped")),
      h(
        "td",
        { class: "with-meter" },
        meter(budget.held, budget.held_max, { tone: toneOf(budget.held, budget.held_max) }),
      ),
      h("td", { class: "num" }, `${count(budget.held)} of ${count(budget.held_max)}`),
      h("td", { class: "num" }, count(budget.hosts)),
      h(
        "td",
        { class: "with-meter" },
        meter(budget.recent, budget.recent_max, { tone: toneOf(budget.recent, budget.recent_max) }),
      ),
      h(
        "td",
        { class: "num" },
        `${count(budget.recent)} of ${count(budget.recent_max)} in ${span(budget.window_seconds)}`,
      ),
    ),
  );
  const most = policy.burnins_max === null ? "any number may be" : `${count(policy.burnins_max)} may be`;
  return section(
    "Quarantine budgets",
    { note: "The fleet, then the areas of which something is spent, the fullest first." },
    table(
      "Quarantine budgets",
      [
        "Area",
        "(Held of what may be)",
        ["Held now", "num"],
        ["Hosts", "num"],
        "(Ordered of what may be)",
        ["Ordered", "num"],
      ],
      rows,
    ),
    h("p", { class: "note" }, `Burn-ins on hosts that served users: ${count(policy.burnins)} now, ${most}.`),
  );
}

const toneOf = (spent, most) => (spent >= most ? "full" : spent >= 0.75 * most ? "near" : "");

function incidents(found, ctx) {
  const cards = found.map((incident) =>
    h(
      "article",
      { class: "card incident" },
      h("h3", {}, incident.kind, h("code", {}, incident.key), age(incident.opened_at_s)),
      h("p", { class: "reason" }, prose(incident.why)),
      h(
        "p",
        { class: "hosts" },
        incident.hosts.map((name) => hostLink(name)),
        incident.hosts_total > incident.hosts.length &&
          h("span", { class: "note" }, `and ${plural(incident.hosts_total - incident.hosts.length, "more host")}`),
      ),
      fleetButton(ctx, "close", incident.id),
    ),
  );
  return section(
    "Incidents",
    { note: "Trouble of many hosts at once, for which no single host is to blame." },
    cards.length === 0 ? nothing("No incident is open.") : h("div", { class: "cards" }, cards),
  );
}
