/**
 * Keeping up: server-sent events, and polling while they do not come. A change brings the rows of its hosts; when there
 * are too many of them, or after a stream that was away for too long, the map is loaded again.
 */

import { Failure } from "./api.js";

const POLL_MS = 10_000;
const RELOAD_MS = 2000;

/** How the page keeps up: in words for the header. */
export const MODES = {
  connecting: "connecting",
  live: "live",
  polling: "polling every 10 s",
  lost: "no answer from the controller",
};

export class Live {
  #fleet;
  #tell;
  #source = null;
  #poll = null;
  #reload = null;
  #loading = false;
  #overtaken = false;
  #mode = null;

  /** `tell(mode)` is called when the way of keeping up changes. */
  constructor(fleet, tell) {
    this.#fleet = fleet;
    this.#tell = tell;
  }

  start() {
    this.stop();
    this.#set("connecting");
    document.addEventListener("visibilitychange", this.#seen);
    this.#listen();
    this.#poll = setInterval(() => this.#tick(), POLL_MS);
  }

  stop() {
    document.removeEventListener("visibilitychange", this.#seen);
    this.#source?.close();
    this.#source = null;
    clearInterval(this.#poll);
    clearTimeout(this.#reload);
    this.#reload = null;
  }

  /** A page that nobody sees gives its stream up: a browser has six connections to a controller, for all its tabs. */
  #seen = () => {
    if (document.hidden) this.#source?.close();
    else this.#listen();
  };

  #listen() {
    this.#source?.close();
    const source = new EventSource("/api/v1/events");
    this.#source = source;
    source.addEventListener("open", () => this.#set("live"));
    source.addEventListener("hello", (event) => {
      if (JSON.parse(event.data).position !== this.#fleet.position) this.#soon();
    });
    source.addEventListener("change", (event) => this.#take(event.data));
    source.addEventListener("reload", () => this.#soon());
    source.addEventListener("error", () => this.#set("polling"));
  }

  #take(text) {
    if (this.#fleet.position === null) return; // the map is on its way, and newer
    this.#overtaken = this.#loading;
    this.#fleet.apply(JSON.parse(text));
  }

  /** Load the map once for however many reasons come together. */
  #soon() {
    this.#reload ??= setTimeout(() => {
      this.#reload = null;
      this.refresh();
    }, RELOAD_MS);
  }

  #tick() {
    if (this.#mode === "live" || document.hidden) return;
    this.refresh();
    if (this.#source?.readyState === EventSource.CLOSED) this.#listen();
  }

  /** Load the map now. An answer that changes have overtaken may be older than they are: it is asked for again. */
  async refresh() {
    this.#loading = true;
    this.#overtaken = false;
    try {
      await this.#fleet.load();
      if (this.#mode === "lost") this.#set("polling");
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.status !== 401) this.#set("lost");
    } finally {
      this.#loading = false;
    }
    if (this.#overtaken) this.#soon();
  }

  #set(mode) {
    if (mode === this.#mode) return;
    this.#mode = mode;
    this.#tell(mode);
  }
}
