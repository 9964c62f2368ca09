// The model of the page. `get(name)` gives what the graph computes for the image and the changes of
// the moment; names that are asked for together are computed together.

import {prepare, readImage} from "./input.js";

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%.()*+-;,=>?@^_`{|}~";

// Five characters for four bytes: Python's base85, with two characters that HTML would take for its own replaced.
export function bytesOf(text) {
  const digit = new Uint8Array(128);
  for (let i = 0; i < 85; i++) digit[ALPHABET.charCodeAt(i)] = i;
  const missing = (5 - text.length % 5) % 5, groups = (text.length + missing) / 5;
  const bytes = new Uint8Array(4 * groups), view = new DataView(bytes.buffer);
  for (let g = 0, at = 0; g < groups; g++) {
    let value = 0;
    for (let i = 0; i < 5; i++, at++) value = value * 85 + (at < text.length ? digit[text.charCodeAt(at)] : 84);
    view.setUint32(4 * g, value);
  }
  return bytes.subarray(0, bytes.length - missing);
}
export async function unpack(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
const textOf = id => document.getElementById(id).textContent;

function half(bits) { // float16 as a number
  const sign = bits & 0x8000 ? -1 : 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return exponent === 31 ? (fraction ? NaN : sign * Infinity) : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
const sizeOf = shape => shape.reduce((a, b) => a * b, 1);

// Weights as float32, all in one piece, and each by its name.
export function readWeights(bytes, index) {
  const all = new Float32Array(index.reduce((sum, each) => sum + sizeOf(each.shape), 0)), named = new Map();
  const raw = new Uint8Array(all.buffer);
  let halves = null, at = 0, place = 0;
  for (const {name, shape, kind} of index) {
    const n = sizeOf(shape), to = all.subarray(place, place + n);
    if (kind === "float32") {
      for (let k = 0; k < 4; k++) for (let i = 0; i < n; i++) raw[4 * (place + i) + k] = bytes[at + k * n + i];
      at += 4 * n;
    } else if (kind === "float16") {
      halves ??= Float32Array.from({length: 65536}, (_, i) => half(i));
      for (let i = 0; i < n; i++) to[i] = halves[bytes[at + i] | bytes[at + n + i] << 8];
      at += 2 * n;
    } else { // int8: a factor for each row
      const rows = shape[0], width = n / rows, factors = new DataView(bytes.buffer, bytes.byteOffset + at + n, 4 * rows);
      for (let r = 0; r < rows; r++) {
        const factor = factors.getFloat32(4 * r, true);
        for (let i = r * width; i < (r + 1) * width; i++) to[i] = (bytes[at + i] << 24 >> 24) * factor;
      }
      at += n + 4 * rows;
    }
    named.set(name, {shape, data: to});
    place += n;
  }
  return {all, named};
}

const WORKER = `
let session, ort, queue = Promise.resolve();
onmessage = event => { queue = queue.then(() => answer(event.data)); }; // a session on the graphics chip runs once at a time
async function agrees(checks, output, tolerance) {
  for (const {feeds, values} of checks) {
    const {data} = (await session.run(tensors(feeds), [output]))[output];
    const most = values.reduce((a, v) => Math.max(a, Math.abs(v)), 1e-6);
    if (!values.every((v, i) => Math.abs(v - data[i]) <= tolerance * most)) return false;
  }
  return true;
}
function tensors(given) {
  const feeds = {};
  for (const [name, {type, data, dims}] of Object.entries(given))
    if (session.inputNames.includes(name)) feeds[name] = new ort.Tensor(type, data, dims);
  return feeds;
}
async function answer([id, what, given]) {
  try {
    if (what === "open") {
      ort = await import(URL.createObjectURL(new Blob([given.loader], {type: "text/javascript"})));
      ort.env.wasm.wasmBinary = given.program;
      ort.env.wasm.numThreads = 1;
      ort.env.logLevel = "error";
      const on = async where => { session = await ort.InferenceSession.create(given.graph, {
        executionProviders: [where], logSeverityLevel: 3, externalData: [{path: "weights", data: given.weights}]}); };
      let chip = false;
      if (given.checks) try {
        if (await navigator.gpu?.requestAdapter()) {
          await on("webgpu");
          chip = await agrees(given.checks, given.output, given.tolerance);
        }
      } catch { /* the processor computes */ }
      if (!chip) await on("wasm");
      postMessage([id, {inputs: session.inputNames, chip}]);
      return;
    }
    const start = performance.now(), found = await session.run(tensors(given.feeds), given.names), took = performance.now() - start;
    const outputs = {};
    for (const name of given.names) outputs[name] = {dims: found[name].dims, data: found[name].data};
    postMessage([id, {outputs, took}]);
  } catch (error) { postMessage([id, {error: String(error?.message ?? error)}]); }
}`;

export class Live {
  constructor(about) {
    this.about = about; this.live = true; this.took = null;
    this.changes = neutral(about); this.cache = new Map(); this.wanted = null; this.version = 0;
    this.calls = new Map(); this.count = 0;
    this.started = new Promise(done => { this.start = done; }); // until there is an image
  }
  async open() {
    const [loader, program, graph, weights] = await Promise.all(["loader", "program", "graph", "weights"].map(id => unpack(textOf(id))));
    const {all, named} = readWeights(weights, this.about.weights);
    this.weights = named;
    const url = (bytes, type) => URL.createObjectURL(new Blob([bytes], {type}));
    this.worker = new Worker(url(WORKER, "text/javascript"));
    this.worker.onmessage = ({data: [id, found]}) => {
      const {done, failed} = this.calls.get(id);
      this.calls.delete(id);
      if (found.error) failed(new Error(found.error)); else done(found);
    };
    this.worker.onerror = event => { for (const {failed} of this.calls.values()) failed(new Error(event.message ?? "the worker was not started")); };
    const opened = await this.ask("open", {loader, program, graph, weights: new Uint8Array(all.buffer), ...await this.checks()});
    this.runsOn = opened.chip ? "onWebgpu" : this.about.webgpu ? "noWebgpu" : "onWasm";
  }
  async checks() { // what torch gave for the first samples
    if (!this.about.webgpu) return {};
    const {values, output, tolerance} = this.about.webgpu, checks = [];
    for (const [i, each] of values.entries()) {
      const pixels = prepare(await readImage(this.about.samples[i].url), this.about.preprocess);
      checks.push({values: each, feeds: this.feeds(Float32Array.from(pixels), neutral(this.about))});
    }
    return {checks, output, tolerance};
  }
  ask(what, given) {
    return new Promise((done, failed) => {
      const id = this.count++;
      this.calls.set(id, {done, failed});
      this.worker.postMessage([id, what, given]);
    });
  }
  set(pixels, changes = this.changes) { // what is asked for from now on is about this image
    this.pixels = pixels; this.changes = changes; this.cache = new Map(); this.wanted = null; this.version++;
    this.start();
  }
  feeds(pixels, changes) {
    const [c, h, w] = this.about.input;
    const feeds = {images: {type: "float32", data: pixels, dims: [1, c, h, w]}};
    for (const [name, {dims, whole}] of Object.entries(this.about.changes))
      feeds["change." + name] = whole
        ? {type: "int64", data: BigInt64Array.from(changes[name], BigInt), dims}
        : {type: "float32", data: Float32Array.from(changes[name]), dims};
    return feeds;
  }
  // Aside: another image or other changes, nothing is kept.
  async once(pixels, changes, names) {
    const own = names.map(name => this.about.same[name] ?? name);
    const {outputs, took} = await this.ask("run", {feeds: this.feeds(pixels, changes), names: [...new Set(own)]});
    this.took = took;
    return Object.fromEntries(names.map((name, i) => [name, outputs[own[i]]]));
  }
  get(...names) { // a promise of arrays, in the order of the names
    for (const name of names) if (!this.cache.has(name)) {
      if (!this.wanted) {
        const round = this.wanted = {names: new Set()};
        round.found = this.started.then(() => new Promise(done => setTimeout(done, 0))).then(() => {
          if (this.wanted === round) this.wanted = null;
          return this.once(this.pixels, this.changes, [...round.names]);
        });
      }
      this.wanted.names.add(name);
      const {found} = this.wanted;
      this.cache.set(name, found.then(outputs => outputs[name]));
    }
    return Promise.all(names.map(name => this.cache.get(name)));
  }
  weight(name) { return this.weights.get(name); }
}

// In place of a model: the numbers of one image, as far as the page has them.
export class Stored extends Live {
  async open() {
    const [numbers, weights] = await Promise.all(["numbers", "weights"].map(id => unpack(textOf(id))));
    this.live = false;
    this.numbers = readWeights(numbers, this.about.numbers).named;
    this.weights = readWeights(weights, this.about.weights).named;
  }
  async once(pixels, changes, names) {
    return Object.fromEntries(names.map(name => {
      const {shape, data} = this.numbers.get(this.about.same[name] ?? name);
      return [name, {dims: shape, data}];
    }));
  }
}

export function neutral(about) {
  return Object.fromEntries(Object.entries(about.changes).map(([name, {dims, whole}]) =>
    [name, Array.from({length: sizeOf(dims)}, (_, i) => whole ? i : 1)]));
}
