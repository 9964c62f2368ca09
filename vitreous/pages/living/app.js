// The living page: an image, the model's answer, what it looks at, what happens if a part is changed, and every step.
import {Live, Stored, neutral} from "./engine.js";
import {readImage, prepare, centred, planes} from "./input.js";
import {Steps} from "./steps.js";
import {openViewer, element, percent} from "../templates/viewer.js";
import {speak, speaker} from "../templates/words.js";

const about = JSON.parse(document.getElementById("about").textContent);
const WORDS = JSON.parse(document.getElementById("words").textContent);
const at = id => document.getElementById(id);

let say = speaker(WORDS);

const engine = about.numbers ? new Stored(about) : new Live(about);
const [CHANNELS, HEIGHT, WIDTH] = about.input, PATCHES = about.grid[0] * about.grid[1];
let viewer = null, steps = null, plain = null, basis = null, occluded = null, started = 0;

// ---- the image

function url(pixels) {
  const canvas = element("canvas", {width: WIDTH, height: HEIGHT}), context = canvas.getContext("2d");
  const made = context.createImageData(WIDTH, HEIGHT), n = WIDTH * HEIGHT;
  for (let i = 0; i < n; i++) made.data.set([0, 1, 2].map(k => pixels[(CHANNELS === 3 ? k : 0) * n + i]).concat(255), 4 * i);
  context.putImageData(made, 0, 0);
  return canvas.toDataURL();
}
function seen(pixels, changes) { // with the patches as they are changed, for the eye
  if (!changes.patch_order) return pixels;
  const [ph, pw] = about.pixels, gray = about.mean.map(m => 255 * m), made = new Float32Array(pixels.length), n = HEIGHT * WIDTH;
  for (let i = 0; i < PATCHES; i++) {
    const from = changes.patch_order[i], keep = changes.patch_keep[i];
    const [y, x] = [Math.floor(i / about.grid[1]) * ph, i % about.grid[1] * pw], [v, u] = [Math.floor(from / about.grid[1]) * ph, from % about.grid[1] * pw];
    for (let k = 0; k < CHANNELS; k++) for (let r = 0; r < ph; r++) for (let c = 0; c < pw; c++)
      made[k * n + (y + r) * WIDTH + x + c] = keep ? pixels[k * n + (v + r) * WIDTH + u + c] : gray[k % gray.length];
  }
  return made;
}
async function take(source, pixels = null) { // a new image: nothing is changed in it
  try {
    pixels ??= prepare(typeof source.c === "number" ? source : await readImage(source), about.preprocess);
  } catch { notice(say("notImage")); return; }
  notice("");
  const changes = {...engine.changes, ...(about.changes.patch_order ? {patch_order: neutral(about).patch_order, patch_keep: neutral(about).patch_keep} : {})};
  plain = null; occluded = null; held = null;
  if (source) clearPen();
  for (const each of document.querySelectorAll(".sample")) each.ariaPressed = String(each.firstChild.src === source);
  engine.set(Float32Array.from(pixels), changes);
  await refresh();
}
function notice(text) { at("notice").textContent = text; at("notice").hidden = !text; }

// ---- the answer

const softmax = data => { const most = Math.max(...data), e = Array.from(data, v => Math.exp(v - most)), s = e.reduce((a, b) => a + b, 0); return e.map(v => v / s); };
const sigmoid = data => Array.from(data, v => 1 / (1 + Math.exp(-v)));
const scoresOf = outputs => about.task === "tag" ? sigmoid(outputs.logits.data) : softmax(outputs.logits.data);
const changed = () => { const rest = neutral(about); return Object.keys(rest).some(name => rest[name].some((v, i) => v !== engine.changes[name][i])); };

