/** The queue: every host that is held, or would be if nothing kept it back, with its evidence and the buttons. */

import { hostButtons } from "./actions.js";
import { get, part } from "./api.js";
import { h, hostLink, nothing, prose } from "./dom.js";
import { holdCards, placeLine, wayBack } from "./evidence.js";
import { isQueued } from "./fleet.js";
import { age, count } from "./format.js";
import { dataView } from "./view.js";
import { QUEUED, badge } from "./words.js";

const PAGE = 20;
const VERBS = {
  quarantined: ["release", "burnin", "repair", "swap"],
  repairing: ["repaired", "swap", "release", "retire"],
};
const OTHERWISE = ["quarantine", "burnin", "repair", "release"];

export const queueView = dataView({
  title: () => "Quarantine queue",
  concerns: (change) =>
    change.first || change.rows.some((row) => [row.before, row.after].some((host) => host && isQueued(host))),
  async fetch({ after }) {
    const { hosts, more } = await get("/hosts", { flag: QUEUED, limit: PAGE, after });
    // Each with its findings: an id alone is no evidence to decide by.
    return { more, entries: await Promise.all(hosts.map(({ name }) => get(`/hosts/${part(name)}`))) };
  },
  render({ entries, more }, ctx, params) {
    if (entries.length === 0) {
      return nothing(
        params.after ? "No further host is held or withheld." : "No host is held, and no hold is withheld.",
      );
    }
    const total = Math.max(ctx.fleet.queued(), entries.length);
    return [
      h("p", { class: "note" }, `${count(entries.length)} of ${count(total)}, by name`),
      entries.map((detail) => entry(detail, ctx)),
      h(
        "nav",
        { class: "pages", "aria-label": "Pages" },
        params.after && h("a", { href: "#/queue" }, "first page"),
        more && h("a", { href: `#/queue?${new URLSearchParams({ after: entries.at(-1).host.name })}` }, "next page"),
      ),
    ];
  },
});

function entry({ host, version, findings, connected }, ctx) {
  return h(
    "article",
    { class: "queue-entry", "aria-label": host.name },
    h(
      "header",
      {},
      h("h2", {}, hostLink(host.name)),
      badge(host.state),
      h("span", { class: "note" }, placeLine(host)),
      !connected && h("span", { class: "warn" }, "agent away"),
      h("span", { class: "note since" }, "since ", age(host.since_s)),
    ),
    h("p", { class: "why" }, prose(host.why)),
    h(
      "div",
      { class: "entry-body" },
      h("div", { class: "cards" }, holdCards(host, findings)),
      h(
        "div",
        {},
        h("h3", {}, "What is missing"),
        wayBack(host) ?? nothing("No hold is on it any more."),
        hostButtons(ctx, { name: host.name, version }, VERBS[host.state] ?? OTHERWISE),
      ),
    ),
  );
}
