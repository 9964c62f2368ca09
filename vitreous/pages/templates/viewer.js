// What a model looks at: a picture that is cut into patches, and the attention of the one that is
// pointed at. One file for look.html and the living page, which have it inside, and for the server's page.
// Numbers are stored in the page, or come from functions that ask the model (`layer.live`, maps that are functions).

export const ENGLISH = {
  stage: "Picture cut into patches; arrow keys choose one",
  light: "Light: much. Dark: little.",
  what: "What to show",
  layer: "Layer",
  head: "Head",
  layerOf: (number, last) => `${number} of ${last}`,
  headNumber: number => `head ${number}`,
  meanHead: "mean of all heads",
  query: name => `where the query of ${name} looks`,
  attention: encoder => "attention of the chosen patch" + (encoder ? ", in the encoder" : ""),
  map: name => name,
  position: "position: places like the chosen patch's",
  hint: "Point at a patch, tap it, or focus the picture and use the arrow keys",
  stop: ".",
  orObject: "; or choose an object",
  orToken: names => `; T chooses ${names.join(", then ")}`,
  mostAlike: "most alike",
  onePatch: share => `${share} on one patch`,
  place: (row, column) => `row ${row}, column ${column}`,
  patch: place => `The patch in ${place}`,
  token: name => name[0].toUpperCase() + name.slice(1),
  nothing: "There is nothing to show.",
  noPlace: "The token that the head reads has no place in the picture: choose a patch.",
  queryLooks: (name, place, share) => `The query that found ${name} looks most at ${place}: ${share}.`,
  attends: (who, place, share, rest) => `${who} attends most to ${place}: ${share}${rest}.`,
  toTokens: share => `; ${share} goes to tokens without a place`,
  toPadding: share => `; ${share} goes to the padding around the image`,
  alike: (who, place) => `${who} is most like ${place}.`,
  strongest: (place, share) => `Strongest in ${place}: ${share} of the whole.`,
  note: text => text,
};

// From dark to light, so that it reads without colour vision, too.
const STOPS = [[20, 8, 46], [59, 50, 130], [33, 112, 141], [42, 170, 120], [150, 215, 60], [255, 240, 90]];
function colour(share) {
  const x = Math.max(0, Math.min(1, share)) * (STOPS.length - 1), i = Math.min(Math.floor(x), STOPS.length - 2);
  const part = STOPS[i].map((v, k) => Math.round(v + (STOPS[i + 1][k] - v) * (x - i)));
  return `rgba(${part},${0.2 + 0.65 * share})`; // the photo stays visible where there is little
}

