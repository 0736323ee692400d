/** The way to the controller: requests, answers with their ETags, errors as one clear line. */

import { learnClock } from "./format.js";

/** The server said no, or could not be reached. The message is for people: what, where, what to do. */
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.name = "Failure";
    /** HTTP status; 0: no answer. */
    this.status = status;
  }
}

const TIMEOUT_MS = 20_000;
const REMEMBERED = 64;

/** What a change by cookie must show; null: this page has no session of its own. */
let csrf = null;
let onLogout = () => {};
/** Answers by address with their ETag, the least recently used first; the controller answers 304 to what is known. */
const remembered = new Map();

/** Call this when a session has ended. */
export function whenLoggedOut(handler) {
  onLogout = handler;
}

/** Read from the API. An answer that has not changed since is the same object. */
export async function get(path, query = {}) {
  const address = `/api/v1${path}${search(query)}`;
  const before = remembered.get(address);
  const response = await ask(address, { headers: before ? { "If-None-Match": before.etag } : {} });
  if (response.status === 304 && before) {
    remember(address, before);
    return before.body;
  }
  const body = await read(response);
  const etag = response.headers.get("ETag");
  if (etag !== null) remember(address, { etag, body });
  return body;
}

/**
 * Change something. Every change carries its reason in the body; with a version, it is refused (412) when the host is
 * not any more as it was seen.
 */
export async function post(path, body = {}, version = null) {
  return read(await change(path, body, version === null ? {} : { "If-Match": `"${version}"` }));
}

/** Who is asking: {name, role}; a Failure with status 401 for a stranger. */
export async function me() {
  return admit(await get("/session"));
}

/** Begin a session with a token, which is sent once and kept nowhere in the page. */
export async function login(token) {
  const answer = await change("/session", { token });
  return admit(await read(answer, { stranger: () => {} })); // a wrong token ends no session
}

/** End the session. */
export async function logout() {
  await read(await ask("/api/v1/session", { method: "DELETE", headers: ownHeaders() }));
  forget();
}

/** A part of a path, whatever a name is made of. */
export const part = (name) => encodeURIComponent(name);

const ownHeaders = () => (csrf === null ? {} : { "X-Fleetd-CSRF": csrf });

function admit(identity) {
  csrf = identity.csrf ?? null;
  return identity;
}

function forget() {
  csrf = null;
  remembered.clear();
  onLogout();
}

function remember(address, answer) {
  remembered.delete(address);
  remembered.set(address, answer);
  if (remembered.size > REMEMBERED) remembered.delete(remembered.keys().next().value);
}

/** A list stands for the same parameter several times. */
function search(query) {
  const given = Object.entries(query)
    .flatMap(([name, value]) => [value].flat().map((one) => [name, one]))
    .filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function ask(address, options) {
  try {
    const response = await fetch(address, {
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(TIMEOUT_MS),
      ...options,
    });
    learnClock(Date.parse(response.headers.get("Date")) / 1000);
    return response;
  } catch (error) {
    if (error instanceof TypeError || error.name === "TimeoutError") {
      const what = error.name === "TimeoutError" ? `did not answer within ${TIMEOUT_MS / 1000} s` : "cannot be reached";
      throw new Failure(0, `the controller ${what}; nothing here is newer than what is shown`);
    }
    throw error;
  }
}

function change(path, body, more = {}) {
  const headers = { "Content-Type": "application/json", ...ownHeaders(), ...more };
  return ask(`/api/v1${path}`, { method: "POST", headers, body: JSON.stringify(body) });
}

async function read(response, { stranger = forget } = {}) {
  if (response.status === 204) return {};
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  if (response.status === 401) stranger();
  const said = typeof body?.error === "string" ? body.error : `the controller answered ${response.status}`;
  throw new Failure(response.status, said);
}
