// What a model looks at: a picture that is cut into patches, and the attention of the one that is
// pointed at. One file for look.html and the living page, which have it inside, and for the server's page.
// Numbers are stored in the page, or come from functions that ask the model (`layer.live`, maps that are functions).
// `say` speaks the words of [viewer] in words.toml; names and notes in the data are messages for it, or plain texts.

// From dark to light, so that it reads without colour vision, too.
const STOPS = [[20, 8, 46], [59, 50, 130], [33, 112, 141], [42, 170, 120], [150, 215, 60], [255, 240, 90]];
export function colour(share) {
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
const capital = text => text.charAt(0).toUpperCase() + text.slice(1);
const largest = map => map.reduce((a, b) => Math.max(a, b), -Infinity);

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    if (name in made) made[name] = value; else made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Fills `root` with the picture and the choices for it. `prefix` makes ids that are unique in the page; `first` is what
// to show at first; `before` is the state of a viewer that this one replaces, in another language.
export function openViewer(root, given, {say, prefix = "", first = null, before = null, onChoice = null}) {
  const data = {prefix: 0, prefixNames: [], chosen: null, maps: {}, mapNames: {}, positions: null, objects: null, note: [], ...given};
  const tokens = data.prefixNames.map(say.message);
  const parts = {};
  const at = name => parts[name];
  const part = (name, tag, properties = {}, ...children) =>
    parts[name] = element(tag, {id: prefix + name, ...properties}, ...children);
  root.replaceChildren(
    element("div", {className: "shown"},
      part("stage", "div", {className: "stage", tabIndex: 0, role: "application",
        ariaLabel: say("stage"), "aria-describedby": prefix + "status"},
        part("picture", "img", {className: Math.max(...data.size) < 128 ? "pixelated" : "", alt: ""}), part("over", "canvas")),
      part("legend", "p", {className: "soft legend"}, say("light")), part("scale", "div", {className: "scale"}),
      part("ends", "div", {className: "ends"}, element("span", {}, "0"), part("most", "span"))),
    element("div", {className: "choices"},
      element("label", {}, say("what"), part("what", "select")),
      part("forLayer", "label", {}, say("layer") + " ", part("layerName", "span"),
        part("layer", "input", {type: "range", min: 0, step: 1})),
      part("forHead", "label", {}, say("head"), part("head", "select")),
      part("status", "output", {ariaLive: "polite"}),
      part("note", "p", {className: "soft"})));

  // The chosen token: a number below data.prefix, or a point of the picture, as shares of its sides; or an object, whose query asks.
  const state = {what: "attention", layer: 0, head: "mean", token: null, object: null, y: 0.5, x: 0.5};
  const layers = () => state.object === null ? data.layers : data.objects.layers;
  const looking = () => state.what === "attention" || state.object !== null;
  if (data.chosen) [state.y, state.x] = data.chosen;
  const pixels = {};
  for (const layer of [...data.layers, ...(data.objects?.layers ?? [])]) {
    if (layer.windows) { // which row of the picture each patch has
      layer.row = new Map(layer.windows.map((patch, i) => [patch, i]));
    }
  }
  const finest = {grid: data.grid, pixels: data.pixels};
  function cell(of) { // row and column of the chosen point in a layer's grid
    return [0, 1].map(i => Math.min(of.grid[i] - 1, Math.floor((i ? state.x : state.y) * data.size[i] / of.pixels[i])));
  }
  function patchOf(of) { const [y, x] = cell(of); return y * of.grid[1] + x; }
  const place = (index, grid) => say("place", Math.floor(index / grid[1]) + 1, index % grid[1] + 1);
  async function matrix(name, url) { return pixels[name] ??= await read(url); }

  async function weights() { // of the layer, for each head: rows of n columns; each column is a token, or -1 for padding
    const layer = layers()[state.layer], {windows} = layer;
    const token = windows ? (row, i, n) => windows[row - row % n + i] : (row, i) => i;
    if (layer.live) { // (1, heads, queries, n)
      const {dims: [, heads, rows, n], data: live} = await layer.live();
      return {layer, heads, n, rows, token, prefix: n - layer.grid[0] * layer.grid[1], value: (head, row, i) => live[(head * rows + row) * n + i]};
    }
    const packed = await matrix((state.object === null ? "layer" : "query") + state.layer, layer.attention);
    const n = packed.width, rows = packed.height / layer.heads;
    const value = (head, row, i) => { // stored as the root of the share of the row's largest value
      const number = head * rows + row;
      return (packed.gray[number * n + i] / 255) ** 2 * layer.most[number];
    };
    return {layer, heads: layer.heads, n, rows, token, prefix: data.prefix, value};
  }
  async function attention() { // a number for each token of the layer
    const {layer, heads, n, token, prefix, value} = await weights();
    const query = state.object !== null ? data.objects.queries?.[state.object] ?? state.object
      : layer.windows ? layer.row.get(patchOf(layer)) : state.token ?? prefix + patchOf(layer);
    const chosen = state.head === "mean" ? [...Array(heads).keys()] : [Math.min(+state.head, heads - 1)];
    const sum = new Float32Array(prefix + layer.grid[0] * layer.grid[1]);
    let padding = 0;
    for (const head of chosen) for (let i = 0; i < n; i++) {
      const share = value(head, query, i) / chosen.length, there = token(query, i, n);
      if (there >= 0) sum[there] += share; else padding += share;
    }
    return {...layer, padding, map: sum.slice(prefix), rest: sum.slice(0, prefix).reduce((a, b) => a + b, 0)};
  }
  async function mostLocal() { // the head whose patches attend to the nearest patches, on average
    const {layer: {grid, windows}, heads, n, rows, token, prefix, value} = await weights();
    if (heads === 1) return "mean";
    const step = Math.ceil(rows / 200); // some rows tell enough
    const means = Array.from({length: heads}, (_, head) => {
      let far = 0, all = 0;
      for (let row = 0; row < rows; row += step) {
        const from = (windows ? windows[row] : row) - prefix;
        if (from >= 0) for (let i = 0; i < n; i++) {
          const to = token(row, i, n) - prefix, share = value(head, row, i);
          if (to < 0) continue;
          far += share * Math.hypot(Math.floor(from / grid[1]) - Math.floor(to / grid[1]), from % grid[1] - to % grid[1]);
          all += share;
        }
      }
      return far / all;
    });
    return String(means.indexOf(Math.min(...means)));
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
    if (state.what === "attention") at("what").value = state.token === null ? "attention" : "token " + state.token;
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
      at("most").textContent = found.colours ? "" : found.text ?? (state.what === "position" ? say("mostAlike") : say("onePatch", percent(most)));
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
    at("legend").hidden = !looking(); at("scale").hidden = at("ends").hidden = Boolean(found?.colours);
    if (looking() && state.object === null && !layers()[state.layer]?.windows) onChoice?.(state.token ?? data.prefix + patchOf(layers()[state.layer] ?? finest), state.head);
    at("status").textContent = sentence(found, asks);
    at("forLayer").hidden = !looking() && !data.byLayer?.includes(state.what);
    at("forHead").hidden = !looking();
    const layer = layers()[state.layer];
    if (!layer) return;
    if (state.head !== "mean" && +state.head >= layer.heads) { at("head").value = state.head = "mean"; draw(); return; }
    at("layerName").textContent = say("layerOf", layer.number, layers().at(-1).number);
    for (const choice of at("head").options) choice.disabled = choice.value !== "mean" && +choice.value >= layer.heads;
  }
  function sentence(found, asks) {
    if (!found) return data.prefix ? say("noPlace") : say("nothing");
    if (found.sentence) return found.sentence;
    const best = found.map.indexOf(largest(found.map)), there = place(best, found.grid), share = percent(found.map[best]);
    if (state.object !== null) return say("queryLooks", data.objects.names[state.object], there, share);
    const own = state.token === null ? patchOf(found) : -1;
    const who = own >= 0 ? say("patch", place(own, found.grid)) : capital(tokens[state.token] ?? "");
    if (state.what === "attention") {
      let rest = tokens.length === 1 ? say("toToken", percent(found.rest), tokens[0]) : data.prefix ? say("toTokens", percent(found.rest)) : "";
      if (found.padding > 0.005) rest += say("toPadding", percent(found.padding));
      return say("attends", who, there, share, rest);
    }
    if (asks) {
      const others = found.map.map((v, i) => i === own ? -1 : v);
      return say("alike", who, place(others.indexOf(largest(others)), found.grid));
    }
    return say("strongest", there, share);
  }
  function grid() { return state.what === "attention" ? data.layers[state.layer] : finest; }
  let tapped = null; // what a tap on a patch does besides
  let shown = null; // the layers among which one is chosen
  async function show(what) { // the attention of a patch, of another token or of an object, or a map
    state.object = what.startsWith("object ") ? +what.slice(7) : null;
    state.token = what.startsWith("token ") ? +what.slice(6) : null;
    state.what = state.token === null ? what : "attention";
    const other = shown !== layers();
    if (other) {
      shown = layers();
      view(state.object === null ? shown.length >> 1 : shown.length - 1, "mean");
    }
    draw();
    // In the last layer's mean, large models look at a few patches in a corner: the middle and the most local head show more.
    if (!other || state.object !== null || !shown.length) return;
    const {layer} = state, head = await mostLocal();
    if (shown === layers() && state.layer === layer && state.head === "mean") { view(layer, head); draw(); }
  }
  function view(layer, head) {
    at("layer").max = layers().length - 1; // first: a value above it would be cut off
    at("layer").value = state.layer = Math.max(layer, 0);
    at("head").value = state.head = head;
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
    else if (event.key === "Enter" || event.key === " ") tapped?.(patchOf(finest)); // and no scrolling
    else if (moves[event.key]) {
      leaveObject();
      const [line, column] = moves[event.key];
      choose(Math.max(0, Math.min(of.grid[0] - 1, line)), Math.max(0, Math.min(of.grid[1] - 1, column)));
    } else return;
    event.preventDefault();
  });
  function option(select, value, text) { select.append(new Option(text, value)); }
  if (data.objects) data.objects.names.forEach((name, i) => option(at("what"), "object " + i, say("query", name)));
  if (data.layers.length) {
    option(at("what"), "attention", say(data.objects ? "inEncoder" : "attention"));
    tokens.forEach((name, i) => option(at("what"), "token " + i, say("ofToken", name)));
  }
  for (const name of Object.keys(data.maps)) option(at("what"), name, say.message(data.mapNames[name] ?? name));
  if (data.positions) option(at("what"), "position", say("position"));
  const heads = Math.max(1, ...[...data.layers, ...(data.objects?.layers ?? [])].map(layer => layer.heads));
  option(at("head"), "mean", heads > 1 ? say("meanHead") : say.message(data.headName));
  if (heads > 1) for (let i = 0; i < heads; i++) option(at("head"), i, say("headNumber", i + 1));
  at("what").addEventListener("input", event => show(event.target.value));
  for (const name of ["layer", "head"])
    at(name).addEventListener("input", event => { state[name] = name === "layer" ? +event.target.value : event.target.value; draw(); });
  at("scale").style.background = `linear-gradient(90deg,${STOPS.map(stop => `rgb(${stop})`)})`;
  at("picture").src = data.picture; at("note").textContent = data.note.map(say.message).join(say("between"));
  if (data.objects && !data.objects.first && data.layers.length) at("what").value = "attention";
  if ([...at("what").options].some(choice => choice.value === first)) at("what").value = first;
  if (before) {
    at("what").value = Object.assign(state, before).what;
    shown = layers();
    view(before.layer, before.head);
    draw();
  } else show(at("what").value);

  const more = data.prefix ? say("orToken", tokens.join(say("then"))) : data.objects ? say("orObject") : "";
  return {
    hint: say("hint") + more + say("stop"), state,
    picture(url) { at("picture").src = url; draw(); },
    onTap(what) { tapped = what; },
    select(token, head = state.head, layer = state.layer) { // from elsewhere in the page
      const own = state.token ?? data.prefix + patchOf(finest), other = state.object === null && (String(head) !== state.head || layer !== state.layer);
      if (other) view(layer, String(head));
      if ((token ?? own) === own) { if (other) draw(); return; }
      if (token < data.prefix) { state.token = token; draw(); } else choose(Math.floor((token - data.prefix) / data.grid[1]), (token - data.prefix) % data.grid[1]);
    },
  };
}
