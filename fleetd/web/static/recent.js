/** The newest facts of the journal, which the API gives in their order: asked for by spans of time that grow. */

import { get } from "./api.js";
import { now } from "./format.js";

const SPANS_S = [120, 3600, 86_400, 30 * 86_400];
const PAGE = 500;
const PAGES_MAX = 10;

/** The newest facts, newest first: so many, or all of the longest span. */
export async function newestFacts(number, query = {}) {
  let found = [];
  for (const span of SPANS_S) {
    found = await within(span, query);
    if (found.length >= number) break;
  }
  return found.slice(-number).reverse();
}

/** All facts of the last seconds, oldest first; of very many the oldest are left out. */
async function within(seconds, query) {
  const asked = { people: false, ...query, since: Math.max(0, Math.floor(now() - seconds)), limit: PAGE };
  let kept = [];
  let after = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { facts, more } = await get("/facts", { ...asked, after });
    kept = [...kept, ...facts].slice(-PAGE);
    if (!more) break;
    after = facts.at(-1).position;
  }
  return kept;
}
