/** The fleet as a picture: one cell a host, rack by rack, on a canvas, with a keyboard and a voice of its own. */

import { h, visible } from "./dom.js";
import { plural } from "./format.js";
import { cellAt, layOut, step } from "./layout.js";
import { FLAG, STATE_NAMES, flagWords, stateOf } from "./words.js";
import { isQueued } from "./fleet.js";

const PULSE_MS = 1600;
const PULSES_MAX = 200;
/** The sign of a quarantine that something keeps back. */
const CORNER = new Path2D("M5.2 0H10V4.8Z");
const MOVES = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

/** A host in one line, as the tooltip and the voice say it. */
function sentence(host) {
  const where = [host.rack && `rack ${host.rack}`, host.pool && `pool ${host.pool}`].filter(Boolean).join(", ");
  const words = [stateOf(host.state).label, ...flagWords(host.flags)].join(", ");
  return visible(`${host.name}: ${words}${where ? `; ${where}` : ""}; ${plural(host.gpus, "GPU")}`);
}

export class HeatMap {
  #canvas;
  #context;
  #tip;
  #voice;
  #open;
  #racks = [];
  #admits = () => true;
  #plan = null;
  #cursor = -1;
  #colours = {};
  #shapes = new Map();
  #pulses = new Map();
  #frame = 0;
  #watchers = [];