async function refresh() {
  const version = engine.version, names = about.answers.filter(name => name !== "vectors");
  let found, before = null;
  try {
    const outputs = await engine.get(...names);
    if (version !== engine.version) return;
    found = Object.fromEntries(names.map((name, i) => [name, outputs[i]]));
    if (changed()) {
      plain ??= await engine.once(engine.pixels, neutral(about), names);
      before = plain;
    } else plain = found;
  } catch (error) { notice(say("failed") + " " + error.message); return; }
  if (version !== engine.version) return;
  viewer?.picture(url(engine.seen = seen(engine.pixels, engine.changes)));
  answer(found, before);
  switches();
  await steps.draw();
  at("speed").textContent = engine.took ? say("took", engine.took.toFixed(0)) : "";
  document.documentElement.dataset.done = String(version);
}
function answer(found, before) {
  const root = at("answers");
  root.replaceChildren();
  if (DRAWN[about.task]) { root.append(DRAWN[about.task](found)); return; }
  if (!found.logits) { root.append(element("p", {}, say("vector"))); return; }
  const scores = scoresOf(found), old = before && scoresOf(before);
  const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]).slice(0, 5);
  if (old) { const best = old.indexOf(Math.max(...old)); if (!order.includes(best)) order.push(best); }
  for (const i of order) {
    const bar = element("i", {className: "bar"});
    bar.style.setProperty("--share", (100 * scores[i]).toFixed(1) + "%");
    const apart = old ? 100 * (scores[i] - old[i]) : 0;
    const difference = old ? element("span", {className: "change " + (apart < 0 ? "down" : "up")}, (apart < 0 ? "−" : "+") + Math.abs(apart).toFixed(1)) : "";
    const on = about.task === "tag" && about.thresholds && scores[i] >= about.thresholds[i] ? " ✓" : "";
    root.append(element("div", {className: "class"}, element("span", {className: "label"}, about.labels[i] + on), element("span", {className: "num"}, percent(scores[i]), " ", difference), bar));
  }
  if (old) root.append(element("p", {className: "soft small"}, say(scores.every((v, i) => Math.abs(v - old[i]) < 5e-4) ? "noChange" : "changeIs")));
}
function canvasWith(draw) { // the image, and something over it
  const scale = Math.max(1, Math.ceil(480 / WIDTH)), canvas = element("canvas", {width: WIDTH * scale, height: HEIGHT * scale, className: "drawn"}), context = canvas.getContext("2d");
  const image = new Image();
  image.onload = () => { context.imageSmoothingEnabled = false; context.drawImage(image, 0, 0, canvas.width, canvas.height); draw(context, canvas); };
  image.src = url(seen(engine.pixels, engine.changes));
  return canvas;
}
const ink = i => `hsl(${(i * 137.5) % 360} 70% 50%)`;
const DRAWN = {
  segment({logits: {dims: [, k, h, w], data}}) {
    const classes = new Int32Array(h * w), counts = new Array(k).fill(0);
    for (let i = 0; i < h * w; i++) {
      let best = 0;
      for (let c = 1; c < k; c++) if (data[c * h * w + i] > data[best * h * w + i]) best = c;
      classes[i] = best; counts[best]++;
    }
    const canvas = canvasWith((context, {width, height}) => {
      context.globalAlpha = 0.55;
      for (let i = 0; i < h * w; i++) { context.fillStyle = ink(classes[i]); context.fillRect(i % w * width / w, Math.floor(i / w) * height / h, width / w + 0.5, height / h + 0.5); }
    });
    const list = counts.map((n, i) => [n, i]).filter(([n]) => n).sort((a, b) => b[0] - a[0]).slice(0, 8).map(([n, i]) => {
      const mark = element("i", {className: "swatch"}); mark.style.background = ink(i);
      return element("li", {}, mark, about.labels[i] ?? String(i), " ", percent(n / (h * w)));
    });
    return element("div", {}, canvas, element("ul", {className: "legendary"}, ...list));
  },
  detect({logits, boxes}) {
    const [, q, k] = logits.dims, classes = about.labels.length, found = [];
    for (let i = 0; i < q; i++) {
      const line = logits.data.slice(i * k, (i + 1) * k), scores = about.noObject ? softmax(line) : sigmoid(line);
      let best = 0;
      for (let c = 1; c < classes; c++) if (scores[c] > scores[best]) best = c;
      if (scores[best] >= (about.threshold ?? 0.5)) found.push({best, query: i, score: scores[best], box: boxes.data.slice(4 * i, 4 * i + 4)});
    }
    found.sort((a, b) => b.score - a.score);
    openLook(found.slice(0, 20));
    const canvas = canvasWith((context, {width, height}) => {
      context.font = "14px system-ui"; context.lineWidth = 3;
      for (const {best, score, box: [x, y, w, h]} of found.slice(0, 50)) {
        context.strokeStyle = context.fillStyle = ink(best);
        context.strokeRect((x - w / 2) * width, (y - h / 2) * height, w * width, h * height);
        context.fillText(`${about.labels[best]} ${percent(score)}`, (x - w / 2) * width + 3, (y - h / 2) * height + 15);
      }
    });
    return element("div", {}, canvas, element("p", {}, say("objects", found.length)));
  },
};
DRAWN.instance = DRAWN.detect;

