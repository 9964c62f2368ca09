// The living page: an image, the model's answer, what it looks at, what happens if a part is changed, and every step.
import {Live, Stored, neutral} from "./engine.js";
import {readImage, prepare, centred, planes} from "./input.js";
import {inkOf, normal, picture, sharedBasis} from "./pictures.js";
import {Steps, keepFocus} from "./steps.js";
import {readLink} from "./link.js";
import {DRAWN, answered, inShort, objectsIn, scoresOf} from "./answers.js";
import {openViewer, element, percent} from "../templates/viewer.js";
import {speak, speaker} from "../templates/words.js";

const about = JSON.parse(document.getElementById("about").textContent);
const WORDS = JSON.parse(document.getElementById("words").textContent);
const at = id => document.getElementById(id);

let say = speaker(WORDS);

const engine = about.numbers ? new Stored(about) : new Live(about);
const [CHANNELS, HEIGHT, WIDTH] = about.input, PATCHES = about.grid[0] * about.grid[1];
const toolbar = at("tools"), progress = at("progress"); // they move under the picture
let viewer = null, steps = null, plain = null, occluded = null, started = 0;

// ---- the image

const url = pixels => picture(pixels, about.input).toDataURL();
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
async function take(source, pixels = null) { // a new image: what is changed stays changed
  try {
    pixels ??= prepare(typeof source.c === "number" ? source : await readImage(source), about.preprocess);
  } catch { notice(say("notImage")); return; }
  notice("");
  plain = null; occluded = null; held = null; progress.textContent = "";
  if (source) clearPen();
  for (const each of document.querySelectorAll(".sample")) each.ariaPressed = String(each.firstChild.src === source);
  const sample = about.samples.find(each => each.url === source);
  at("truth").textContent = sample?.label ? say("trueLabel", sample.label) : "";
  engine.set(Float32Array.from(pixels));
  await refresh();
}
function notice(text) {
  at("notice").hidden = !text;
  if (text) at("notice").replaceChildren(element("span", {}, text), element("button", {type: "button", ariaLabel: say("close"), onclick: () => notice("")}, "×"));
}

// ---- the answer

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
  const drawn = DRAWN[about.answer];
  at("answers").replaceChildren(...(drawn && found.logits ? [drawn(found, url(engine.seen), about, say)] : answered(found, before, about, say)));
  if (found.boxes) {
    const objects = objectsIn(found, about);
    steps.best = objects[0].query;
    openLook(objects.filter(each => each.score >= (about.threshold ?? 0.5)).slice(0, 20));
  }
  changedHere(Boolean(before));
  at("short").firstChild.replaceChildren(...inShort(found, before, about, say));
  switches();
  await steps.draw();
  at("speed").textContent = engine.took ? say("took", engine.took.toFixed(0)) + say("between") : "";
  document.documentElement.dataset.done = String(version);
}
// ---- what it looks at

