// Small pictures of steps: principal components as colours, where attention goes, the best class of each place, boxes, a mask.
import {colour, element} from "../templates/viewer.js";
import {signed} from "./matrices.js";

const WIDE = 220; // pixels of a picture

// By iteration on products, without the matrix of covariances; rows are of mean 0 and length 1, so that only directions count.
export function normal(row) {
  const mean = row.reduce((a, b) => a + b, 0) / row.length;
  const size = Math.sqrt(row.reduce((s, v) => s + (v - mean) ** 2, 0)) || 1;
  return row.map(v => (v - mean) / size);
}
const dot = (a, b, mean) => { let s = 0; for (let i = 0; i < a.length; i++) s += (a[i] - mean[i]) * b[i]; return s; };
export function principal(rows) {
  const d = rows[0].length, mean = new Float32Array(d), axes = [], spread = [];
  for (const row of rows) for (let i = 0; i < d; i++) mean[i] += row[i] / rows.length;
  for (let k = 0; k < 3; k++) {
    let axis = Float32Array.from({length: d}, (_, i) => Math.sin((i + 1) * (k + 2) * 1.7));
    for (let round = 0; round < 12; round++) {
      const next = new Float32Array(d);
      for (const row of rows) {
        const s = dot(row, axis, mean);
        for (let i = 0; i < d; i++) next[i] += s * (row[i] - mean[i]);
      }
      for (const other of axes) { const s = next.reduce((t, v, i) => t + v * other[i], 0); for (let i = 0; i < d; i++) next[i] -= s * other[i]; }
      const size = Math.sqrt(next.reduce((s, v) => s + v * v, 0)) || 1;
      axis = next.map(v => v / size);
    }
    axes.push(axis);
    spread.push(Math.sqrt(rows.reduce((s, row) => s + dot(row, axis, mean) ** 2, 0) / rows.length) || 1);
  }
  return {mean, axes, spread};
}
export const inkOf = (row, {mean, axes, spread}) =>
  axes.map((axis, k) => Math.max(0, Math.min(255, 127.5 + 80 * dot(row, axis, mean) / spread[k])));

// Fitted once for all blocks, with the first image, so that colours do not jump.
let shared = null;
export async function sharedBasis(engine, about) {
  if (!shared && about.blocks.length) {
    const found = await engine.get(...about.blocks);
    shared = principal(found.flatMap(({dims: [, n, d], data}) =>
      Array.from({length: n - about.prefix}, (_, r) => normal(data.slice((r + about.prefix) * d, (r + about.prefix + 1) * d)))));
  }
  return shared;
}

export function picture(pixels, [c, h, w]) { // (c, h, w) from 0 to 255
  const canvas = element("canvas", {width: w, height: h}), context = canvas.getContext("2d"), made = context.createImageData(w, h), n = w * h;
  for (let i = 0; i < n; i++) made.data.set([0, 1, 2].map(k => pixels[(c === 3 ? k : 0) * n + i]).concat(255), 4 * i);
  context.putImageData(made, 0, 0);
  return canvas;
}
function drawn(h, w, inkAt, over = null, under = null) { // (h, w) cells, each filled with a colour
  const size = Math.max(1, Math.floor(WIDE / Math.max(h, w))), canvas = element("canvas", {width: w * size, height: h * size});
  const context = canvas.getContext("2d");
  if (under) { context.imageSmoothingEnabled = false; context.drawImage(under, 0, 0, canvas.width, canvas.height); }
  for (let r = 0; r < h; r++) for (let c = 0; c < w; c++) { context.fillStyle = inkAt(r * w + c); context.fillRect(c * size, r * size, size, size); }
  over?.(context, size);
  return canvas;
}
function map(values, [h, w], mark = null, under = null) {
  const most = values.reduce((a, b) => Math.max(a, b), 1e-12);
  return drawn(h, w, i => under ? colour(values[i] / most) : colour(values[i] / most).replace(/[^,]+\)$/, "1)"), mark === null ? null : (context, size) => {
    context.strokeStyle = "#ffd400"; context.lineWidth = Math.max(1, size / 8);
    context.strokeRect(mark % w * size, Math.floor(mark / w) * size, size, size);
  }, under);
}
function signedMap(values, [h, w], mark) { // red above zero, blue below
  const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-12);
  return drawn(h, w, i => `rgb(${signed(values[i] / most).map(Math.round)})`, mark < 0 ? null : (context, size) => {
    context.strokeStyle = "#000"; context.lineWidth = Math.max(1, size / 10);
    context.strokeRect(mark % w * size, Math.floor(mark / w) * size, size, size);
  });
}

