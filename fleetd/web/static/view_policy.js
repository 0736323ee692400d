/** The policy in force: its rules in the order in which they are tried, and how far each may go. */

import { get } from "./api.js";
import { h, section, table } from "./dom.js";
import { dataView } from "./view.js";

const HEADS = [["#", "num"], "Rule", "When", "Then", "Mode"];

export const policyView = dataView({
  title: () => "Policy",
  concerns: (change) => change.fleet,
  fetch: () => get("/policy"),
  render: ({ name, rules }) => [
    h(
      "p",
      {},
      "In force: ",
      h("b", {}, name),
      ". Its budgets, and what of them is spent: ",
      h("a", { href: "#/automation" }, "Automation"),
    ),
    section("Rules", { note: "The first that matches decides." }, table("Rules", HEADS, rules.map(row))),
  ],
});

function row({ name, stage, when, then }, index) {
  return h(
    "tr",
    {},
    h("td", { class: "num" }, String(index + 1)),
    h("th", { scope: "row" }, name),
    h("td", {}, when),
    h("td", {}, then),
    h("td", {}, h("span", { class: `tag stage-${stage}` }, stage)),
  );
}