async function colours(layer) { // three principal components, fitted once for all blocks and images
  const basis = await sharedBasis(engine, about);
  const [{dims: [, n, d], data}] = await engine.get(about.blocks[Math.min(layer, about.blocks.length - 1)]);
  const inks = Array.from({length: n - about.prefix}, (_, i) => inkOf(normal(data.slice((i + about.prefix) * d, (i + about.prefix + 1) * d)), basis));
  return {map: new Float32Array(inks.length).fill(1), colours: inks.map(c => `rgba(${c.map(Math.round)},.9)`), sentence: say("coloursAre")};
}
async function norms(layer) {
  const [{dims: [, n, d], data}] = await engine.get(about.blocks[Math.min(layer, about.blocks.length - 1)]);
  const map = Float32Array.from({length: n - about.prefix}, (_, i) => Math.sqrt(data.slice((i + about.prefix) * d, (i + about.prefix + 1) * d).reduce((s, v) => s + v * v, 0)));
  const middle = [...map].sort((a, b) => a - b)[map.length >> 1], outliers = [...map.keys()].filter(i => map[i] > 2 * middle);
  return {map, marks: outliers, text: say("normUpTo", Math.max(...map).toFixed(1)), sentence: outliers.length ? say("outliers", outliers.length, middle.toFixed(1)) : say("noOutliers", middle.toFixed(1))};
}
async function evidence() {
  if (occluded?.version !== engine.version) occluded = await hiding();
  const {map, best, done} = occluded, most = Math.max(...map), place = map.indexOf(most), points = (100 * most).toFixed(1);
  const sentence = say("evidenceIs", about.labels[best], steps.token(place + about.prefix), points) + (done < PATCHES ? say("between") + say("evidenceStopped", done, PATCHES) : "");
  return {map, text: say("loses", points), sentence};
}
async function hiding() { // one patch after the other, until all are measured, something else is chosen, or the reader stops it
  const version = engine.version, [logits] = await engine.get("logits"), scores = scoresOf({logits}, about), best = scores.indexOf(Math.max(...scores));
  const map = new Float32Array(PATCHES);
  let done = 0, stopped = false;
  const stop = button(say("stop"), () => { stopped = true; }), text = element("span");
  at("status").textContent = ""; // its words come when it is measured
  progress.replaceChildren(text, " ", stop);
  for (; done < PATCHES && !stopped && version === engine.version && viewer.state.what === "evidence"; done++) {
    const keep = engine.changes.patch_keep.slice();
    keep[done] = 0;
    const found = await engine.once(engine.pixels, {...engine.changes, patch_keep: keep}, ["logits"]);
    map[done] = Math.max(0, scores[best] - scoresOf(found, about)[best]);
    if (done % 4 === 0) text.textContent = say("hiding", done + 1, PATCHES);
  }
  if (progress.contains(stop)) progress.textContent = "";
  return {version: viewer.state.what === "evidence" ? version : null, map, best, done};
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
  if (engine.live && about.changes.patch_keep && about.excludes) maps.evidence = evidence;
  viewer = openViewer(at("viewer"), {
    picture: url(engine.seen ?? new Float32Array(CHANNELS * HEIGHT * WIDTH)), grid: about.grid, pixels: about.pixels, size: [HEIGHT, WIDTH], layers, prefix: about.prefix, objects,
    prefixNames: about.tokens.map(each => each[say.number]), maps, mapNames: Object.fromEntries(Object.keys(maps).map(name => [name, say(name)])), byLayer: ["colours", "norms"], headName: say("head", 1),
  }, {say: say.part("viewer"), before: same ? viewer.state : null, onChoice: (token, head) => steps?.select(token, head)});
  viewer.onTap(tools[tool]);
  at("viewer").querySelector(".shown").append(toolbar, progress);
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
    if (held === null) { held = patch; progress.textContent = say("swapWith", steps.token(patch + about.prefix)); return; }
    const other = held; held = null; progress.textContent = "";
    change("patch_order", order => { [order[patch], order[other]] = [order[other], order[patch]]; });
  },
};
function button(text, click, pressed = null) {
  const made = element("button", {type: "button"}, text);
  if (pressed !== null) made.ariaPressed = String(pressed);
  made.addEventListener("click", click);
  return made;
}
function undo() { held = null; progress.textContent = ""; notice(""); engine.set(engine.pixels, neutral(about)); refresh(); }
function changedHere(changed) { // beside the answer: what it is the answer of
  at("changed").hidden = !changed;
  if (changed) at("changed").replaceChildren(say("isChanged"), " ", button(say("undo"), undo));
  at("short").lastChild.hidden = !changed;
}
let tool = "look";
const row = (name, ...choices) => element("div", {className: "tools", role: "group", ariaLabel: name}, element("span", {}, name), ...choices);
function switches() {
  const root = at("switches"), {changes} = engine, rows = [], changing = edit => () => change("", (_, all) => edit(all));
  if (changes.patch_order) {
    toolbar.hidden = !engine.live;
    const choices = Object.keys(tools).map(name => button(say("tool_" + name), () => { tool = name; held = null; progress.textContent = ""; viewer.onTap(tools[name]); switches(); }, tool === name));
    keepFocus(toolbar, () => toolbar.replaceChildren(row(say("tap"), ...choices)));
    rows.push(row(say("patches"), button(say("shuffle"), changing(all => { all.patch_order = shuffled(PATCHES); })),
      ...(changes.position_order ? [button(say("shuffleBoth"), changing(all => { all.patch_order = shuffled(PATCHES); all.position_order = all.patch_order.slice(); }))] : []),
      button(say("hideHalf"), changing(all => { const out = shuffled(PATCHES); all.patch_keep = all.patch_keep.map((_, i) => out[i] < PATCHES / 2 ? 0 : 1); }))));
  }
  if (changes.position) {
    const kept = neutral(about).position_order; // those inside windows have no order
    const own = changes.position[0] === 0 ? "off" : !kept || changes.position_order.every((v, i) => v === kept[i]) ? "on" : "other";
    const set = (factor, order) => changing(all => { all.position = [factor]; if (order) all.position_order = order(); });
    rows.push(row(say("positions"), button(say("on"), set(1, kept && (() => kept)), own === "on"), button(say("off"), set(0), own === "off"),
      ...(kept ? [button(say("shuffle"), set(1, () => shuffled(PATCHES)), own === "other")] : [])));
  }
  if (changes.class_token) {
    const set = value => () => change("class_token", v => { v[0] = value; });
    rows.push(row(say("classToken"), button(say("on"), set(1), changes.class_token[0] === 1), button(say("zero"), set(0), changes.class_token[0] === 0)));
  }
  if (changes.heads) {
    const most = about.changes.heads.dims[1], lines = about.heads.map((heads, block) => row(say("block", block + 1),
      button(say("attention"), () => change("attention", v => { v[block] = 1 - v[block]; }), changes.attention[block] === 1),
      button("MLP", () => change("mlp", v => { v[block] = 1 - v[block]; }), changes.mlp[block] === 1),
      ...Array.from({length: heads}, (_, h) => { const made = button(String(h + 1), () => change("heads", v => { v[block * most + h] = 1 - v[block * most + h]; }), changes.heads[block * most + h] === 1); made.title = say("head", h + 1); made.ariaLabel = `${say("block", block + 1)}, ${say("head", h + 1)}`; return made; })));
    const open = root.querySelector("details")?.open ?? false;
    rows.push(element("details", {open}, element("summary", {}, say("inBlocks")), element("p", {className: "soft small"}, say("inBlocksHelp")), element("div", {className: "blockrows"}, ...lines)));
  }
  rows.push(element("div", {className: "tools"}, button(say("reset"), undo)));
  const off = ["heads", "attention"].some(name => changes[name]?.includes(0));
  at("note").textContent = off ? say("offNote") : "";
  keepFocus(root, () => root.replaceChildren(...rows));
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
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { last = null; read(); });
  at("clear").addEventListener("click", async () => { clear(); await read(); at("truth").textContent = say("nothingDrawn"); });
  clearPen = clear;
}
function answerInSight() { // else it is said in short at the bottom, so that a change is seen wherever it is made
  new IntersectionObserver(([{isIntersecting}]) => { at("short").hidden = isIntersecting; }).observe(at("answers"));
  at("short").lastChild.addEventListener("click", undo);
}
function showOnly(part) { // that section, under the image and the answer in short
  const root = document.documentElement;
  if (part) root.dataset.only = part; else delete root.dataset.only;
  for (const each of document.querySelectorAll("[data-part]")) each.classList.toggle("apart", Boolean(part) && each.dataset.part !== part);
}
async function goTo({step, block, head, token, column}) {
  const layer = about.layers.findIndex(name => block !== undefined && name.includes(`blocks.${block}.`));
  viewer.select(token, head, layer < 0 ? undefined : layer);
  steps.select(token ?? steps.picked.tokens, head ?? "mean");
  if (step === undefined && block === undefined) return;
  const place = await steps.show(step, block, column);
  if (!place) { console.warn(`there is no step ${step} in block ${block + 1}`); return; }
  const above = document.querySelector(".panel.apart[data-part=answer]")?.offsetHeight ?? 0; // it stays there
  scrollTo(0, place.getBoundingClientRect().top + scrollY - above); // scrollIntoView would move the page around a frame, too
}
function sampleName(number) {
  const {label} = about.samples[number - 1];
  return `${say("sample")} ${number}` + (label ? say("comma") + say("trueLabel", label) : "");
}
function speaking(next) { // in another language
  say = next;
  const {labels} = about, few = labels.slice(0, labels.length > 12 ? 4 : 12).join(say("listed")), rest = labels.length > 12 ? labels.length - 4 : 0;
  at("facts").textContent = say(about.numbers ? "factsOfNumbers" : "facts", about.parameters.toLocaleString("en"), about.precision, labels.length ? say("classesAre", labels.length.toLocaleString("en"), rest ? say("andMore", few, rest.toLocaleString("en")) : few) : "");
  for (const each of document.querySelectorAll(".sample")) each.ariaLabel = each.title = sampleName(+each.dataset.number);
  openLook();
  const pressed = document.querySelector('.sample[aria-pressed="true"]'), {label} = about.samples[pressed?.dataset.number - 1] ?? {};
  at("truth").textContent = label ? say("trueLabel", label) : "";
  at("engine").textContent = engine.runsOn ? say(engine.runsOn) : "";
  if (steps) { steps.say = say; steps.build(); }
  if (engine.pixels) { viewer.picture(url(seen(engine.pixels, engine.changes))); refresh(); }
}
async function start() {
  started = performance.now();
  steps = new Steps(at("steps"), engine, say, (token, head) => viewer?.select(token, head));
  at("file").addEventListener("change", event => { if (event.target.files[0]) take(event.target.files[0]); });
  at("camera").addEventListener("change", event => { if (event.target.files[0]) take(event.target.files[0]); });
  addEventListener("paste", event => { const file = [...event.clipboardData.files][0]; if (file) take(file); });
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", event => { event.preventDefault(); const file = event.dataTransfer.files[0]; if (file) take(file); });
  answerInSight();
  at("pens").hidden = !about.draw || Boolean(about.numbers);
  if (about.draw) drawing();
  for (const [i, sample] of about.samples.entries()) {
    const choice = element("button", {type: "button", className: "sample", "data-number": i + 1}, element("img", {src: sample.url, alt: "", className: WIDTH < 128 ? "pixelated" : ""}));
    choice.addEventListener("click", () => take(sample.url));
    at("samples").append(choice);
  }
  let link = readLink(location.hash, about, !about.numbers);
  showOnly(link.only);
  const use = speak(WORDS, speaking, link.lang);
  try { await engine.open(); } catch (error) { notice(say("failed") + " " + error.message); at("loading").hidden = true; return; }
  at("loading").hidden = true;
  at("engine").textContent = engine.runsOn ? say(engine.runsOn) : "";
  for (const each of document.querySelectorAll("[data-live]")) each.hidden = !engine.live;
  document.getElementById("stored").hidden = engine.live;
  steps.open.add("step 1");
  steps.build();
  await take(about.samples[link.sample ?? 0].url);
  await goTo(link);
  let last = Promise.resolve();
  addEventListener("hashchange", () => { last = last.then(async () => {
    link = readLink(location.hash, about, engine.live);
    showOnly(link.only);
    if (link.lang && link.lang !== say.language) use(link.lang);
    if (link.sample !== undefined) await take(about.samples[link.sample].url);
    await goTo(link);
    document.documentElement.dataset.at = location.hash;
  }); });
  document.documentElement.dataset.ready = String(Math.round(performance.now() - started));
}
start();
// What the model gives for pixels as it takes them, nothing changed; the export asks this before it gives the page its name.
async function ask(pixels, names, changes = {}) {
  const found = await engine.once(Float32Array.from(pixels), {...neutral(about), ...changes}, names);
  return Object.fromEntries(names.map(name => [name, Array.from(found[name].data, Number)]));
}
globalThis.page = {engine, ask, about, take, prepare, readImage, neutral, steps: () => steps, refresh, change: (name, edit) => change(name, edit)}; // for the tests and for the curious