  /** `open(host)` is called when a host is chosen. */
  constructor(open) {
    this.#open = open;
    this.#canvas = h("canvas", {
      id: "map",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "heat map",
      "aria-label": "Hosts by rack. Arrow keys move, Enter opens a host. The same as a list: Table.",
      on: {
        keydown: (event) => this.#key(event),
        click: (event) => this.#click(event),
        pointermove: (event) => this.#hover(event),
        pointerleave: () => this.#hideTip(),
        focus: () => this.#focused(),
        blur: () => this.#later(),
      },
    });
    this.#context = this.#canvas.getContext("2d", { alpha: true });
    this.#tip = h("div", { class: "tip", hidden: true });
    this.#voice = h("p", { class: "hidden", role: "status" });
    this.element = h("div", { class: "map-box" }, this.#canvas, this.#tip, this.#voice);
    for (const name of STATE_NAMES) this.#shapes.set(name, new Path2D(stateOf(name).shape));
  }

  /** Begin to draw, and follow the width of the place and the colour scheme. */
  attach() {
    const resize = new ResizeObserver(() => {
      if (Math.floor(this.element.clientWidth) !== this.#plan?.width) this.#layOut();
    });
    resize.observe(this.element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => this.#later();
    scheme.addEventListener("change", repaint);
    this.#watchers = [() => resize.disconnect(), () => scheme.removeEventListener("change", repaint)];
    this.#layOut();
  }

  detach() {
    cancelAnimationFrame(this.#frame);
    for (const stop of this.#watchers) stop();
  }

  /** Show these racks; hosts that `admits` says no to are dimmed and skipped. */
  show(racks, admits) {
    this.#racks = racks;
    this.#admits = admits;
    this.#layOut();
  }

  /** Draw attention to hosts that have just changed. */
  pulse(names) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const name of [...names].slice(0, PULSES_MAX)) this.#pulses.set(name, performance.now() + PULSE_MS);
  }

  #layOut() {
    const width = Math.floor(this.element.clientWidth);
    if (width === 0) return;
    const at = this.#plan?.cells[this.#cursor]?.host.name;
    const fit = Math.max(240, innerHeight - this.element.getBoundingClientRect().top - scrollY - 24);
    this.#plan = layOut(this.#racks, width, fit);
    this.#cursor = at === undefined ? -1 : this.#plan.cells.findIndex((cell) => cell.host.name === at);
    const scale = devicePixelRatio || 1;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(this.#plan.height * scale);
    this.#canvas.style.setProperty("height", `${this.#plan.height}px`);
    this.#paint();
  }

  #later() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#paint());
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────────────────────────

  #paint() {
    const scale = devicePixelRatio || 1;
    const c = this.#context;
    const style = getComputedStyle(this.#canvas);
    const token = (name) => style.getPropertyValue(name).trim();
    this.#colours = {
      ink: token("--ink"),
      muted: token("--muted"),
      mark: token("--on-state"),
      focus: token("--accent"),
    };
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, this.#plan.width, this.#plan.height);
    this.#labels(c);
    for (const name of new Set(this.#plan.cells.map((cell) => cell.host.state))) {
      const colour = token(`--state-${STATE_NAMES.includes(name) ? name : "unknown"}`);
      this.#cells(c, name, colour, scale);
    }
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.globalAlpha = 1;
    this.#rings(c);
    performance.mark("fleetd:map-drawn");
  }

  #labels(c) {
    c.textBaseline = "alphabetic";
    for (const pool of this.#plan.pools) {
      c.fillStyle = this.#colours.ink;
      c.font = "600 13px system-ui, sans-serif";
      const name = visible(pool.name ?? "no pool");
      c.fillText(name, 0, pool.y + 17);
      const after = c.measureText(name).width + 10;
      c.fillStyle = this.#colours.muted;
      c.font = "12px system-ui, sans-serif";
      c.fillText(plural(pool.hosts, "host"), after, pool.y + 17);
    }
    c.font = "10px system-ui, sans-serif";
    for (const rack of this.#plan.racks)
      c.fillText(fitted(c, visible(rack.name ?? "no rack"), rack.w), rack.x, rack.y + 9);
  }

  #cells(c, name, colour, scale) {
    const { cell: size } = this.#plan;
    const word = stateOf(name);
    const shape = this.#shapes.get(name) ?? new Path2D(word.shape);
    const unit = size / 10;
    c.lineWidth = Math.max(1.3, 1.1 / unit);
    c.lineCap = "round";
    for (const { host, x, y } of this.#plan.cells) {
      if (host.state !== name) continue;
      c.setTransform(scale * unit, 0, 0, scale * unit, scale * x, scale * y);
      c.globalAlpha = this.#admits(host) ? 1 : 0.13;
      c.fillStyle = c.strokeStyle = colour;
      const hollow = word.hollow || host.flags & FLAG.away;
      if (hollow) c.strokeRect(0.8, 0.8, 8.4, 8.4);
      else c.fillRect(0, 0, 10, 10);
      if (!hollow) c.fillStyle = c.strokeStyle = this.#colours.mark;
      if (word.fill) c.fill(shape);
      else if (word.shape) c.stroke(shape);
      if (host.flags & FLAG.withheld) {
        c.fillStyle = this.#colours.ink;
        c.fill(CORNER);
      }
    }
  }

  #rings(c) {
    const now = performance.now();
    const size = this.#plan.cell;
    c.lineWidth = 2;
    c.strokeStyle = this.#colours.ink;
    if (this.#pulses.size > 0) {
      for (const { host, x, y } of this.#plan.cells) {
        const left = (this.#pulses.get(host.name) ?? 0) - now;
        if (left <= 0) continue;
        const out = 2 + 7 * (1 - left / PULSE_MS);
        c.globalAlpha = left / PULSE_MS;
        c.strokeRect(x - out, y - out, size + 2 * out, size + 2 * out);
      }
      for (const [name, until] of this.#pulses) if (until <= now) this.#pulses.delete(name);
      if (this.#pulses.size > 0) this.#later();
    }
    c.globalAlpha = 1;
    const at = this.#plan.cells[this.#cursor];
    if (at && document.activeElement === this.#canvas) {
      c.strokeStyle = this.#colours.focus;
      c.strokeRect(at.x - 2, at.y - 2, size + 4, size + 4);
    }
  }

  // ── pointing and moving ────────────────────────────────────────────────────────────────────────────────────────

  #at(event) {
    const box = this.#canvas.getBoundingClientRect();
    return cellAt(this.#plan, event.clientX - box.left, event.clientY - box.top);
  }

  #hover(event) {
    const cell = this.#at(event);
    this.#canvas.classList.toggle("over", cell !== null);
    if (cell === null) this.#hideTip();
    else this.#showTip(cell);
  }

  #click(event) {
    const cell = this.#at(event);
    if (cell !== null) this.#open(cell.host);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.#plan === null) return;
    if (event.key === "Enter" && this.#plan.cells[this.#cursor]) {
      event.preventDefault();
      this.#open(this.#plan.cells[this.#cursor].host);
    } else if (event.key === "Escape") {
      this.#hideTip();
    } else if (MOVES.has(event.key) && this.#plan.cells.length > 0) {
      event.preventDefault();
      const admits = (cell) => this.#admits(cell.host);
      this.#moveTo(step(this.#plan, Math.max(0, this.#cursor), event.key, admits));
    }
  }

  /** The keyboard arrives: at a host of the queue, if there is one. */
  #focused() {
    if (this.#cursor < 0) {
      const admitted = (cell) => this.#admits(cell.host);
      const first = this.#plan?.cells.findIndex((cell) => admitted(cell) && isQueued(cell.host)) ?? -1;
      this.#cursor = first >= 0 ? first : (this.#plan?.cells.findIndex(admitted) ?? -1);
    }
    this.#moveTo(this.#cursor);
  }

  #moveTo(index) {
    const cell = this.#plan?.cells[index];
    if (!cell) return;
    this.#cursor = index;
    this.#voice.textContent = sentence(cell.host);
    this.#showTip(cell);
    this.#keepInView(cell);
    this.#later();
  }

  #keepInView(cell) {
    const y = this.#canvas.getBoundingClientRect().top + cell.y;
    if (y < 90) scrollBy({ top: y - 120 });
    else if (y > innerHeight - 60) scrollBy({ top: y - innerHeight + 120 });
  }

  #showTip(cell) {
    this.#tip.textContent = sentence(cell.host);
    this.#tip.hidden = false;
    const left = Math.min(cell.x, Math.max(0, this.#plan.width - this.#tip.offsetWidth));
    this.#tip.style.setProperty("left", `${left}px`);
    this.#tip.style.setProperty("top", `${cell.y + this.#plan.cell + 8}px`);
  }

  #hideTip() {
    this.#tip.hidden = true;
  }
}

/** The end of a name that fits: names of racks differ at their end. */
function fitted(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let tail = text;
  while (tail.length > 1 && c.measureText(`…${tail}`).width > width) tail = tail.slice(1);
  return `…${tail}`;
}
