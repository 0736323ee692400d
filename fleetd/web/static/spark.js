/** Sparklines: the last minutes of one reading of one GPU. A gap in the readings is a gap in the line. */

import { h, svg } from "./dom.js";
import { span } from "./format.js";

const WIDTH = 84;
const HEIGHT = 18;

/**
 * A line over time with its last value beside it.
 *
 * @param {string} name what it is, for those who hear it
 * @param {Array<?number>} values oldest first; null: not read
 * @param {Array<number>} times wall times of the values, seconds since the epoch
 * @param {(value: ?number) => string} write how a value is written
 * @param {{low: number, high: number}} bounds of the axis, the same for all GPUs of a host, so that lines compare
 */
export function sparkline(name, values, times, write, bounds) {
  const given = values.filter((value) => value !== null);
  if (given.length < 2) return h("span", { class: "spark-none" });
  const reach = bounds.high - bounds.low || 1;
  const from = times[0];
  const whole = times.at(-1) - from || 1;
  const x = (at) => (1 + ((at - from) / whole) * (WIDTH - 2)).toFixed(1);
  const y = (value) => (HEIGHT - 2 - ((value - bounds.low) / reach) * (HEIGHT - 4)).toFixed(1);
  let pen = "M";
  let path = "";
  values.forEach((value, index) => {
    if (value === null) {
      pen = "M";
    } else {
      path += `${pen}${x(times[index])} ${y(value)}`;
      pen = "L";
    }
  });
  const says = `${name}, last ${span(whole)}: from ${write(Math.min(...given))} to ${write(Math.max(...given))}`;
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": says },
    svg("title", {}, says),
    svg("path", { d: path }),
  );
}

/** The bounds of one reading over all GPUs, a little wider than what was read. */
export function boundsOf(series) {
  const all = series.flat().filter((value) => value !== null && value !== undefined);
  if (all.length === 0) return { low: 0, high: 1 };
  const low = Math.min(...all);
  const high = Math.max(...all);
  const margin = Math.max((high - low) * 0.1, Math.abs(high) * 0.02, 1e-9);
  return { low: low - margin, high: high + margin };
}
