// Step by step: every step of the model as a matrix whose cells can be opened down to one multiplication.
import {element} from "../templates/viewer.js";

const BLUE = [33, 102, 172], RED = [178, 24, 43], PAPER = [247, 247, 247];
const DARK = [20, 8, 46], LIGHT = [255, 240, 90], MIDDLE = [42, 150, 130];
const mix = (a, b, t) => a.map((v, i) => v + (b[i] - v) * t);
const signed = t => t < 0 ? mix(PAPER, BLUE, Math.min(1, -t)) : mix(PAPER, RED, Math.min(1, t));
const shares = t => t < 0.5 ? mix(DARK, MIDDLE, 2 * t) : mix(MIDDLE, LIGHT, 2 * t - 1);
const number = v => {
  const a = Math.abs(v);
  return a === 0 ? "0" : a >= 1e4 || a < 1e-4 ? v.toExponential(1) : v.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : a >= 0.01 ? 3 : 5);
};
const erf = x => { // to 1.2e-7, by a rational of Numerical Recipes' form
  const t = 1 / (1 + 0.5 * Math.abs(x));
  const y = 1 - t * Math.exp(-x * x - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 +
    t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
  return x < 0 ? -y : y;
};
const ACTIVATIONS = {
  gelu: x => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  "gelu-tanh": x => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  "quick-gelu": x => x / (1 + Math.exp(-1.702 * x)),
  relu: x => Math.max(0, x), "leaky-relu": x => x < 0 ? 0.01 * x : x, silu: x => x / (1 + Math.exp(-x)), tanh: Math.tanh,
};

// What is shown of an output: matrices (heads, rows, columns); a map is a row for each place.
export function matrixOf({dims, data}) {
  const shape = dims.slice(dims.length > 2 || dims[0] === 1 ? 1 : 0);
  if (shape.length === 1) return {heads: 1, rows: 1, columns: shape[0], at: (h, r, c) => data[c]};
  if (shape.length === 2) return {heads: 1, rows: shape[0], columns: shape[1], at: (h, r, c) => data[r * shape[1] + c]};
  const [a, b, c] = shape;
  return {heads: a, rows: b, columns: c, at: (h, r, col) => data[(h * b + r) * c + col]};
}

export class Steps {
  constructor(root, engine, say, chose = () => {}) {
    this.chose = chose; // tells the picture which token is chosen here
    this.root = root; this.engine = engine; this.about = engine.about; this.say = say;
    this.open = new Set(); this.cells = new Map(); this.head = 0; this.cards = [];
  }
  language() { this.build(); }
  build() {
    const {about, say} = this, lang = say.number;
    this.cards = [];
    this.root.replaceChildren();
    let at = 0, inside = null;
    for (const step of about.steps) {
      if (step.block === null) inside = null;
      else if (!inside || inside.block !== step.block) inside = this.block(step.block);
      const card = this.card(step, ++at, lang);
      (inside ? inside.body : this.root).append(card.root);
      this.cards.push(card);
    }
    this.draw();
  }
  block(number) {
    const {say} = this, id = "block " + number;
    const body = element("div", {className: "inside"});
    const root = element("details", {className: "block", open: this.open.has(id)},
      element("summary", {}, element("b", {}, say("block", number + 1)), " ", element("span", {className: "soft"}, say("blockIs"))), body);
    root.addEventListener("toggle", () => { this.mark(id, root.open); this.draw(); });
    this.root.append(root);
    return {block: number, body};
  }
  mark(id, open) { if (open) this.open.add(id); else this.open.delete(id); }
  card(step, place, lang) {
    const {say, about} = this, id = `step ${place}`;
    const parts = {
      shape: element("span", {className: "shape"}), canvas: element("canvas", {tabIndex: 0, role: "img"}),
      heads: element("div", {className: "heads"}), cell: element("div", {className: "cell"}), scale: element("div", {className: "soft small"}),
    };
    const source = step.source && element("p", {className: "source"}, element("code", {}, step.source.code),
      element("span", {className: "soft"}, ` ${step.source.file}:${step.source.line}`));
    const equation = element("div", {className: "equation"});
    equation.innerHTML = step.equation; // our own, from steps.toml
    const root = element("details", {className: "step", open: this.open.has(id)},
      element("summary", {}, element("span", {className: "place"}, String(place)), element("b", {}, step.key === "other" ? step.output : step.title[lang]), " ", parts.shape),
      element("p", {}, step.why[lang]), equation, ...(source ? [source] : []), parts.heads,
      element("div", {className: "matrix"}, parts.canvas), parts.scale, parts.cell);
    const card = {step, place, id, root, parts, chosen: this.cells.get(id) ?? null};
    root.addEventListener("toggle", () => { this.mark(id, root.open); this.draw(); });
    parts.canvas.addEventListener("pointerdown", event => this.point(card, event));
    parts.canvas.addEventListener("keydown", event => this.key(card, event));
    const shape = about.outputs[about.same[step.output] ?? step.output];
    if (shape) parts.shape.textContent = shape.slice(shape.length > 2 ? 1 : 0).join(" × ");
    return card;
  }
  visible(card) { return card.root.open && (!card.root.parentElement.closest("details") || card.root.parentElement.closest("details").open); }
  // The name of a row or a column, in words.
  token(i) {
    const {prefix, grid, tokens} = this.about;
    if (i < prefix) return tokens[i] ? tokens[i][this.say.number] : this.say("tokenNumber", i + 1);
    return this.say("patchAt", Math.floor((i - prefix) / grid[1]) + 1, (i - prefix) % grid[1] + 1);
  }
  rowName(card, matrix, row) {
    const n = this.about.grid[0] * this.about.grid[1], key = card.step.key;
    if (key === "head" || key === "answer") return "";
    if (matrix.pixels) return this.say("row", row + 1);
    if (matrix.rows === n + this.about.prefix) return this.token(row);
    if (matrix.rows === n) return this.token(row + this.about.prefix);
    return matrix.rows === 1 ? "" : this.say("row", row + 1);
  }
  columnName(card, matrix, column) {
    const key = card.step.key;
    if (["scores", "scaled", "weights"].includes(key)) return this.token(column);
    if (key === "head" || key === "answer") return this.about.labels[column] ?? String(column);
    return this.say(matrix.pixels ? "column" : "number", column + 1);
  }
  async draw() {
    if (!this.engine.pixels) return;
    const {engine} = this, version = engine.version;
    const seen = this.cards.filter(card => this.visible(card));
    await Promise.all(seen.map(async card => {
      const found = await this.values(card.step);
      if (version !== engine.version) return; // something newer is on its way
      card.matrix = found;
      this.paint(card);
      await this.explain(card);
    }));
  }
  async values(step) {
    const {about, engine} = this;
    if (step.key === "image") {
      const [c, h, w] = about.input;
      return {heads: c, rows: h, columns: w, at: (k, y, x) => (engine.seen ?? engine.pixels)[(k * h + y) * w + x], pixels: true};
    }
    if (step.key === "answer") {
      const [{data}] = await engine.get(step.how.of), most = Math.max(...data);
      const exp = Float32Array.from(data, v => Math.exp(v - most)), sum = exp.reduce((a, b) => a + b, 0);
      return {heads: 1, rows: 1, columns: data.length, at: (h, r, c) => exp[c] / sum};
    }
    const [found] = await engine.get(step.output);
    if (found.dims.length === 4 && step.key === "other" && !step.output.includes("attention")) { // a map: its places are rows
      const [, d, h, w] = found.dims;
      return {heads: 1, rows: h * w, columns: d, at: (k, r, c) => found.data[c * h * w + r]};
    }
    return matrixOf(found);
  }
  paint(card) {
    const {parts, matrix} = card, {heads, rows, columns} = matrix;
    this.head = Math.min(this.head, 99);
    const head = Math.min(this.head, heads - 1);
    card.head = head;
    parts.heads.replaceChildren();
    if (heads > 1) for (let h = 0; h < heads; h++) {
      const name = matrix.pixels ? (heads === 3 ? this.say("channel")[h] : this.say("row", h + 1)) : this.say("head", h + 1);
      const button = element("button", {type: "button", ariaPressed: String(h === head)}, name);
      button.addEventListener("click", () => { this.head = h; this.draw(); });
      parts.heads.append(button);
    }
    let most = 0, least = Infinity, largest = -Infinity;
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
      const v = matrix.at(head, r, c);
      most = Math.max(most, Math.abs(v)); least = Math.min(least, v); largest = Math.max(largest, v);
    }
    const isShare = ["weights", "answer"].includes(card.step.key);
    const strip = rows === 1; // a vector is drawn in several lines if it is long
    const wide = strip ? Math.min(columns, 64) : columns, tall = strip ? Math.ceil(columns / wide) : rows;
    card.wide = strip ? wide : 0;
    const size = Math.max(1, Math.min(Math.floor(880 / wide), strip ? 22 : Math.max(1, Math.floor(520 / tall)), 26));
    const canvas = parts.canvas, context = canvas.getContext("2d");
    canvas.width = wide * size; canvas.height = tall * size; card.size = size;
    const small = context.createImageData(wide, tall);
    for (let r = 0; r < tall; r++) for (let c = 0; c < wide; c++) {
      const column = strip ? r * wide + c : c;
      if (column >= columns) continue;
      const v = matrix.at(head, strip ? 0 : r, column);
      const ink = matrix.pixels ? [v, v, v] : isShare ? shares(Math.sqrt(v / (largest || 1))) : signed(Math.sign(v) * Math.sqrt(Math.abs(v) / (most || 1)));
      small.data.set([...ink, 255], 4 * (r * wide + c));
    }
    const off = new OffscreenCanvas(wide, tall);
    off.getContext("2d").putImageData(small, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(off, 0, 0, canvas.width, canvas.height);
    if (matrix.pixels) this.lines(context, size);
    card.chosen ??= this.first(card);
    const own = this.rowOf(matrix);
    if (own !== null && !matrix.pixels) card.chosen = [own, card.chosen[1]];
    const [row, column] = card.chosen = [Math.min(card.chosen[0], rows - 1), Math.min(card.chosen[1], columns - 1)];
    const [y, x] = strip ? [Math.floor(column / wide), column % wide] : [row, column];
    for (const [ink, inset, line] of [["#000", 0, Math.max(2, size / 6)], ["#ffd400", 1, Math.max(1, size / 8)]]) {
      context.strokeStyle = ink; context.lineWidth = line;
      context.strokeRect(x * size + inset - (size < 6 ? 2 : 0), y * size + inset - (size < 6 ? 2 : 0), Math.max(size, size < 6 ? 5 : size) - 2 * inset, Math.max(size, size < 6 ? 5 : size) - 2 * inset);
    }
    canvas.setAttribute("aria-label", this.say("matrixIs", rows, columns));
    parts.scale.textContent = isShare ? this.say("shareScale", number(largest)) : matrix.pixels ? this.say("pixelScale") : this.say("signedScale", number(least), number(largest));
  }
  first(card) { // the cell that is open at the beginning: of the class token, or of a patch in the middle
    const {rows, columns} = card.matrix;
    if (["head", "answer"].includes(card.step.key)) {
      let best = 0;
      for (let c = 0; c < columns; c++) if (card.matrix.at(0, 0, c) > card.matrix.at(0, 0, best)) best = c;
      return [0, best];
    }
    if (card.step.key === "image") return [rows >> 1, columns >> 1];
    return [Math.min(this.rowOf(card.matrix) ?? (rows >> 1), rows - 1), Math.min(columns >> 1, columns - 1)];
  }
  // The chosen token is the same in all steps, so that one patch can be followed.
  rowOf({rows}) {
    const {prefix, grid} = this.about, n = grid[0] * grid[1];
    if (this.chosen === undefined) return rows === n ? rows >> 1 : rows === n + prefix ? prefix + (n >> 1) : null;
    return rows === n + prefix ? this.chosen : rows === n ? Math.max(0, this.chosen - prefix) : null;
  }
  select(token, head) { // chosen in the picture
    if (this.chosen === token && (head === "mean" || +head === this.head)) return;
    this.chosen = token;
    if (head !== "mean") this.head = +head;
    this.draw();
  }
  follow({rows}, row) {
    const {prefix, grid} = this.about, n = grid[0] * grid[1];
    if (rows !== n && rows !== n + prefix) return false;
    this.chosen = rows === n ? row + prefix : row;
    return true;
  }
  lines(context, size) {
    const [ph, pw] = this.about.pixels, [, h, w] = this.about.input;
    context.fillStyle = "#ffd400aa";
    for (let y = ph; y < h; y += ph) context.fillRect(0, y * size - 0.5, w * size, 1);
    for (let x = pw; x < w; x += pw) context.fillRect(x * size - 0.5, 0, 1, h * size);
  }
  point(card, event) {
    const box = card.parts.canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left) / box.width * card.parts.canvas.width / card.size);
    const y = Math.floor((event.clientY - box.top) / box.height * card.parts.canvas.height / card.size);
    this.choose(card, card.wide ? 0 : y, card.wide ? y * card.wide + x : x);
  }
  key(card, event) {
    const [row, column] = card.chosen, down = card.wide || 0;
    const moves = {ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: down ? [0, column - down] : [row - 1, column], ArrowDown: down ? [0, column + down] : [row + 1, column]};
    if (!moves[event.key]) return;
    event.preventDefault();
    this.choose(card, ...moves[event.key]);
  }
  choose(card, row, column) {
    const {rows, columns} = card.matrix;
    if (row < 0 || column < 0 || row >= rows || column >= columns) return;
    card.chosen = [row, column];
    this.cells.set(card.id, card.chosen);
    if (!card.matrix.pixels && this.follow(card.matrix, row)) { this.chose(this.chosen); this.draw(); return; }
    this.paint(card);
    this.explain(card);
  }
  // The chosen cell, its neighbours as numbers, and what makes it.
  async explain(card) {
    const {matrix, chosen: [row, column], head} = card, {say} = this;
    const value = matrix.at(head, row, column), rowName = this.rowName(card, matrix, row);
    const where = [rowName, this.columnName(card, matrix, column)].filter(Boolean).join(say("comma"));
    const near = element("table", {className: "near"});
    const first = Math.max(0, Math.min(row - 2, matrix.rows - 5)), left = Math.max(0, Math.min(column - 3, matrix.columns - 7));
    for (let r = first; r < Math.min(matrix.rows, first + 5); r++) {
      const line = element("tr");
      for (let c = left; c < Math.min(matrix.columns, left + 7); c++) {
        const cell = element("td", {className: r === row && c === column ? "here" : ""}, number(matrix.at(head, r, c)));
        cell.addEventListener("click", () => this.choose(card, r, c));
        line.append(cell);
      }
      near.append(line);
    }
    const made = await this.made(card, head, row, column);
    card.value = value; card.made = made;
    card.parts.cell.replaceChildren(
      element("p", {className: "where"}, where, ": ", element("b", {}, number(value))), element("div", {className: "wide"}, near),
      ...(made ? [this.shown(made, value)] : []));
  }
  shown({terms, text, total, note, pictures, count, sum}, value) {
    const {say} = this, body = element("div", {className: "made"});
    body.append(element("p", {}, element("b", {}, say("makes")), " ", text));
    if (pictures) body.append(pictures);
    if (terms) {
      const table = element("table", {className: "terms"}), most = terms.reduce((a, t) => Math.max(a, Math.abs(t.value)), 1e-12);
      table.append(element("tr", {}, ...["", say("left"), say("right"), say("product")].map(t => element("th", {}, t))));
      for (const t of terms) {
        const bar = element("i", {className: "term"});
        bar.style.width = 100 * Math.abs(t.value) / most + "%"; bar.style.background = t.value < 0 ? "var(--minus)" : "var(--plus)";
        table.append(element("tr", {}, element("td", {}, t.name), element("td", {className: "num"}, t.a), element("td", {className: "num"}, t.b), element("td", {className: "num"}, number(t.value), bar)));
      }
      if (count > terms.length) {
        const others = sum - terms.reduce((a, t) => a + t.value, 0);
        table.append(element("tr", {}, element("td", {}, say("others", count - terms.length)), element("td"), element("td"), element("td", {className: "num"}, number(others))));
      }
      const rest = count > terms.length ? say("largestOf", terms.length, count) : say("allOf", count);
      body.append(element("p", {className: "soft small"}, rest), element("div", {className: "wide"}, table));
    }
    const apart = Math.abs(total - value), right = apart <= 2e-3 * Math.max(1, Math.abs(value));
    body.append(element("p", {className: "total"}, note ? note + " " : "", element("b", {}, "= " + number(total)), " ", right ? "✓" : `≠ ${number(value)}`));
    return body;
  }
  gate(card) { // what an intervention multiplies this output by
    const {key, block} = card.step, {changes} = this.engine, heads = this.about.changes.heads?.dims[1];
    if (block === null) return 1;
    if (key === "heads") return changes.heads?.[block * heads + card.head] ?? 1;
    if (key === "attention") return changes.attention?.[block] ?? 1;
    return key === "mlp" ? changes.mlp?.[block] ?? 1 : 1;
  }
  async made(card, head, row, column) {
    const how = card.step.how, {engine, say} = this;
    if (!how || how.weight && !engine.weight(how.weight)) return null; // or its weights are not stored
    const of = async name => matrixOf((await engine.get(name))[0]);
    const dot = (n, a, b, name) => {
      const all = Array.from({length: n}, (_, i) => ({i, x: a(i), y: b(i)}));
      const sum = all.reduce((s, t) => s + t.x * t.y, 0);
      const shown = all.map(t => ({...t, value: t.x * t.y})).sort((p, q) => Math.abs(q.value) - Math.abs(p.value)).slice(0, 8);
      return {sum, count: n, terms: shown.map(t => ({name: name ? name(t.i) : say("number", t.i + 1), a: number(t.x), b: number(t.y), value: t.value}))};
    };
    const gate = this.gate(card), closing = (total, parts) => ({total: total * gate, note: parts.join(" + ") + (gate === 1 ? "" : ` × ${gate}`)});
    const row0 = this.rowName(card, card.matrix, row) || say("theImage"), column0 = this.columnName(card, card.matrix, column);
    switch (how.kind) {
      case "patch": {
        const weight = engine.weight(how.weight), bias = engine.weight(how.bias), [d, c, ph, pw] = weight.shape, n = c * ph * pw;
        const order = engine.changes.patch_order?.[row] ?? row, keep = engine.changes.patch_keep?.[row] ?? 1;
        const {grid, input, mean, std} = this.about, [, h, w] = input, top = Math.floor(order / grid[1]) * ph, left = order % grid[1] * pw;
        const pixel = i => {
          const k = Math.floor(i / (ph * pw)), y = Math.floor(i / pw) % ph, x = i % pw;
          return keep * (engine.pixels[(k * h + top + y) * w + left + x] / 255 - mean[k % mean.length]) / std[k % std.length];
        };
        const found = dot(n, pixel, i => weight.data[column * n + i], i => say("pixelAt", Math.floor(i / (ph * pw)) + 1, Math.floor(i / pw) % ph + 1, i % pw + 1));
        const b = bias ? bias.data[column] : 0;
        const pictures = element("div", {className: "filters"}, this.picture(pixel, c, ph, pw, say("thePatch")), element("span", {className: "times"}, "·"),
          this.picture(i => weight.data[column * n + i], c, ph, pw, say("theFilter", column + 1)));
        return {...found, pictures, text: say("howPatch", row0, n, column + 1), ...closing(found.sum + b, [number(found.sum), `${number(b)} ${say("bias")}`])};
      }
      case "linear": {
        const x = await of(how.of), weight = engine.weight(how.weight), bias = how.bias && engine.weight(how.bias), n = weight.shape[1];
        const line = how.first + (card.matrix.heads > 1 ? head * card.matrix.columns : 0) + column;
        const found = dot(n, i => x.at(0, x.rows === 1 ? 0 : row, i), i => weight.data[line * n + i]), b = bias ? bias.data[line] : 0;
        return {...found, text: say("howLinear", row0, n, column0), ...closing(found.sum + b, [number(found.sum), `${number(b)} ${say("bias")}`])};
      }
      case "join": {
        const x = await of(how.of), weight = engine.weight(how.weight), bias = how.bias && engine.weight(how.bias), n = weight.shape[1];
        const found = dot(n, i => x.at(Math.floor(i / x.columns), row, i % x.columns), i => weight.data[column * n + i], i => say("headNumber", Math.floor(i / x.columns) + 1, i % x.columns + 1));
        const b = bias ? bias.data[column] : 0;
        return {...found, text: say("howJoin", x.heads, n), ...closing(found.sum + b, [number(found.sum), `${number(b)} ${say("bias")}`])};
      }
      case "scores": {
        const [q, k] = await Promise.all(how.of.map(of));
        const found = dot(q.columns, i => q.at(head, row, i), i => k.at(head, column, i));
        return {...found, text: say("howScores", row0, column0, q.columns), total: found.sum, note: ""};
      }
      case "scale": {
        const x = await of(how.of), v = x.at(head, row, column);
        return {text: say("howScale", number(v), number(1 / how.by)), total: v * how.by, note: `${number(v)} / ${number(1 / how.by)}`};
      }
      case "softmax": {
        const x = await of(how.of), n = x.columns, line = Array.from({length: n}, (_, i) => x.at(head, row, i)), most = Math.max(...line);
        const sum = line.reduce((s, v) => s + Math.exp(v - most), 0), own = Math.exp(line[column] - most);
        return {text: say("howSoftmax", number(line[column]), number(most), n), total: own / sum, note: `exp(${number(line[column])} − ${number(most)}) / ${number(sum)} = ${number(own)} / ${number(sum)}`};
      }
      case "mix": {
        const [weights, v] = await Promise.all(how.of.map(of));
        const found = dot(weights.columns, j => weights.at(head, row, j), j => v.at(head, j, column), j => this.token(j));
        return {...found, text: say("howMix", row0, weights.columns), ...closing(found.sum, [number(found.sum)])};
      }
      case "sum": {
        const [a, b] = await Promise.all(how.of.map(of));
        // of the tokens before the patches, positions may have only the first ones, or none
        const missing = a.rows - b.rows, prefix = this.about.prefix, before = row < prefix ? row : row - missing;
        const x = a.at(0, row, column), y = row < prefix && row >= prefix - missing ? 0 : b.at(0, before, column);
        return {text: say("howSum"), total: x + y, note: `${number(x)} + ${number(y)}`};
      }
      case "norm": {
        const x = await of(how.of), weight = engine.weight(how.weight), bias = engine.weight(how.bias), n = card.matrix.columns;
        const line = Array.from({length: n}, (_, i) => x.at(0, row, i)), mean = line.reduce((a, b) => a + b, 0) / n;
        const variance = line.reduce((s, v) => s + (v - mean) ** 2, 0) / n, g = weight?.data[column] ?? 1, b = bias?.data[column] ?? 0;
        const plain = (line[column] - mean) / Math.sqrt(variance + how.eps);
        return {text: say("howNorm", n, number(mean), number(variance)), total: plain * g + b, note: `(${number(line[column])} − ${number(mean)}) / √(${number(variance)} + ${how.eps}) · ${number(g)} + ${number(b)}`};
      }
      case "activation": {
        const x = await of(how.of), v = x.at(0, row, column);
        return {text: say("howActivation", how.name, number(v)), total: ACTIVATIONS[how.name](v), note: `${how.name}(${number(v)})`};
      }
      case "stack": {
        const x = await of(how.of), before = this.about.prefix;
        if (row < before) return {text: say("howToken"), total: card.matrix.at(0, row, column), note: ""};
        return {text: say("howSame"), total: x.at(0, row - before, column), note: ""};
      }
      case "first": { const x = await of(how.of); return {text: say("howFirst"), total: x.at(0, 0, column), note: ""}; }
      case "mean": {
        const x = await of(how.of), n = x.rows - how.prefix;
        let sum = 0;
        for (let r = how.prefix; r < x.rows; r++) sum += x.at(0, r, column);
        return {text: say("howMean", n), total: sum / n, note: `${number(sum)} / ${n}`};
      }
    }
    return null;
  }
  picture(at, c, h, w, name) { // (c, h, w) of any numbers as a small picture: gray is zero
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
}