// ---- what it looks at

async function colours(layer) { // three principal components, fitted once for all blocks and images
  const names = about.blocks;
  if (!basis) {
    const all = await engine.get(...names);
    basis = principal(all.map(each => normal(each)));
  }
  const [found] = await engine.get(names[Math.min(layer, names.length - 1)]), rows = normal(found);
  const made = rows.slice(about.prefix).map(row => basis.axes.map((axis, k) => {
    const v = row.reduce((s, x, i) => s + (x - basis.mean[i]) * axis[i], 0);
    return Math.max(0, Math.min(255, 127.5 + 80 * v / basis.spread[k]));
  }));
  return {map: new Float32Array(made.length).fill(1), colours: made.map(c => `rgba(${c.map(Math.round)},.9)`), sentence: say("coloursAre")};
}
function normal({dims: [, n, d], data}) { // tokens of mean 0 and length 1: only their direction counts
  return Array.from({length: n}, (_, r) => {
    const row = data.slice(r * d, (r + 1) * d), mean = row.reduce((a, b) => a + b, 0) / d;
    const size = Math.sqrt(row.reduce((s, v) => s + (v - mean) ** 2, 0)) || 1;
    return row.map(v => (v - mean) / size);
  });
}
function principal(groups) { // by iteration on products, without the matrix of covariances
  const rows = groups.flatMap(rows => rows.slice(about.prefix)), d = rows[0].length;
  const mean = new Float32Array(d);
  for (const row of rows) for (let i = 0; i < d; i++) mean[i] += row[i] / rows.length;
  const axes = [], spread = [];
  for (let k = 0; k < 3; k++) {
    let axis = Float32Array.from({length: d}, (_, i) => Math.sin((i + 1) * (k + 2) * 1.7));
    for (let round = 0; round < 12; round++) {
      const next = new Float32Array(d);
      for (const row of rows) {
        let s = 0;
        for (let i = 0; i < d; i++) s += (row[i] - mean[i]) * axis[i];
        for (let i = 0; i < d; i++) next[i] += s * (row[i] - mean[i]);
      }
      for (const other of axes) { const s = next.reduce((t, v, i) => t + v * other[i], 0); for (let i = 0; i < d; i++) next[i] -= s * other[i]; }
      const size = Math.sqrt(next.reduce((s, v) => s + v * v, 0)) || 1;
      axis = next.map(v => v / size);
    }
    axes.push(axis);
    spread.push(Math.sqrt(rows.reduce((s, row) => { const v = row.reduce((t, x, i) => t + (x - mean[i]) * axis[i], 0); return s + v * v; }, 0) / rows.length) || 1);
  }
  return {mean, axes, spread};
}
async function norms(layer) {
  const [{dims: [, n, d], data}] = await engine.get(about.blocks[Math.min(layer, about.blocks.length - 1)]);
  const map = Float32Array.from({length: n - about.prefix}, (_, i) => Math.sqrt(data.slice((i + about.prefix) * d, (i + about.prefix + 1) * d).reduce((s, v) => s + v * v, 0)));
  const middle = [...map].sort((a, b) => a - b)[map.length >> 1], outliers = [...map.keys()].filter(i => map[i] > 2 * middle);
  return {map, marks: outliers, text: say("normUpTo", Math.max(...map).toFixed(1)), sentence: outliers.length ? say("outliers", outliers.length, middle.toFixed(1)) : say("noOutliers", middle.toFixed(1))};
}
async function evidence() {
  if (occluded?.version !== engine.version) occluded = await hiding();
  const {map, best} = occluded, most = Math.max(...map), place = map.indexOf(most);
  const points = (100 * most).toFixed(1);
  return {map, text: say("loses", points), sentence: say("evidenceIs", about.labels[best], steps.token(place + about.prefix), points)};
}
async function hiding() { // one patch after the other
  const version = engine.version, [{data}] = await engine.get("logits"), scores = scoresOf({logits: {data}}), best = scores.indexOf(Math.max(...scores));
  const map = new Float32Array(PATCHES);
  for (let i = 0; i < PATCHES; i++) {
    if (version !== engine.version) break;
    const keep = engine.changes.patch_keep.slice();
    keep[i] = 0;
    const {logits} = await engine.once(engine.pixels, {...engine.changes, patch_keep: keep}, ["logits"]);
    map[i] = Math.max(0, scores[best] - scoresOf({logits})[best]);
    if (i % 4 === 0) at("progress").textContent = at("status").textContent = say("hiding", i + 1, PATCHES);
  }
  at("progress").textContent = "";
  return {version, map, best};
}
let inImage = []; // the objects in it, the surest first
function openLook(found = inImage) {
  const same = viewer && !found.length === !inImage.length && (viewer.state.object ?? -1) < found.length; // then what is chosen stays
  inImage = found;
  const objects = found.length && about.queries.length ? {
    names: found.map(({best, score}) => `${about.labels[best]} ${percent(score)}`), queries: found.map(each => each.query), first: true,
    boxes: found.map(({box: [x, y, w, h]}) => [x - w / 2, y - h / 2, x + w / 2, y + h / 2]),
    layers: about.queries.map((each, i) => ({...each, number: i + 1, windows: null, live: async () => (await engine.get(each.name))[0]})),
  } : null;
  const layers = about.layers.map((name, i) => ({number: 1 + +(name.match(/blocks\.(\d+)/)?.[1] ?? i), grid: about.grid, pixels: about.pixels, heads: about.outputs[name][1], windows: null, live: async () => (await engine.get(name))[0]}));
  const maps = {};
  if (about.blocks.length) Object.assign(maps, {colours, norms});
  if (engine.live && about.changes.patch_keep && about.task === "classify") maps.evidence = evidence;
  viewer = openViewer(at("viewer"), {
    picture: url(engine.seen ?? new Float32Array(CHANNELS * HEIGHT * WIDTH)), grid: about.grid, pixels: about.pixels, size: [HEIGHT, WIDTH], layers, prefix: about.prefix, objects,
    prefixNames: about.tokens.map(each => each[say.number]), maps, mapNames: Object.fromEntries(Object.keys(maps).map(name => [name, say(name)])), byLayer: ["colours", "norms"], headName: say("head", 1),
  }, {say: say.part("viewer"), before: same ? viewer.state : null, onChoice: (token, head) => steps?.select(token, head)});
  viewer.onTap(tools[tool]);
}

