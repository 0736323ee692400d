/** Numbers and times for people. What is absent is shown as `–`, never as 0. Quantities arrive in base units. */

import { h } from "./dom.js";

export const ABSENT = "–";

let skewSeconds = 0;

/** Set what the server's clock is ahead of this one, so that ages are right on a machine with a wrong clock. */
export function learnClock(serverNowSeconds) {
  if (Number.isFinite(serverNowSeconds)) skewSeconds = serverNowSeconds - Date.now() / 1000;
}

/** The server's wall time, seconds since the epoch. */
export const now = () => Date.now() / 1000 + skewSeconds;

const given = (value) => typeof value === "number" && Number.isFinite(value);

/** A whole number with thin spaces between thousands. */
export function count(value) {
  return given(value) ? String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f") : ABSENT;
}

/** One thing or several: `plural(2, "host")` is `2 hosts`. */
export const plural = (number, word, words = `${word}s`) => `${count(number)} ${number === 1 ? word : words}`;

/** A number with a unit and so many digits after the point. */
function quantity(value, unit, digits = 0, factor = 1) {
  return given(value) ? `${(value * factor).toFixed(digits)}\u202f${unit}` : ABSENT;
}

export const watts = (value) =>
  given(value) && Math.abs(value) >= 1e6
    ? quantity(value, "MW", 2, 1e-6)
    : given(value) && Math.abs(value) >= 1e4
      ? quantity(value, "kW", 1, 1e-3)
      : quantity(value, "W");
export const celsius = (value) => quantity(value, "°C");
export const hertz = (value) => quantity(value, "MHz", 0, 1e-6);
export const ratio = (value) => quantity(value, "%", 0, 100);
export const bytes = (value) => quantity(value, "GiB", 0, 2 ** -30);

/** A span of time in its largest sensible unit. */
export function span(seconds) {
  if (!given(seconds)) return ABSENT;
  const s = Math.max(0, seconds);
  if (s < 90) return `${Math.round(s)}\u202fs`;
  if (s < 90 * 60) return `${Math.round(s / 60)}\u202fmin`;
  if (s < 36 * 3600) return `${Math.round(s / 3600)}\u202fh`;
  return `${Math.round(s / 86400)}\u202fd`;
}

/** How long ago a wall time is, or how long until then. */
function ago(atSeconds) {
  if (!given(atSeconds)) return ABSENT;
  const passed = now() - atSeconds;
  if (Math.abs(passed) < 2) return "now";
  return passed >= 0 ? `${span(passed)} ago` : `in ${span(-passed)}`;
}

/** A wall time as ISO 8601; null: no calendar has it. Other machines' clocks may say anything. */
function iso(atSeconds) {
  const date = new Date(atSeconds * 1000);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

/** A wall time to the second, in UTC: what logs and journals of other hosts show. */
export function stamp(atSeconds) {
  if (!given(atSeconds)) return ABSENT;
  const text = iso(atSeconds);
  return text === null ? `${atSeconds}\u202fs from 1970` : `${text.slice(0, 19).replace("T", " ")}\u202fZ`;
}

/** A time that keeps telling how long ago it is. */
export function age(atSeconds) {
  if (!given(atSeconds)) return h("span", {}, ABSENT);
  const datetime = iso(atSeconds);
  if (datetime === null) return h("span", {}, stamp(atSeconds));
  return h("time", { datetime, title: stamp(atSeconds), "data-at": atSeconds }, ago(atSeconds));
}

/** Bring all ages in the page up to date. */
export function refreshAges(root = document) {
  for (const node of root.querySelectorAll("time[data-at]")) {
    const text = ago(Number(node.dataset.at));
    if (node.textContent !== text) node.textContent = text;
  }
}

/** Order names as people do: h2 before h10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;
