/** What views have in common: load, show, load again when something changed, and say what went wrong. */

import { Failure } from "./api.js";
import { h, swap } from "./dom.js";

const AGAIN_MS = 400;

/**
 * A view that shows what requests answer.
 *
 * @param {object} parts `title(params)`, `fetch(params, ctx)`, `render(data, ctx, params)` → children,
 *   `concerns(change, params)`: whether a change makes it load again, `every`: seconds after which it does anyway
 * @returns {(place: Element, ctx: object, params: object) => {update, refresh, unmount}}
 */
export function dataView({ title, fetch, render, concerns, every = null }) {
  return (place, ctx, params) => {
    const body = h("div", { class: "view" }, h("p", { class: "loading" }, "loading …"));
    const trouble = h("p", { class: "refused", role: "alert" });
    place.replaceChildren(heading(title(params)), trouble, body);
    let timer = null;
    let asked = 0;
    let gone = false;
    const refresh = async () => {
      const mine = ++asked;
      try {
        const data = await fetch(params, ctx);
        if (gone || mine !== asked) return;
        if (trouble.textContent !== "") trouble.replaceChildren();
        swap(body, render(data, ctx, params));
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (gone || mine !== asked || error.status === 401) return;
        trouble.replaceChildren(error.message);
        body.querySelector(".loading")?.remove();
      }
    };
    const beat =
      every === null ? null : setInterval(() => document.hidden || selecting(body) || refresh(), every * 1000);
    refresh();
    return {
      refresh,
      update(change) {
        if (!concerns(change, params)) return;
        timer ??= setTimeout(() => {
          timer = null;
          refresh();
        }, AGAIN_MS);
      },
      unmount() {
        gone = true;
        clearTimeout(timer);
        clearInterval(beat);
      },
    };
  };
}

/** Whether the reader is marking a text, which a new one would take from under the pointer. */
function selecting(body) {
  const selection = getSelection();
  return !selection.isCollapsed && body.contains(selection.anchorNode);
}

/** The heading of a view: where the focus goes when it opens. */
export function heading(text, ...more) {
  return h("header", { class: "view-head" }, h("h1", { tabindex: "-1" }, text), ...more);
}

/** A bar that shows a part of a whole; the words beside it say the same. */
export function meter(part, whole, { tone = "" } = {}) {
  const share = whole > 0 ? Math.min(1, part / whole) : part > 0 ? 1 : 0;
  return h(
    "span",
    { class: `meter ${tone}`, "aria-hidden": "true" },
    h("span", { class: "fill", style: { width: `${(share * 100).toFixed(1)}%` } }),
  );
}

/** Facts about one thing, as a list of terms. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]),
  );
}
