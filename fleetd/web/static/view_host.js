/** One host: where it stands and why, what holds it and what would free it, its GPUs, its burn-ins, its history. */

import { hostButtons } from "./actions.js";
import { get, part } from "./api.js";
import { h, nothing, prose, section, table } from "./dom.js";
import { findingLine, holdCards, isRun, placeWords, runCard, wayBack } from "./evidence.js";
import { ABSENT, age, bytes, celsius, count, hertz, plural, ratio, watts } from "./format.js";
import { boundsOf, sparkline } from "./spark.js";
import { dataView, facts } from "./view.js";
import { badge, eventWords } from "./words.js";

const RUNS = 4;

/** Readings with a line: name in the catalogue, heading, how a value is written. */
const LINES = [
  ["power_watts", "Power", watts],
  ["temperature_celsius", "Temp.", celsius],
  ["sm_clock_hertz", "Clock", hertz],
  ["utilization_ratio", "Use", ratio],
];

export const hostView = dataView({
  title: (params) => params.name,
  concerns: (change, params) => change.names.has(params.name),
  every: 10, // readings are no change of the fleet
  async fetch({ name }) {
    const path = `/hosts/${part(name)}`;
    const [whole, timeline, telemetry] = await Promise.all([
      get(path),
      get(`${path}/timeline`),
      get(`${path}/telemetry`),
    ]);
    return { ...whole, timeline, telemetry };
  },
  render({ host, version, samples, findings, connected, timeline, telemetry }, ctx) {
    const runs = findings.filter(isRun);
    return [
      standing(host, connected),
      hostButtons(ctx, { name: host.name, version }),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          {},
          holds(host, findings),
          gpus(host, samples, telemetry),
          section("Timeline", { note: "newest first" }, history(timeline)),
        ),
        h("div", { class: "side" }, about(host), burnins(runs), faults(findings)),
      ),
    ];
  },
});

function standing(host, connected) {
  return h(
    "div",
    { class: "standing" },
    badge(host.state),
    h("p", { class: "why" }, prose(host.why)),
    h("p", { class: "note" }, "since ", age(host.since_s)),
    host.silent && h("p", { class: "warn" }, "its agent has been silent since ", age(host.silent.since_s)),
    connected === false && !host.silent && h("p", { class: "warn" }, "its agent is not connected"),
  );
}

function holds(host, findings) {
  const back = wayBack(host);
  const cards = holdCards(host, findings);
  if (cards.length === 0 && back === null) return null;
  return section(
    "What stands between it and its users",
    {},
    back,
    cards.length > 0 && h("div", { class: "cards" }, cards),
  );
}

function gpus(host, samples, telemetry) {
  const latest = new Map(samples.map((sample) => [sample.gpu, sample]));
  const windows = new Map(telemetry.gpus.map((lines) => [lines.gpu, lines]));
  const bounds = new Map(LINES.map(([name]) => [name, boundsOf(telemetry.gpus.map((lines) => lines[name]))]));
  const accused = new Set([...host.holds, ...host.charges.map((c) => c.hold)].map((hold) => hold.gpu).filter(Boolean));
  const rows = host.inventory.map((gpu) => {
    const sample = latest.get(gpu.gpu) ?? {};
    const lines = windows.get(gpu.gpu);
    return h(
      "tr",
      { class: accused.has(gpu.gpu) ? "accused" : null },
      h("th", { scope: "row", class: "num" }, String(gpu.index)),
      h(
        "td",
        {},
        h("code", { title: gpu.gpu }, gpu.gpu),
        accused.has(gpu.gpu) && h("span", { class: "tag" }, "accused"),
      ),
      LINES.map(([name, title, write]) =>
        h(
          "td",
          { class: "reading" },
          lines && sparkline(`${title} of GPU ${gpu.index}`, lines[name], telemetry.at_s, write, bounds.get(name)),
          h("span", { class: "num" }, write(sample[name])),
        ),
      ),
      h("td", { class: "num" }, memory(sample)),
      h("td", { class: "num" }, ecc(sample)),
      h("td", { class: "num" }, sample.at_s ? age(sample.at_s) : ABSENT),
    );
  });
  const heads = [["#", "num"], "GPU", ...LINES.map(([, title]) => title), ["Memory", "num"], ["ECC unc/corr", "num"]];
  return section(
    "GPUs",
    { note: [...new Set(host.inventory.map((gpu) => gpu.sku))].join(", ") },
    rows.length === 0
      ? nothing("Its agent has named no GPU.")
      : table("GPUs", [...heads, ["Read", "num"]], rows, { class: "gpus" }),
  );
}

