/** The audit trail: who did what, why, and what it was before and after. Newest first, by pages. */

import { get } from "./api.js";
import { h, hostLink, nothing, prose, table } from "./dom.js";
import { age, stamp } from "./format.js";
import { dataView } from "./view.js";
import { EVENT_NAMES, eventWords } from "./words.js";

const PAGE = 100;
const FILTERS = ["people", "host", "who", "event", "before"];

export const auditView = dataView({
  title: () => "Audit trail",
  concerns: (change, params) => !params.before && (change.rows.length > 0 || change.fleet),
  fetch: (params) =>
    get("/facts", { newest: true, limit: PAGE, ...Object.fromEntries(FILTERS.map((name) => [name, params[name]])) }),
  render: ({ facts, more }, ctx, params) => [
    filters(ctx, params),
    facts.length === 0 ? nothing("Nothing matches.") : table("Audit trail", HEADS, facts.map(row)),
    h(
      "nav",
      { class: "pages", "aria-label": "Pages" },
      params.before && h("a", { href: address({ ...params, before: "" }) }, "newest"),
      more && h("a", { href: address({ ...params, before: facts.at(-1).position }) }, "older"),
    ),
  ],
});

const HEADS = [["Entry", "num"], "When", "Who", "What", "Host", "Reason and decision", "Before → after"];

function address(params) {
  const given = FILTERS.map((name) => [name, params[name]]).filter(([, value]) => value);
  return `#/audit${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

function filters(ctx, params) {
  const field = (name, label, node) => [h("label", { for: `audit-${name}` }, label), node];
  const text = (name) =>
    h("input", { id: `audit-${name}`, name, type: "search", value: params[name] ?? "", autocomplete: "off", "data-filter": name === "host" });
  const event = h(
    "select",
    { id: "audit-event", name: "event" },
    h("option", { value: "" }, "any"),
    EVENT_NAMES.map((name) => h("option", { value: name, selected: name === params.event }, eventWords(name))),
  );
  const people = h("input", { type: "checkbox", id: "audit-people", name: "people", checked: params.people === "true" });
  const form = h(
    "form",
    {
      class: "tools",
      role: "search",
      on: {
        submit: (submitted) => {
          submitted.preventDefault();
          const given = new FormData(form);
          ctx.go(address({ ...Object.fromEntries(given), people: given.has("people") ? "true" : "" }));
        },
      },
    },
    field("host", "Host", text("host")),
    field("who", "Who", text("who")),
    field("event", "What", event),
    h("span", { class: "field tick" }, people, h("label", { for: "audit-people" }, "people only")),
    h("button", { type: "submit", "data-key": "audit-filter" }, "Filter"),
  );
  return form;
}

function row(fact) {
  return h(
    "tr",
    { class: fact.refused ? "refused-fact" : null },
    h("td", { class: "num" }, String(fact.position)),
    h("td", { class: "when" }, stamp(fact.at_s), h("br"), age(fact.at_s)),
    h("td", {}, fact.who ?? "fleetd"),
    h("td", {}, eventWords(fact.event), fact.refused && h("span", { class: "tag" }, "refused")),
    h("td", {}, fact.host ? hostLink(fact.host) : "fleet"),
    h("td", {}, fact.reason && h("p", { class: "reason" }, fact.reason), h("p", {}, prose(fact.why))),
    h("td", { class: "turn" }, fact.was === fact.now ? fact.now : `${fact.was} → ${fact.now}`),
  );
}
