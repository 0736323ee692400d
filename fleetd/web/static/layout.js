/** Where each host stands on the map: pure geometry, in CSS pixels. */

const LABEL = 13;
const POOL_HEAD = 26;
const RACK_GAP = 8;
const MIN_RACK = 40;
const BIG_RACK = 64;
const PITCHES = [30, 24, 20, 16, 14, 12, 11, 10, 9];

/**
 * Lay racks out in lines, pool under pool.
 *
 * @param {Array<{name: ?string, pool: ?string, hosts: Array}>} racks in order, those of a pool together
 * @param {number} width of the map
 * @param {number} fit height into which everything should fit if cells need not become smaller than 9 px for it
 * @returns {{pitch, cell, width, height, pools: Array, racks: Array, cells: Array}} a cell has x, y and host;
 *   the cells stand in reading order
 */
export function layOut(racks, width, fit) {
  let plan = null;
  for (const pitch of PITCHES) {
    plan = attempt(racks, width, pitch);
    if (plan.height <= fit) break;
  }
  return plan;
}

function attempt(racks, width, pitch) {
  const plan = { pitch, cell: pitch - (pitch > 12 ? 2 : 1), width, height: 0, pools: [], racks: [], cells: [] };
  let y = 0;
  for (const pool of poolsOf(racks)) {
    plan.pools.push({ name: pool.name, y, hosts: pool.hosts });
    y = lines(plan, pool.racks, y + POOL_HEAD) + RACK_GAP;
  }
  plan.height = y;
  return plan;
}

/** Fill lines with the racks of one pool; returns where the last one ends. */
function lines(plan, racks, top) {
  const { pitch, width } = plan;
  const columns = Math.max(columnsOf(racks, pitch), 1);
  let x = 0;
  let y = top;
  let tallest = 0;
  for (const rack of racks) {
    const wide = rack.name === null || rack.hosts.length > BIG_RACK;
    const across = wide ? Math.max(1, Math.floor(width / pitch)) : columns;
    const w = Math.max(MIN_RACK, Math.min(across, wide ? rack.hosts.length : across) * pitch);
    const h = LABEL + Math.ceil(rack.hosts.length / across) * pitch;
    if (x > 0 && x + w > width) {
      x = 0;
      y += tallest + RACK_GAP;
      tallest = 0;
    }
    place(plan, rack, { x, y, w, h, across });
    x += w + RACK_GAP;
    tallest = Math.max(tallest, h);
  }
  return y + tallest;
}

function place(plan, rack, { x, y, w, h, across }) {
  plan.racks.push({ name: rack.name, x, y, w, h });
  rack.hosts.forEach((host, index) => {
    plan.cells.push({
      host,
      x: x + (index % across) * plan.pitch,
      y: y + LABEL + Math.floor(index / across) * plan.pitch,
    });
  });
}

/** Columns of all racks of a pool: about square, and wide enough for a name. */
function columnsOf(racks, pitch) {
  const sizes = racks.filter((rack) => rack.name !== null).map((rack) => Math.min(rack.hosts.length, BIG_RACK));
  return Math.max(Math.ceil(Math.sqrt(Math.max(0, ...sizes))), Math.floor(MIN_RACK / pitch));
}

function poolsOf(racks) {
  const found = [];
  for (const rack of racks) {
    if (found.at(-1)?.name !== rack.pool || found.length === 0) found.push({ name: rack.pool, racks: [], hosts: 0 });
    found.at(-1).racks.push(rack);
    found.at(-1).hosts += rack.hosts.length;
  }
  return found;
}

/** The cell at a point, or null. */
export function cellAt(plan, x, y) {
  return plan.cells.find((c) => x >= c.x && x < c.x + plan.pitch && y >= c.y && y < c.y + plan.pitch) ?? null;
}

/**
 * Where an arrow leads: left and right along the reading order, up and down to the nearest cell of another line.
 * `admits(cell)` leaves out what a filter hides. Returns an index, the same one where there is no further.
 */
export function step(plan, from, key, admits) {
  const { cells } = plan;
  if (key === "Home") return cells.findIndex(admits);
  if (key === "End") return cells.findLastIndex(admits);
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const by = key === "ArrowLeft" ? -1 : 1;
    for (let i = from + by; i >= 0 && i < cells.length; i += by) if (admits(cells[i])) return i;
    return from;
  }
  const down = key === "ArrowDown" || key === "PageDown";
  const far = key.startsWith("Page") ? 10 * plan.pitch : 0;
  return nearest(plan, from, { down, far, admits });
}

function nearest({ cells }, from, { down, far, admits }) {
  const here = cells[from];
  let best = from;
  let cost = Infinity;
  cells.forEach((cell, index) => {
    const dy = (cell.y - here.y) * (down ? 1 : -1);
    if (dy <= 0 || dy < far || !admits(cell)) return;
    const found = dy + 2 * Math.abs(cell.x - here.x);
    if (found < cost) [best, cost] = [index, found];
  });
  return best;
}
