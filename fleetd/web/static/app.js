/** The page: who is asking, which view, what is live. Everything else is in the views. */

import { Failure, get, logout, me, whenLoggedOut } from "./api.js";
import { h, swap, visible } from "./dom.js";
import { Fleet } from "./fleet.js";
import { age, count, plural, refreshAges } from "./format.js";
import { listen, showKeys } from "./keys.js";
import { Live, MODES } from "./live.js";
import { showLogin } from "./login.js";
import { areaWords, automationView } from "./view_automation.js";
import { auditView } from "./view_audit.js";
import { fleetView } from "./view_fleet.js";
import { hostView } from "./view_host.js";
import { policyView } from "./view_policy.js";
import { powerView } from "./view_power.js";
import { queueView } from "./view_queue.js";
import { stateOf } from "./words.js";

const VIEWS = {
  fleet: { view: fleetView, title: "Fleet" },
  host: { view: hostView, title: "Host" },
  queue: { view: queueView, title: "Queue" },
  automation: { view: automationView, title: "Automation" },
  policy: { view: policyView, title: "Policy" },
  power: { view: powerView, title: "Power" },
  audit: { view: auditView, title: "Audit" },
};
const SAY_MS = 8000;
const TELL_MS = 3000;
const TOLD = 3;

const place = document.getElementById("view");
const fleet = new Fleet();
const live = new Live(fleet, showMode);
const ctx = { fleet, identity: null, say, refresh, go };
let current = null;
let opened = false;

/** Go to a place of the page. */
function go(hash) {
  if (location.hash === hash) open();
  else location.hash = hash;
}

/** Say something to everybody: on the screen for a while, and read out. */
function say(text) {
  const toast = h("p", { class: "toast" }, text);
  document.getElementById("toasts").append(toast);
  setTimeout(() => toast.remove(), SAY_MS);
}

/** Load what is shown again, after a change that this page made. */
function refresh() {
  live.refresh();
  current?.refresh?.();
  showFleetState();
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const params = Object.fromEntries(new URLSearchParams(query));
  if (name === "host" && rest.length > 0) params.name = decode(rest.join("/"));
  return { name: name in VIEWS && (name !== "host" || params.name) ? name : "fleet", params };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) return text;
    throw error;
  }
}

function open() {
  if (ctx.identity === null && fleet.position === null) return; // the login is open
  const { name, params } = route();
  current?.unmount();
  place.dataset.place = location.hash;
  current = VIEWS[name].view(place, ctx, params);
  document.title = `${name === "host" ? params.name : VIEWS[name].title} · fleetd`;
  for (const link of document.querySelectorAll("#places a")) {
    const here = link.getAttribute("href") === `#/${name}` || (name === "host" && link.hash === "#/fleet");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (opened) {
    place.querySelector("h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  opened = true;
}

// ── what is always in sight ──────────────────────────────────────────────────────────────────────────────────────

function showMode(mode) {
  const line = document.getElementById("live");
  line.dataset.mode = mode;
  line.textContent = MODES[mode];
}

function showIdentity(identity) {
  ctx.identity = identity;
  swap(
    document.getElementById("who"),
    h("span", { class: "role" }, identity.name, " · ", identity.role),
    identity.csrf && h("button", { type: "button", on: { click: () => logout().catch(tell) } }, "Log out"),
  );
}

/** The kill switch, tripped budgets and incidents stand above every view. */
async function showFleetState() {
  try {
    const state = await get("/fleet");
    const lines = [];
    if (state.stopped) {
      lines.push(
        h(
          "p",
          { class: "stop" },
          h("b", {}, "Automation is stopped"),
          ` by ${state.stopped.who}, `,
          age(state.stopped.at_s),
          `: ${state.stopped.reason}`,
        ),
      );
    }
    if (state.tripped.length > 0) {
      const areas = state.tripped
        .map((trip) => areaWords(trip.key))
        .slice(0, 4)
        .join(", ");
      lines.push(
        h("p", {}, h("b", {}, plural(state.tripped.length, "tripped budget")), `: ${areas}; quarantines are withheld`),
      );
    }
    if (state.incidents.length > 0) {
      const [first] = state.incidents;
      lines.push(h("p", {}, h("b", {}, plural(state.incidents.length, "open incident")), `: ${first.why}`));
    }
    const banner = document.getElementById("banner");
    banner.hidden = lines.length === 0;
    swap(banner, lines, lines.length > 0 && h("a", { href: "#/automation" }, "Automation"));
  } catch (error) {
    tell(error);
  }
}

function showQueueSize() {
  const number = fleet.queued();
  document.getElementById("queue-size").textContent = number > 0 ? count(number) : "";
}

/** Failures of the background are said once where they happen; a stranger sees the login instead. */
function tell(error) {
  if (!(error instanceof Failure)) throw error;
  if (error.status !== 401) say(error.message);
}

let untold = [];
let telling = null;

/** Say changes to those who hear the page: some by name, many by number, and not too often. */
function voice(change) {
  if (change.first) return;
  untold.push(...change.rows.filter(({ before, after }) => after && before?.state !== after.state));
  telling ??= setTimeout(() => {
    telling = null;
    const names = untold.slice(-TOLD).map(({ after }) => `${after.name} ${stateOf(after.state).label}`);
    const others = untold.length - names.length;
    untold = [];
    if (names.length > 0) {
      const more = others > 0 ? `, and ${plural(others, "other change")}` : "";
      document.getElementById("voice").textContent = visible(names.join(", ") + more);
    }
  }, TELL_MS);
}

// ── beginning ────────────────────────────────────────────────────────────────────────────────────────────────────

fleet.addEventListener("change", ({ detail }) => {
  current?.update(detail);
  showQueueSize();
  voice(detail);
  if (detail.fleet) showFleetState();
});

function welcome(identity) {
  showIdentity(identity);
  document.body.classList.remove("stranger");
  live.start();
  open();
}

whenLoggedOut(() => {
  if (document.body.classList.contains("stranger")) return; // several requests are told at once; the form stays
  live.stop();
  current?.unmount();
  current = null;
  ctx.identity = null;
  fleet.clear();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  document.body.classList.add("stranger");
  document.getElementById("banner").hidden = true;
  showLogin(place, async (identity) => {
    await fleet.load();
    welcome(identity);
  });
});

document.getElementById("help").addEventListener("click", showKeys);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its address is for readers without a script: hashes are places of this page
  place.focus();
});
addEventListener("hashchange", open);
setInterval(refreshAges, 15_000);
listen();

/** The map is asked for at once, together with who is asking: the first picture needs nothing else. */
async function begin() {
  try {
    const [identity] = await Promise.all([me(), fleet.load()]);
    welcome(identity);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    if (error.status === 401) return;
    place.replaceChildren(
      h("h1", { tabindex: "-1" }, "fleetd"),
      h("p", { class: "refused", role: "alert" }, error.message),
    );
    setTimeout(begin, 5000);
  }
}

begin();