// ---- changes

let held = null; // a patch that waits for another to swap with
function change(name, edit) {
  const changes = Object.fromEntries(Object.entries(engine.changes).map(([key, values]) => [key, values.slice()]));
  edit(changes[name] ?? changes, changes);
  engine.set(engine.pixels, changes);
  refresh();
}
function shuffled(n) {
  const order = Array.from({length: n}, (_, i) => i);
  for (let i = n - 1; i > 0; i--) { const j = Math.floor(Math.random() * (i + 1)); [order[i], order[j]] = [order[j], order[i]]; }
  return order;
}
const tools = {
  look: null,
  hide: patch => change("patch_keep", keep => { keep[patch] = 1 - keep[patch]; }),
  swap: patch => {
    if (held === null) { held = patch; at("progress").textContent = say("swapWith", steps.token(patch + about.prefix)); return; }
    const other = held; held = null; at("progress").textContent = "";
    change("patch_order", order => { [order[patch], order[other]] = [order[other], order[patch]]; });
  },
};
function button(text, click, pressed = null) {
  const made = element("button", {type: "button"}, text);
  if (pressed !== null) made.ariaPressed = String(pressed);
  made.addEventListener("click", click);
  return made;
}
let tool = "look";
function switches() {
  const root = at("switches"), {changes} = engine, rows = [];
  if (changes.patch_order) {
    rows.push(element("div", {className: "tools"}, element("span", {}, say("tap")), ...Object.keys(tools).map(name => button(say("tool_" + name), () => { tool = name; held = null; viewer.onTap(tools[name]); switches(); }, tool === name))));
    rows.push(element("div", {className: "tools"}, element("span", {}, say("patches")),
      button(say("shuffle"), () => change("", (_, all) => { all.patch_order = shuffled(PATCHES); })),
      ...(changes.position_order ? [button(say("shuffleBoth"), () => change("", (_, all) => { all.patch_order = shuffled(PATCHES); all.position_order = all.patch_order.slice(); }))] : []),
      button(say("hideHalf"), () => change("", (_, all) => { const out = shuffled(PATCHES); all.patch_keep = all.patch_keep.map((_, i) => out[i] < PATCHES / 2 ? 0 : 1); }))));
  }
  if (changes.position) {
    const kept = neutral(about).position_order, own = changes.position[0] === 0 ? "off" : changes.position_order.every((v, i) => v === kept[i]) ? "on" : "other";
    rows.push(element("div", {className: "tools"}, element("span", {}, say("positions")),
      button(say("on"), () => change("", (_, all) => { all.position = [1]; all.position_order = kept; }), own === "on"),
      button(say("off"), () => change("", (_, all) => { all.position = [0]; }), own === "off"),
      button(say("shuffle"), () => change("", (_, all) => { all.position = [1]; all.position_order = shuffled(PATCHES); }), own === "other")));
  }
  if (changes.class_token) rows.push(element("div", {className: "tools"}, element("span", {}, say("classToken")),
    button(say("on"), () => change("class_token", v => { v[0] = 1; }), changes.class_token[0] === 1), button(say("zero"), () => change("class_token", v => { v[0] = 0; }), changes.class_token[0] === 0)));
  if (changes.heads) {
    const most = about.changes.heads.dims[1], lines = about.heads.map((heads, block) => element("div", {className: "tools blockrow"}, element("span", {}, say("block", block + 1)),
      button(say("attention"), () => change("attention", v => { v[block] = 1 - v[block]; }), changes.attention[block] === 1),
      button("MLP", () => change("mlp", v => { v[block] = 1 - v[block]; }), changes.mlp[block] === 1),
      ...Array.from({length: heads}, (_, h) => { const made = button(String(h + 1), () => change("heads", v => { v[block * most + h] = 1 - v[block * most + h]; }), changes.heads[block * most + h] === 1); made.title = say("head", h + 1); made.ariaLabel = `${say("block", block + 1)}, ${say("head", h + 1)}`; return made; })));
    const open = root.querySelector("details")?.open ?? false;
    rows.push(element("details", {open}, element("summary", {}, say("inBlocks")), element("p", {className: "soft small"}, say("inBlocksHelp")), ...lines));
  }
  rows.push(element("div", {className: "tools"}, button(say("reset"), () => { held = null; notice(""); engine.set(engine.pixels, neutral(about)); refresh(); })));
  const off = ["heads", "attention"].some(name => changes[name]?.includes(0));
  at("note").textContent = off ? say("offNote") : "";
  const focus = document.activeElement, place = [...root.querySelectorAll("button")].indexOf(focus);
  root.replaceChildren(...rows);
  if (place >= 0) root.querySelectorAll("button")[place]?.focus();
}