function read(url) { // a PNG's gray values
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = image.width; canvas.height = image.height;
      const context = canvas.getContext("2d", {willReadFrequently: true});
      context.drawImage(image, 0, 0);
      const rgba = context.getImageData(0, 0, image.width, image.height).data;
      const gray = new Uint8Array(rgba.length / 4);
      for (let i = 0; i < gray.length; i++) gray[i] = rgba[4 * i];
      done({width: image.width, height: image.height, gray});
    };
    image.onerror = failed;
    image.src = url;
  });
}
export const percent = v => (100 * v).toFixed(v < 0.01 ? 2 : 1) + " %";
const largest = map => map.reduce((a, b) => Math.max(a, b), -Infinity);

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    if (name in made) made[name] = value; else made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Fills `root` with the picture and the choices for it. `prefix` makes ids that are unique in the page.
export function openViewer(root, given, {words = ENGLISH, prefix = "", first = null} = {}) {
  const data = {prefix: 0, prefixNames: [], chosen: null, maps: {}, positions: null, objects: null, ...given};
  const parts = {};
  const at = name => parts[name];
  const part = (name, tag, properties = {}, ...children) =>
    parts[name] = element(tag, {id: prefix + name, ...properties}, ...children);
  root.replaceChildren(
    element("div", {className: "shown"},
      part("stage", "div", {className: "stage", tabIndex: 0, role: "application",
        ariaLabel: words.stage, "aria-describedby": prefix + "status"},
        part("picture", "img", {className: Math.max(...data.size) < 128 ? "pixelated" : "", alt: ""}), part("over", "canvas")),
      element("p", {className: "soft legend"}, words.light), part("scale", "div", {className: "scale"}),
      element("div", {className: "ends"}, element("span", {}, "0"), part("most", "span"))),
    element("div", {className: "choices"},
      element("label", {}, words.what, part("what", "select")),
      part("forLayer", "label", {}, words.layer + " ", part("layerName", "span"),
        part("layer", "input", {type: "range", min: 0, step: 1})),
      part("forHead", "label", {}, words.head, part("head", "select")),
      part("status", "output", {ariaLive: "polite"}),
      part("note", "p", {className: "soft"})));

  // The chosen token: a number below data.prefix, or a point of the picture, as shares of its sides; or an object, whose query asks.
  const state = {what: "attention", layer: 0, head: "mean", token: data.prefixNames[0]?.endsWith("token") ? 0 : null, object: null, y: 0.5, x: 0.5};
  const layers = () => state.object === null ? data.layers : data.objects.layers;
  const looking = () => state.what === "attention" || state.object !== null;
  if (data.chosen) { state.token = null; [state.y, state.x] = data.chosen; }
  const pixels = {};
  for (const layer of [...data.layers, ...(data.objects?.layers ?? [])]) {
    layer.tokens = data.prefix + layer.grid[0] * layer.grid[1];
    if (layer.windows) { // which row of the picture each patch has
      layer.row = new Map(layer.windows.map((patch, i) => [patch, i]));
    }
  }
  const finest = {grid: data.grid, pixels: data.pixels};
  function cell(of) { // row and column of the chosen point in a layer's grid
    return [0, 1].map(i => Math.min(of.grid[i] - 1, Math.floor((i ? state.x : state.y) * data.size[i] / of.pixels[i])));
  }
  function patchOf(of) { const [y, x] = cell(of); return y * of.grid[1] + x; }
  const place = (index, grid) => words.place(Math.floor(index / grid[1]) + 1, index % grid[1] + 1);
  async function matrix(name, url) { return pixels[name] ??= await read(url); }

  async function attention() { // a number for each token of the layer
    const layer = layers()[state.layer];
    if (layer.live) return living(layer);
    const packed = await matrix((state.object === null ? "layer" : "query") + state.layer, layer.attention);
    const perHead = packed.height / layer.heads, n = packed.width;
    const query = state.object ?? (layer.windows ? layer.row.get(patchOf(layer)) : state.token ?? data.prefix + patchOf(layer));
    const heads = state.head === "mean" ? [...Array(layer.heads).keys()] : [Math.min(+state.head, layer.heads - 1)];
    const sum = new Float32Array(layer.tokens);
    let padding = 0;
    for (const head of heads) {
      const number = head * perHead + query, most = layer.most[number];
      for (let i = 0; i < n; i++) { // stored as the root of the share of the row's largest value
        const token = layer.windows ? layer.windows[query - query % n + i] : i;
        const value = (packed.gray[number * n + i] / 255) ** 2 * most / heads.length;
        if (token >= 0) sum[token] += value; else padding += value;
      }
    }
    return {...layer, padding, map: sum.slice(data.prefix), rest: sum.slice(0, data.prefix).reduce((a, b) => a + b, 0)};
  }
  async function living(layer) { // the same from the model itself, (1, heads, queries, n)
    const {dims: [, heads, rows, n], data: weights} = await layer.live(), prefix = n - layer.grid[0] * layer.grid[1];
    const query = state.object === null ? state.token ?? prefix + patchOf(layer) : data.objects.queries[state.object], sum = new Float32Array(n);
    const chosen = state.head === "mean" ? [...Array(heads).keys()] : [Math.min(+state.head, heads - 1)];
    for (const head of chosen) for (let i = 0; i < n; i++) sum[i] += weights[(head * rows + query) * n + i] / chosen.length;
    return {...layer, padding: 0, map: sum.slice(prefix), rest: sum.slice(0, prefix).reduce((a, b) => a + b, 0)};
  }
  async function values() { // a map with its grid, or null
    if (looking()) return attention();
    if (state.what === "position") {
      if (state.token !== null) return null;
      const packed = await matrix("position", data.positions), start = patchOf(finest) * packed.width;
      return {...finest, map: Float32Array.from(packed.gray.slice(start, start + packed.width), v => v / 255)};
    }
    const stored = data.maps[state.what];
    if (typeof stored === "function") return {...finest, ...await stored(state.layer)};
    return stored ? {...finest, map: Float32Array.from(stored)} : null;
  }

  let turn = 0;
  async function draw() {
    const mine = ++turn, found = await values();
    if (mine !== turn) return; // something newer is being drawn
    const canvas = at("over"), scale = Math.max(1, Math.ceil(640 / Math.max(...data.size)));
    canvas.width = data.size[1] * scale; canvas.height = data.size[0] * scale;
    const context = canvas.getContext("2d");
    const asks = state.what === "attention" || state.what === "position";
    if (found) {
      const most = Math.max(largest(found.map), 1e-12), [h, w] = found.pixels.map(p => p * scale);
      found.map.forEach((v, i) => {
        context.fillStyle = found.colours ? found.colours[i] : colour(v / most);
        context.fillRect(i % found.grid[1] * w, Math.floor(i / found.grid[1]) * h, w, h);
      });
      at("most").textContent = found.colours ? "" : found.text ?? (state.what === "position" ? words.mostAlike : words.onePatch(percent(most)));
      for (const i of found.marks ?? []) { // tokens of unusual size
        context.fillStyle = "#ff3b6b";
        context.beginPath();
        context.arc((i % found.grid[1] + 0.5) * w, (Math.floor(i / found.grid[1]) + 0.5) * h, Math.min(w, h) / 6, 0, 7);
        context.fill();
      }
      if (asks && state.token === null) {
        const [y, x] = cell(found), line = Math.max(2, Math.min(w, h) / 24);
        context.lineWidth = line;
        for (const [ink, inset] of [["#000", 0], ["#ffd400", line]]) {
          context.strokeStyle = ink;
          context.strokeRect(x * w + inset, y * h + inset, w - 2 * inset, h - 2 * inset);
        }
      }
    }
    if (state.object !== null) {
      const [left, top, right, bottom] = data.objects.boxes[state.object].map((v, i) => v * data.size[1 - i % 2] * scale);
      for (const [ink, width] of [["#000", 7], ["#ffd400", 3]]) {
        context.strokeStyle = ink; context.lineWidth = width * canvas.width / 640;
        context.strokeRect(left, top, right - left, bottom - top);
      }
    }
    if (!found) at("most").textContent = "";
    at("status").textContent = sentence(found, asks);
    at("forLayer").hidden = !looking() && !data.byLayer?.includes(state.what);
    at("forHead").hidden = !looking();
    const layer = layers()[state.layer];
    if (!layer) return;
    if (state.head !== "mean" && +state.head >= layer.heads) { at("head").value = state.head = "mean"; draw(); return; }
    at("layerName").textContent = words.layerOf(layer.number, layers().at(-1).number);
    for (const choice of at("head").options) choice.disabled = choice.value !== "mean" && +choice.value >= layer.heads;
  }
  function sentence(found, asks) {
    if (!found) return data.prefix ? words.noPlace : words.nothing;
    if (found.sentence) return found.sentence;
    const best = found.map.indexOf(largest(found.map)), there = place(best, found.grid), share = percent(found.map[best]);
    if (state.object !== null) return words.queryLooks(data.objects.names[state.object], there, share);
    const own = state.token === null ? patchOf(found) : -1;
    const who = own >= 0 ? words.patch(place(own, found.grid)) : words.token(data.prefixNames[state.token] ?? "");
    if (state.what === "attention") {
      let rest = data.prefix ? words.toTokens(percent(found.rest)) : "";
      if (found.padding > 0.005) rest += words.toPadding(percent(found.padding));
      return words.attends(who, there, share, rest);
    }
    if (asks) {
      const others = found.map.map((v, i) => i === own ? -1 : v);
      return words.alike(who, place(others.indexOf(largest(others)), found.grid));
    }
    return words.strongest(there, share);
  }
  function grid() { return state.what === "attention" ? data.layers[state.layer] : finest; }
  let tapped = null; // what a tap on a patch does besides
  let shown = null; // the layers among which one is chosen
  function show(what) { // a patch's attention, an object's, or a map
    state.object = what.startsWith("object ") ? +what.slice(7) : null;
    state.what = what;
    if (shown !== layers()) {
      shown = layers();
      state.layer = Math.max(shown.length - 1, 0);
      at("layer").max = state.layer; // first: a value above it would be cut off
      at("layer").value = state.layer;
    }
    draw();
  }
  function choose(y, x) { // the centre of a patch
    const of = grid();
    state.token = null;
    state.y = Math.min(0.9999, (y + 0.5) * of.pixels[0] / data.size[0]);
    state.x = Math.min(0.9999, (x + 0.5) * of.pixels[1] / data.size[1]);
    draw();
  }

  const stage = at("stage");
  stage.addEventListener("pointermove", event => { if (!tapped) point(event); });
  stage.addEventListener("pointerdown", event => { leaveObject(); point(event); if (tapped) tapped(patchOf(finest)); });
  function leaveObject() { // a patch is chosen: what does it attend to?
    if (state.object === null || !data.layers.length) return;
    at("what").value = "attention"; show("attention");
  }
  function point(event) {
    const box = stage.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
    if (x < 0 || y < 0 || x >= 1 || y >= 1) return;
    const before = state.token === null ? patchOf(grid()) : -1;
    state.token = null; state.y = y; state.x = x;
    if (patchOf(grid()) !== before) draw();
  }
  stage.addEventListener("keydown", event => {
    const of = grid(), [y, x] = cell(of);
    const moves = {ArrowLeft: [y, x - 1], ArrowRight: [y, x + 1], ArrowUp: [y - 1, x], ArrowDown: [y + 1, x]};
    if (event.key.toLowerCase() === "t" && data.prefix) {
      state.token = state.token === null ? 0 : (state.token + 1) % data.prefix;
      draw();
    }
    else if (tapped && (event.key === "Enter" || event.key === " ")) tapped(patchOf(finest));
    else if (moves[event.key]) {
      leaveObject();
      const [line, column] = moves[event.key];
      choose(Math.max(0, Math.min(of.grid[0] - 1, line)), Math.max(0, Math.min(of.grid[1] - 1, column)));
    } else return;
    event.preventDefault();
  });
  function option(select, value, text) { select.append(new Option(text, value)); }
  if (data.objects) data.objects.names.forEach((name, i) => option(at("what"), "object " + i, words.query(name)));
  if (data.layers.length) option(at("what"), "attention", words.attention(data.objects));
  for (const name of Object.keys(data.maps)) option(at("what"), name, words.map(name));
  if (data.positions) option(at("what"), "position", words.position);
  const heads = Math.max(1, ...[...data.layers, ...(data.objects?.layers ?? [])].map(layer => layer.heads));
  option(at("head"), "mean", heads > 1 ? words.meanHead : words.note(data.headName));
  if (heads > 1) for (let i = 0; i < heads; i++) option(at("head"), i, words.headNumber(i + 1));
  at("what").addEventListener("input", event => show(event.target.value));
  for (const name of ["layer", "head"])
    at(name).addEventListener("input", event => { state[name] = name === "layer" ? +event.target.value : event.target.value; draw(); });
  at("scale").style.background = `linear-gradient(90deg,${STOPS.map(stop => `rgb(${stop})`)})`;
  at("picture").src = data.picture; at("note").textContent = words.note(data.note);
  if (data.objects && !data.objects.first && data.layers.length) at("what").value = "attention";
  if ([...at("what").options].some(choice => choice.value === first)) at("what").value = first;
  show(at("what").value);

  const more = data.prefix ? words.orToken(data.prefixNames) : data.objects ? words.orObject : "";
  return {
    hint: words.hint + more + words.stop, redraw: draw, state,
    picture(url) { at("picture").src = url; draw(); },
    onTap(what) { tapped = what; },
    open(layer, head, token) { // another view than the last layer's mean
      state.layer = layer; at("layer").value = layer;
      state.head = head; at("head").value = head;
      state.token = token;
      draw();
    },
    set(what) { at("what").value = what; show(what); },
  };
}
