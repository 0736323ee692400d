/** The audit trail: who did what, why, and what it was before and after. Newest first. */

import { get } from "./api.js";
import { h, hostLink, nothing, prose, table } from "./dom.js";
import { age, now, plural, stamp } from "./format.js";
import { dataView } from "./view.js";
import { EVENT_NAMES, eventWords } from "./words.js";

const PAGE = 500;
const FILTERS = ["span", "people", "host", "who", "event", "before"];
const SPANS = [
  ["day", "last day", 86_400],
  ["hour", "last hour", 3600],
  ["week", "last 7 days", 7 * 86_400],
  ["month", "last 30 days", 30 * 86_400],
  ["all", "everything", null],
];

export const auditView = dataView({
  title: () => "Audit trail",
  concerns: (change, params) => !params.before && (change.rows.length > 0 || change.fleet),
  fetch({ span, people, host, who, event, before }) {
    const seconds = (SPANS.find(([name]) => name === span) ?? SPANS[0])[2];
    const since = seconds === null ? null : Math.max(0, Math.floor(now() - seconds));
    return get("/facts", { people: people !== "false", host, who, event, before, since, newest: true, limit: PAGE });
  },
  render: ({ facts, more }, ctx, params) => [
    filters(ctx, params),
    facts.length === 0
      ? nothing("Nothing matches in this span of time.")
      : [
          h(
            "p",
            { class: "note" },
            `${plural(facts.length, "entry", "entries")}${more ? "; there are older ones" : ""}`,
          ),
          table("Audit trail", HEADS, facts.map(row)),
        ],
    h(
      "nav",
      { class: "pages", "aria-label": "Pages" },
      params.before && h("a", { href: address({ ...params, before: "" }) }, "newest entries"),
      more && h("a", { href: address({ ...params, before: facts.at(-1).position }) }, "older entries"),
    ),
  ],
});

const HEADS = [["Entry", "num"], "When", "Who", "What", "Host", "Reason and decision", "Before → after"];

function address(params) {
  const given = FILTERS.map((name) => [name, params[name]]).filter(([, value]) => value);
  return `#/audit${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

function filters(ctx, params) {
  const choice = (name, options, chosen) =>
    h(
      "select",
      { id: `audit-${name}`, name, "data-key": `audit-${name}` },
      options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
    );
  const text = (name) =>
    h("input", {
      id: `audit-${name}`,
      name,
      type: "search",
      size: 14,
      value: params[name] ?? "",
      autocomplete: "off",
      "data-filter": name === "host",
    });
  const field = (name, label, node) => [h("label", { for: `audit-${name}` }, label), node];
  const events = [["", "any"], ...EVENT_NAMES.map((name) => [name, eventWords(name)])];
  const everybody = [
    ["true", "people"],
    ["false", "people and fleetd"],
  ];
  const form = h(
    "form",
    {
      class: "tools",
      role: "search",
      on: {
        submit: (submitted) => {
          submitted.preventDefault();
          ctx.go(address(Object.fromEntries(new FormData(form))));
        },
      },
    },
    field("span", "When", choice("span", SPANS, params.span ?? "day")),
    field("people", "By", choice("people", everybody, params.people ?? "true")),
    field("host", "Host", text("host")),
    field("who", "Who", text("who")),
    field("event", "What", choice("event", events, params.event ?? "")),
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