// ---- the page

let clearPen = () => {};
function drawing() { // a canvas to write a digit on
  const canvas = at("pen"), context = canvas.getContext("2d", {willReadFrequently: true});
  const clear = () => { context.fillStyle = "#000"; context.fillRect(0, 0, canvas.width, canvas.height); };
  clear();
  context.lineWidth = canvas.width / 9; context.lineCap = context.lineJoin = "round"; context.strokeStyle = "#fff";
  let last = null, soon = 0;
  const point = event => { const box = canvas.getBoundingClientRect(); return [(event.clientX - box.left) / box.width * canvas.width, (event.clientY - box.top) / box.height * canvas.height]; };
  const read = () => {
    const {data, h, w} = planes(context.getImageData(0, 0, canvas.width, canvas.height));
    return take(null, centred({data: data.subarray(0, h * w), h, w}, HEIGHT, WIDTH));
  };
  canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); last = point(event); context.beginPath(); context.moveTo(...last); context.lineTo(...last); context.stroke(); });
  canvas.addEventListener("pointermove", event => {
    if (!last) return;
    const next = point(event);
    context.beginPath(); context.moveTo(...last); context.lineTo(...next); context.stroke();
    last = next;
    clearTimeout(soon); soon = setTimeout(read, 60);
  });
  canvas.addEventListener("pointerup", () => { last = null; read(); });
  at("clear").addEventListener("click", () => { clear(); read(); });
  clearPen = clear;
}
function speaking(next) { // in another language
  say = next;
  at("facts").textContent = say("facts", about.parameters.toLocaleString(), about.labels.length, about.precision);
  for (const each of document.querySelectorAll(".sample")) each.ariaLabel = each.title = `${say("sample")} ${each.dataset.number}`;
  openLook();
  if (steps) { steps.say = say; steps.build(); }
  if (engine.pixels) { viewer.picture(url(seen(engine.pixels, engine.changes))); refresh(); }
}
async function start() {
  started = performance.now();
  steps = new Steps(at("steps"), engine, say, token => viewer?.select(token));
  at("file").addEventListener("change", event => { if (event.target.files[0]) take(event.target.files[0]); });
  at("camera").addEventListener("change", event => { if (event.target.files[0]) take(event.target.files[0]); });
  addEventListener("paste", event => { const file = [...event.clipboardData.files][0]; if (file) take(file); });
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", event => { event.preventDefault(); const file = event.dataTransfer.files[0]; if (file) take(file); });
  at("pens").hidden = !about.draw || Boolean(about.numbers);
  if (about.draw) drawing();
  for (const [i, sample] of about.samples.entries()) {
    const picture = element("button", {type: "button", className: "sample", "data-number": i + 1}, element("img", {src: sample, alt: "", className: WIDTH < 128 ? "pixelated" : ""}));
    picture.addEventListener("click", () => take(sample));
    at("samples").append(picture);
  }
  speak(WORDS, speaking);
  try { await engine.open(); } catch (error) { notice(say("failed") + " " + error.message); at("loading").hidden = true; return; }
  at("loading").hidden = true;
  for (const each of document.querySelectorAll("[data-live]")) each.hidden = !engine.live;
  document.getElementById("stored").hidden = engine.live;
  steps.open.add("step 1");
  steps.build();
  await take(about.samples[0]);
  document.documentElement.dataset.ready = String(Math.round(performance.now() - started));
}
start();
// What the model gives for pixels as it takes them, nothing changed; the export asks this before it gives the page its name.
async function ask(pixels, names, changes = {}) {
  const found = await engine.once(Float32Array.from(pixels), {...neutral(about), ...changes}, names);
  return Object.fromEntries(names.map(name => [name, Array.from(found[name].data, Number)]));
}
globalThis.page = {engine, ask, about, take, prepare, readImage, neutral, steps: () => steps, refresh, change: (name, edit) => change(name, edit)}; // for the tests and for the curious