// Of one step: [[canvas, what it shows], …].
export const PICTURES = {
  async colours({matrix, step}, steps) {
    const {about} = steps, {map, heads, rows, columns} = matrix, {grid, before} = steps.set(step, matrix) ?? {};
    const [h, w] = map ? [rows, columns] : grid ?? [0, 0], skip = map ? 0 : before?.length ?? 0, d = map ? heads : columns;
    if (h * w < 2 || h * w > 4096) return [];
    const all = Array.from({length: h * w}, (_, i) => normal(Float32Array.from({length: d}, (_, k) => map ? matrix.at(k, Math.floor(i / w), i % w) : matrix.at(0, i + skip, k))));
    const block = about.outputs[about.blocks[0]], common = !map && block?.[2] === d ? await sharedBasis(steps.engine, about) : null;
    const basis = common ?? principal(all);
    return [[drawn(h, w, i => `rgb(${inkOf(all[i], basis).map(Math.round)})`), steps.say(common ? "coloursShared" : "coloursOwn")]];
  },
  async attention(card, steps) {
    const {matrix, step} = card, {grid, before} = steps.set(step, matrix, "columns") ?? {};
    if (!grid || !grid[0]) return [];
    const n = grid[0] * grid[1], skip = before.length, {heads, rows} = matrix, all = new Float32Array(n), one = new Float32Array(n), row = card.chosen[0];
    for (let h = 0; h < heads; h++) for (let r = 0; r < rows; r++) for (let i = 0; i < n; i++) {
      const share = matrix.at(h, r, i + skip);
      all[i] += share;
      if (r === row && h === card.head) one[i] = share;
    }
    const self = steps.setName(step, matrix) === steps.setName(step, matrix, "columns") && row >= skip ? row - skip : null;
    const own = [map(one, grid, self, picture(steps.engine.seen ?? steps.engine.pixels, steps.about.input)), steps.say("attendedByRow", steps.rowName(card, matrix, row) || steps.say("theImage"), steps.say("head", card.head + 1))];
    return rows === 1 ? [own] : [own, [map(all, grid), steps.say("attendedByAll")]];
  },
  async alike({matrix, step, chosen: [row]}, steps) { // cosines between the rows of a table
    const {grid, before} = steps.set(step, matrix) ?? {};
    if (!grid) return [];
    const rowOf = r => Float32Array.from({length: matrix.columns}, (_, k) => matrix.at(0, r, k)), size = v => Math.sqrt(v.reduce((s, x) => s + x * x, 0)) || 1;
    const own = rowOf(row), skip = before.length;
    const values = Float32Array.from({length: grid[0] * grid[1]}, (_, i) => { const other = rowOf(i + skip); return own.reduce((s, x, k) => s + x * other[k], 0) / (size(own) * size(other)); });
    return [[signedMap(values, grid, row - skip), steps.say("alikeRow", steps.rowName({step}, matrix, row))]];
  },
  async row({matrix, step, chosen: [row], head}, steps) { // the chosen row, on the grid
    const {grid, before} = steps.set(step, matrix, "columns") ?? {};
    if (!grid) return [];
    const values = Float32Array.from({length: grid[0] * grid[1]}, (_, i) => matrix.at(head, row, i + before.length));
    return [[signedMap(values, grid, row - before.length), steps.say("rowOnGrid", steps.rowName({step}, matrix, row), steps.say("head", head + 1))]];
  },
  async classes({matrix}, steps) {
    const {heads, rows, columns, at} = matrix, found = new Set();
    const best = Int32Array.from({length: rows * columns}, (_, i) => {
      let most = 0;
      for (let k = 1; k < heads; k++) if (at(k, Math.floor(i / columns), i % columns) > at(most, Math.floor(i / columns), i % columns)) most = k;
      found.add(most);
      return most;
    });
    const names = [...found].map(i => steps.about.labels[i] ?? String(i)).slice(0, 6).join(steps.say("comma"));
    return [[drawn(rows, columns, i => steps.about.colours[best[i]]), steps.say("bestClasses", names)]];
  },
  async boxes(card, steps) {
    const [, h, w] = steps.about.input, {matrix} = card, large = Math.max(1, WIDE / Math.max(h, w)), canvas = element("canvas", {width: w * large, height: h * large});
    const context = canvas.getContext("2d"), [width, height] = [canvas.width, canvas.height];
    const box = (i, ink, line) => {
      const [x, y, bw, bh] = [0, 1, 2, 3].map(k => matrix.at(0, i, k));
      context.strokeStyle = ink; context.lineWidth = line;
      context.strokeRect((x - bw / 2) * width, (y - bh / 2) * height, bw * width, bh * height);
    };
    for (let i = 0; i < matrix.rows; i++) box(i, "#8888", 1);
    box(card.chosen[0], "#ffd400", 3);
    return [[canvas, steps.say("allBoxes", card.chosen[0] + 1)]];
  },
  async mask({matrix: {rows, columns, at}, query}, steps) {
    const values = Float32Array.from({length: rows * columns}, (_, i) => 1 / (1 + Math.exp(-at(0, Math.floor(i / columns), i % columns))));
    return [[map(values, [rows, columns]), steps.say("maskOf", query + 1)]];
  },
};

export function filter(at, c, h, w, name) { // (c, h, w) of any numbers as a small picture: gray is zero
  let most = 1e-12;
  for (let i = 0; i < c * h * w; i++) most = Math.max(most, Math.abs(at(i)));
  const off = new OffscreenCanvas(w, h), context = off.getContext("2d"), made = context.createImageData(w, h);
  for (let i = 0; i < h * w; i++) made.data.set([0, 1, 2].map(k => 127.5 + 127.5 * at((c === 3 ? k : 0) * h * w + i) / most).concat(255), 4 * i);
  context.putImageData(made, 0, 0);
  const canvas = element("canvas", {width: 96, height: 96 * h / w}), to = canvas.getContext("2d");
  to.imageSmoothingEnabled = false;
  to.drawImage(off, 0, 0, canvas.width, canvas.height);
  return element("figure", {}, canvas, element("figcaption", {}, name));
}
