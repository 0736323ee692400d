/** The keyboard: single keys for places, and a dialog that tells them. They can be switched off, for those whose
 * speech input or habits press letters by themselves. */

import { h } from "./dom.js";

const SETTING = "fleetd-keys";
const CHORD_MS = 1500;

const PLACES = [
  ["f", "#/fleet", "fleet"],
  ["q", "#/queue", "quarantine queue"],
  ["b", "#/automation", "budgets, kill switch, incidents"],
  ["p", "#/policy", "policy"],
  ["w", "#/power", "power"],
  ["a", "#/audit", "audit trail"],
];

const OTHERS = [
  ["/", "to the filter of this view"],
  ["?", "this help"],
  ["← → ↑ ↓", "on the map: move; Home, End, Page Up, Page Down go further"],
  ["Enter", "on the map: open the host"],
  ["Esc", "close a dialog or a hint"],
];

let first = 0;

/** Listen for keys on the whole page. */
export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !enabled() || writing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "?") {
      event.preventDefault();
      showKeys();
    } else if (event.key === "/") {
      const filter = document.querySelector("main [data-filter]");
      if (filter === null) return;
      event.preventDefault();
      filter.focus();
      filter.select?.();
    } else if (event.key === "g") {
      first = performance.now();
    } else if (performance.now() - first < CHORD_MS) {
      first = 0;
      const place = PLACES.find(([key]) => key === event.key);
      if (place) location.hash = place[1];
    }
  });
}

/** The help. */
export function showKeys() {
  const entry = ([keys, does]) => [
    h(
      "dt",
      {},
      keys.split(" ").map((key) => h("kbd", {}, key)),
    ),
    h("dd", {}, does),
  ];
  const toggle = h("input", {
    type: "checkbox",
    id: "keys-on",
    checked: enabled(),
    on: { change: () => localStorage.setItem(SETTING, toggle.checked ? "on" : "off") },
  });
  const close = h("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, "Close");
  const dialog = h(
    "dialog",
    { "aria-labelledby": "keys-title", class: "keys" },
    h("h2", { id: "keys-title" }, "Keyboard"),
    h(
      "dl",
      {},
      PLACES.map(([key, , does]) => entry([`g ${key}`, does])),
      OTHERS.map(entry),
    ),
    h("div", { class: "field tick" }, toggle, h("label", { for: "keys-on" }, "Single keys are on")),
    h("div", { class: "dialog-buttons" }, close),
  );
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}

const enabled = () => localStorage.getItem(SETTING) !== "off";

const writing = (node) => node.matches?.("input:not([type=checkbox]), textarea, select") ?? false;
