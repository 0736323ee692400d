/** The queue: every host that is kept from its users or ought to be, with its evidence and the buttons. */

import { hostButtons } from "./actions.js";
import { get } from "./api.js";
import { h, hostLink, nothing, prose } from "./dom.js";
import { holdCard, wayBack } from "./evidence.js";
import { needsLook } from "./fleet.js";
import { age, count } from "./format.js";
import { dataView } from "./view.js";
import { LOOK, badge } from "./words.js";

const PAGE = 50;
const VERBS = {
  quarantined: ["release", "burnin", "repair", "swap"],
  repairing: ["repaired", "swap", "release", "retire"],
};
const OTHERWISE = ["quarantine", "burnin", "repair", "release"];

export const queueView = dataView({
  title: () => "Quarantine queue",
  concerns: (change) =>
    change.first || change.fleet || change.rows.some((row) => [row.before, row.after].some((host) => host && needsLook(host))),
  fetch: ({ after }) => get("/hosts", { flag: LOOK, limit: PAGE, after }),
  render({ hosts, more }, ctx, params) {
    const total = ctx.fleet.position !== null ? ctx.fleet.troubled() : hosts.length;
    if (hosts.length === 0) return nothing("Nothing is held, withheld, suspect or under repair.");
    return [
      h("p", { class: "note", role: "status" }, `${count(hosts.length)} of ${count(total)} shown`),
      hosts.map((host) => entry(host, ctx)),
      h(
        "nav",
        { class: "pages", "aria-label": "Pages" },
        params.after && h("a", { href: "#/queue" }, "first page"),
        more && h("a", { href: `#/queue?${new URLSearchParams({ after: hosts.at(-1).name })}` }, "next page"),
      ),
    ];
  },
});

function entry(host, ctx) {
  const where = [host.pool, host.rack && `rack ${host.rack}`, host.sku].filter(Boolean).join(" · ");
  return h(
    "article",
    { class: "queue-entry" },
    h(
      "header",
      {},
      h("h2", {}, hostLink(host.name)),
      badge(host.state),
      h("span", { class: "note" }, where),
      h("span", { class: "note since" }, "since ", age(host.since_s)),
    ),
    h("p", { class: "why" }, prose(host.why)),
    host.silent_since_s && h("p", { class: "warn" }, "its agent has been silent since ", age(host.silent_since_s)),
    h(
      "div",
      { class: "entry-body" },
      h("div", { class: "cards" }, cards(host)),
      h("div", {}, h("h3", {}, "What is missing"), wayBack(host) ?? nothing("No hold is on it."), hostButtons(ctx, host.name, VERBS[host.state] ?? OTHERWISE)),
    ),
  );
}

function cards(host) {
  const found = [
    ...host.holds.map((hold) => holdCard(hold)),
    ...host.charges.map((charge) => holdCard(charge.hold, new Map(), charge)),
  ];
  return found.length > 0 ? found : nothing("No hold and no charge is on it.");
}
