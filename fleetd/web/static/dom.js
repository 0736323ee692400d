/**
 * Building elements. A child that is no element becomes a text node, so nothing that a server says is ever markup;
 * there is no innerHTML in this page.
 */

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties and children; `null`, `undefined` and `false` children are left out. */
export function h(tag, props = {}, ...children) {
  return dress(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), props, children);
}

function dress(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (name === "style") {
      for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    } else if (name === "href") {
      node.setAttribute("href", inPage(value));
    } else if (name === "value" || name === "checked" || name === "selected") {
      node[name] = value;
    } else {
      node.setAttribute(name, value === true ? "" : visible(value));
    }
  }
  const given = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  node.append(...given.map((child) => (child instanceof Node ? child : visible(child))));
  return node;
}

/**
 * A text in which every character shows: those that turn the writing round, take no room or control terminals can make
 * a reason look like another one. They appear as their number.
 */
export function visible(text) {
  return String(text).replace(
    /[\p{Cc}\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu,
    (sign) => `\u27e8U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`,
  );
}

/** Links lead to places of this page only: a text from outside cannot become a `javascript:` link. */
function inPage(href) {
  if (!/^(#|\/(?!\/))/.test(href)) throw new Error(`a link leads into this page, not to ${href}`);
  return href;
}

/** The address of a host's page. */
export const hostHref = (name) => `#/host/${encodeURIComponent(name)}`;

/** A link to a host's page. */
export const hostLink = (name) => h("a", { href: hostHref(name), class: "host-name", title: name }, name);

const FIELDS = "input[id]:not([type=checkbox]), select[id], textarea[id]";

/**
 * Put new children into a place without taking anything from the reader: the focus, what was typed, opened details and
 * scroll positions stay with the elements of the same `data-key` or id.
 */
export function swap(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const active = focused && keyOf(focused);
  const caret = focused?.selectionStart ?? null;
  const typed = new Map([...place.querySelectorAll(FIELDS)].map((field) => [field.id, field.value]));
  const open = new Map([...place.querySelectorAll("details[data-key]")].map((d) => [d.dataset.key, d.open]));
  const scrolled = new Map(
    [...place.querySelectorAll("[data-scroll]")].map((d) => [d.dataset.scroll, [d.scrollLeft, d.scrollTop]]),
  );
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const details of place.querySelectorAll("details[data-key]")) {
    if (open.has(details.dataset.key)) details.open = open.get(details.dataset.key);
  }
  for (const box of place.querySelectorAll("[data-scroll]")) {
    const [left, top] = scrolled.get(box.dataset.scroll) ?? [0, 0];
    box.scrollLeft = left;
    box.scrollTop = top;
  }
  for (const field of place.querySelectorAll(FIELDS)) field.value = typed.get(field.id) ?? field.value;
  if (active !== null) {
    const again = [...place.querySelectorAll("[data-key], [href], [id]")].find((node) => keyOf(node) === active);
    again?.focus({ preventScroll: true });
    if (caret !== null) again?.setSelectionRange?.(caret, caret);
  }
}

function keyOf(node) {
  return node.dataset?.key ?? node.getAttribute("href") ?? (node.id || null);
}

/** A section with a heading. */
export function section(title, { level = 2, note = null, tools = [], ...props } = {}, ...children) {
  return h(
    "section",
    props,
    h("div", { class: "section-head" }, h(`h${level}`, {}, title), note && h("p", { class: "note" }, note), tools),
    ...children,
  );
}

/** A table; a heading is a text or [text, class], and one in brackets is told but not shown. */
export function table(caption, headings, rows, props = {}) {
  return h(
    "div",
    { class: "table-box", tabindex: "0", role: "region", "aria-label": caption, "data-scroll": caption },
    h(
      "table",
      props,
      h("caption", { class: "hidden" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          headings.map((heading) => {
            const [text, name] = Array.isArray(heading) ? heading : [heading, null];
            // A heading that is told only: its column explains itself to those who see it.
            const told = text.startsWith("(") ? h("span", { class: "hidden" }, text.slice(1, -1)) : text;
            return h("th", { scope: "col", class: name }, told);
          }),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
}

/** A text from the controller, its `names` set as such. */
export function prose(text) {
  return String(text)
    .split(/`([^`]+)`/)
    .map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

/** What a list shows when there is nothing in it. */
export const nothing = (text) => h("p", { class: "nothing" }, text);
