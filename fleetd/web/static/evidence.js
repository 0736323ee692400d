/** Holds, charges and findings: why a host is where it is, and what would bring it back. */

import { h, prose } from "./dom.js";
import { age, stamp } from "./format.js";
import { facts } from "./view.js";

/** Owners who are no person: `fleetd:earlier` is what an earlier ledger's orders left in the scheduler. */
const AUTOMATIC = new Set(["fleetd", "fleetd:earlier"]);

/** What must happen before a hold may go, in words. */
function proofOf(hold) {
  if (!AUTOMATIC.has(hold.owner)) {
    const until = hold.expires_at_s ? `, or by itself ${stamp(hold.expires_at_s)}` : "";
    return `${hold.owner} lifts it${until}; anybody else by an override`;
  }
  if (!hold.proof_level) return "no burn-in proves this cured: an operator decides";
  return `a passing ${hold.proof_level} burn-in${hold.after_reboot ? " after a reboot" : " of this boot"}`;
}

/** What stands between a host and its users: one line a hold, and what is under way. */
export function wayBack(host) {
  const lines = [];
  for (const hold of host.holds) {
    const proven = AUTOMATIC.has(hold.owner) && hold.proof_level && host.proof;
    lines.push(
      h(
        "li",
        { class: proven ? "met" : "open" },
        proofOf(hold),
        proven && ` — passed (${host.proof}); a release is due`,
      ),
    );
  }
  for (const charge of host.charges) {
    lines.push(h("li", { class: "open" }, `a decision: its quarantine is withheld, ${charge.withheld}`));
  }
  if (host.pending) {
    const accepted = host.pending.accepted ? "accepted by the agent" : "not accepted yet";
    const ordered = age(host.pending.issued_at_s);
    lines.push(h("li", { class: "busy" }, `burn-in ${host.pending.level}: ordered `, ordered, `, ${accepted}`));
  }
  if (host.due) {
    const when = age(host.due.not_before_s);
    lines.push(h("li", { class: "busy" }, `burn-in ${host.due.level} waits: ${host.due.why}; next try `, when));
  }
  return lines.length === 0 ? null : h("ul", { class: "way" }, lines);
}

/** The holds of a host, and those that something keeps back, each with its evidence. */
export function holdCards(host, findings) {
  const byId = new Map(findings.map((finding) => [finding.id, finding]));
  return [
    ...host.holds.map((hold) => holdCard(hold, host, byId)),
    ...host.charges.map((charge) => holdCard(charge.hold, host, byId, charge)),
  ];
}

function holdCard(hold, host, findings, { withheld = null, key = null } = {}) {
  const about = hold.gpu ? h("code", {}, hold.gpu) : "the host";
  return h(
    "article",
    { class: withheld === null ? "card hold" : "card charge" },
    h(
      "h3",
      {},
      withheld === null ? `Held by ${hold.owner}` : "Quarantine withheld",
      hold.fault_class !== "none" && h("span", { class: "tag" }, hold.fault_class),
    ),
    !host.why.includes(hold.reason) && h("p", { class: "reason" }, prose(hold.reason)), // else it stands above already
    withheld !== null && h("p", { class: "withheld" }, "Kept back: ", prose(withheld)),
    facts([
      ["about", about],
      ["since", age(hold.at_s)],
      ["boot", hold.boot_id && h("code", {}, hold.boot_id)],
      ["expires", hold.expires_at_s && age(hold.expires_at_s)],
      ["in common", key && h("code", {}, key)],
    ]),
    hold.evidence.length > 0 &&
      h(
        "ul",
        { class: "evidence" },
        hold.evidence.map((id) => evidence(id, findings.get(id))),
      ),
  );
}

function evidence(id, finding) {
  if (!finding) return h("li", {}, h("code", {}, id));
  return h("li", {}, findingLine(finding), " ", h("code", {}, id));
}

const SEVERITIES = ["info", "warning", "error", "fatal"];

/** Whether a finding is the end of a burn-in; the others are faults of devices. */
export const isRun = (finding) => "verdict" in finding;

/** A finding in one line. */
export function findingLine(finding) {
  const what = isRun(finding)
    ? `burn-in ${finding.level}: ${words(finding.verdict)}`
    : `${finding.code} (${SEVERITIES[finding.severity] ?? finding.severity})`;
  return h("span", {}, age(finding.at_s), " ", h("b", {}, what), " ", prose(finding.why));
}

/** A burn-in run with what it blames and what it computed: the signature by which hosts are compared. */
export function runCard(run) {
  return h(
    "article",
    { class: `card run ${run.verdict}` },
    h(
      "h3",
      {},
      `${run.level}: ${words(run.verdict)}`,
      run.fault_class !== "none" && h("span", { class: "tag" }, run.fault_class),
      age(run.at_s),
    ),
    h("p", { class: "reason" }, prose(run.why)),
    facts([
      ["vote key", run.vote_key && h("code", {}, run.vote_key)],
      ["seed", h("code", {}, String(run.seed))],
      ["order", run.order_id ? h("code", {}, run.order_id) : "begun by the host itself"],
    ]),
    run.culprits.length > 0 &&
      h(
        "ul",
        { class: "evidence" },
        run.culprits.map((c) => h("li", {}, `GPU ${c.index} `, h("code", {}, c.gpu), ` ${c.fault_class}: ${c.why}`)),
      ),
    run.ballots.length > 0 && ballots(run),
  );
}

function ballots(run) {
  return h(
    "details",
    { "data-key": `ballots-${run.id}` },
    h("summary", {}, `${run.ballots.length} signatures compared with other hosts`),
    h(
      "ul",
      { class: "signatures" },
      run.ballots.map((ballot) =>
        h("li", {}, h("code", {}, ballot.key), h("code", { class: "print" }, ballot.fingerprint)),
      ),
    ),
  );
}

const words = (text) => String(text).replaceAll("_", " ");

/** Where a host stands and what it is, in one line. */
export function placeLine({ place, inventory }) {
  const skus = [...new Set(inventory.map((gpu) => gpu.sku))].join(" + ");
  return [place.pool, place.rack && `rack ${place.rack}`, skus].filter(Boolean).join(" · ");
}

/** Where it stands, as facts. */
export function placeWords({ place }) {
  return [
    ["pool", place.pool && h("a", { href: `#/fleet?${new URLSearchParams({ pool: place.pool })}` }, place.pool)],
    ["rack", place.rack],
    ["NVLink domain", place.nvlink_domain],
    ["power domain", place.power_domain],
    ["job", place.job],
  ];
}