function memory(sample) {
  const used = bytes(sample.memory_used_bytes);
  return used === ABSENT ? ABSENT : `${used.split("\u202f")[0]}/${bytes(sample.memory_total_bytes)}`;
}

function ecc(sample) {
  return `${count(sample.ecc_uncorrected_total)} / ${count(sample.ecc_corrected_total)}`;
}

function about(host) {
  const first = host.inventory[0] ?? {};
  const firmware = [...new Set(host.inventory.map((gpu) => gpu.firmware).filter(Boolean))].join(", ");
  return section(
    "About",
    { class: "quiet" },
    facts([
      ...placeWords(host),
      ["driver", host.driver_version],
      ["firmware", firmware],
      ["VBIOS", first.vbios],
      ["boot", host.boot_id && h("code", {}, host.boot_id)],
      ["proof", host.proof && h("code", {}, host.proof)],
      ["strikes", host.strikes.length || null],
      ["condemned before", host.marks.length ? plural(host.marks.length, "time") : null],
      ["failed jobs", host.failed_jobs.length || null],
      ["probation until", host.probation_until_s && age(host.probation_until_s)],
      ["burn-ins without a judgement", host.attempts || null],
    ]),
  );
}

function burnins(runs) {
  return section(
    "Burn-ins",
    { class: "quiet", note: runs.length > RUNS ? `the last ${RUNS}` : null },
    runs.length === 0 ? nothing("No burn-in has ended here.") : runs.slice(0, RUNS).map(runCard),
  );
}

function faults(findings) {
  const seen = findings.filter((finding) => !isRun(finding)).slice(0, 20);
  return section(
    "Device faults",
    { class: "quiet" },
    seen.length === 0
      ? nothing("None was reported.")
      : h(
          "ul",
          { class: "feed" },
          seen.map((finding) => h("li", {}, findingLine(finding))),
        ),
  );
}

function history({ entries }) {
  if (entries.length === 0) return nothing("Nothing has happened yet.");
  return h(
    "ol",
    { class: "timeline", reversed: true },
    entries.map((entry, index) => moment(entry, entries[index + 1])),
  );
}

/** One decision; `before` is the one before it, which says what state the host had. */
function moment(entry, before) {
  const moved = entry.state !== null && entry.state !== (before?.state ?? null);
  return h(
    "li",
    { class: entry.refused ? "refused-fact" : null },
    age(entry.at_s),
    h(
      "div",
      {},
      h(
        "p",
        { class: "moment" },
        h("em", {}, eventWords(entry.event)),
        entry.who && h("span", { class: "who" }, entry.who),
        entry.refused && h("span", { class: "tag" }, "refused"),
        moved && badge(entry.state),
      ),
      entry.reason && !entry.why.includes(entry.reason) && h("p", { class: "reason" }, `“${entry.reason}”`),
      h("p", {}, prose(entry.why)),
      entry.finding && h("p", { class: "found" }, findingLine(entry.finding)),
      entry.orders.length > 0 && h("ul", { class: "orders" }, entry.orders.map(order)),
    ),
  );
}

function order({ id, kind, level, drain, withheld }) {
  const what = [eventWords(kind), level, drain && `work leaves: ${drain.replaceAll("_", " ")}`]
    .filter(Boolean)
    .join(", ");
  return h(
    "li",
    {},
    withheld === null ? "ordered: " : "withheld: ",
    what,
    " ",
    h("code", {}, id),
    withheld && ` — ${withheld}`,
  );
}
