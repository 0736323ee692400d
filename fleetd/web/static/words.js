/** The words of the fleet: states and flags with their signs, and how they are written. One place for the legend,
 * the map and every badge, so that a colour and a shape mean the same everywhere. */

import { h, svg } from "./dom.js";

/** Shapes are drawn in a box of 10 × 10, on the canvas and in SVG alike. `fill` shapes are filled, others stroked. */
const STATES = {
  healthy: { label: "healthy", says: "serves users", shape: "" },
  probation: { label: "probation", says: "came back and is watched; serves users", shape: "M2.6 6.6 5 3.6 7.4 6.6" },
  new: { label: "new", says: "seen, not yet proven", shape: "M5 3.9a1.1 1.1 0 1 0 .01 0Z", fill: true },
  qualifying: { label: "qualifying", says: "a burn-in is to prove it", shape: "M5 2.6a2.4 2.4 0 1 0 .01 0Z" },
  suspect: { label: "suspect", says: "something speaks against it", shape: "M5 1.9 5 5.7M5 7.4 5 8.1" },
  quarantined: { label: "quarantined", says: "kept from its users", shape: "M2.8 2.8 7.2 7.2M7.2 2.8 2.8 7.2" },
  repairing: { label: "repairing", says: "a person works on it", shape: "M5 2.2 5 7.8M2.2 5 7.8 5" },
  retired: { label: "retired", says: "out of the fleet", shape: "M3 7 7 3", hollow: true },
};

/** States in the order in which they are told: from serving to gone. */
export const STATE_NAMES = Object.keys(STATES);

/** Bits of a host's flags on the map. */
export const FLAG = { held: 1, withheld: 2, burnin: 4, away: 8 };

/** Flags of the hosts in the queue, as the API calls them. */
export const QUEUED = ["held", "withheld"];

const FLAG_WORDS = [
  [FLAG.held, "held"],
  [FLAG.withheld, "quarantine withheld"],
  [FLAG.burnin, "burn-in under way"],
  [FLAG.away, "agent away"],
];

/** What is known of a state; an unknown one (a newer controller's) is shown as it is called. */
export function stateOf(name) {
  return STATES[name] ?? { label: String(name), says: "", shape: "M3.5 3.5h3v3h-3z" };
}

/** A host's flags in words. */
export function flagWords(flags) {
  return FLAG_WORDS.filter(([bit]) => flags & bit).map(([, word]) => word);
}

/** The sign of a state as a picture beside its name; the name says the same. */
export function sign(name) {
  const { shape, fill, hollow } = stateOf(name);
  return svg(
    "svg",
    { class: `sign state-${known(name)}`, viewBox: "0 0 10 10", "aria-hidden": "true", focusable: "false" },
    svg("rect", { x: 0.5, y: 0.5, width: 9, height: 9, rx: 1.5, class: hollow ? "cell hollow" : "cell" }),
    shape && svg("path", { d: shape, class: fill ? "shape filled" : "shape" }),
  );
}

/** A state as a badge. */
export function badge(name) {
  return h("span", { class: `badge state-${known(name)}` }, sign(name), stateOf(name).label);
}

const known = (name) => (name in STATES ? name : "unknown");

/** What the kinds of events are called in a timeline. */
const EVENTS = {
  AgentConnected: "agent said hello",
  FindingReceived: "finding",
  AgentSilent: "agent silent",
  BurninAccepted: "burn-in accepted",
  BurninRefused: "burn-in refused by the agent",
  OutlierFound: "outlier",
  Outvoted: "outvoted by the fleet",
  JobEnded: "job ended",
  OrderObstructed: "order obstructed",
  SchedulerDiffers: "scheduler differs",
  OperatorQuarantined: "quarantine",
  OperatorReleased: "release",
  OperatorBurnin: "burn-in ordered",
  OperatorRepairs: "repair begins",
  OperatorRepaired: "repair ends",
  OperatorRetires: "retired",
  GpuSwapped: "GPU swapped",
  LedgerRestored: "ledger restored",
  BudgetRearmed: "budgets re-armed",
  AutomationStopped: "automation stopped",
  AutomationResumed: "automation resumed",
  IncidentClosed: "incident closed",
};

/** An event's name for people: known ones by their words, others taken apart at their capitals. */
export function eventWords(name) {
  return (
    EVENTS[name] ??
    String(name)
      .replace(/(?<=[a-z])(?=[A-Z])/g, " ")
      .toLowerCase()
  );
}

export const EVENT_NAMES = Object.keys(EVENTS);
