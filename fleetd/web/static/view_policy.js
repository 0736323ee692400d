/** The policy in force: its rules in the order in which they are tried, and what proves what cured. */

import { get } from "./api.js";
import { h, section, table } from "./dom.js";
import { dataView, facts } from "./view.js";

export const policyView = dataView({
  title: () => "Policy",
  concerns: (change) => change.fleet,
  fetch: () => get("/policy"),
  render: (policy) => [
    facts([
      ["policy", h("b", {}, policy.name)],
      ["a proven host returns", policy.returns],
    ]),
    section("Rules", { note: "The first that matches decides." }, rules(policy.rules)),
    policy.proofs &&
      section(
        "Proofs",
        { note: "What must pass before a quarantine for such a fault may end." },
        proofs(policy.proofs),
      ),
  ],
});

function rules(found) {
  return table(
    "Rules",
    [["#", "num"], "Rule", "When", "Then", "Mode"],
    found.map((rule, index) =>
      h(
        "tr",
        {},
        h("td", { class: "num" }, String(index + 1)),
        h("th", { scope: "row" }, rule.name),
        h("td", {}, rule.when),
        h("td", {}, rule.then),
        h("td", {}, h("span", { class: `tag stage-${rule.stage}` }, rule.stage)),
      ),
    ),
  );
}

function proofs(found) {
  return table(
    "Proofs",
    ["Fault class", "Proven cured by"],
    Object.entries(found).map(([fault, proof]) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, fault),
        h(
          "td",
          {},
          proof === null
            ? "an operator's decision only"
            : `a passing ${proof.level} burn-in${proof.after_reboot ? " after a reboot" : ""}`,
        ),
      ),
    ),
  );
}
