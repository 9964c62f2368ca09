// Step by step: every step of the model as a matrix whose cells can be opened down to one multiplication.
import {element} from "../templates/viewer.js";
import {matrixOf, number, shares, signed} from "./matrices.js";
import {PICTURES} from "./pictures.js";
import {madeOf} from "./cells.js";

const FEW = 16; // more matrices of one step are chosen from a list, not by buttons

export function keepFocus(root, renew) { // on the same button or list, which are made anew
  const all = () => [...root.querySelectorAll("button, select")], place = all().indexOf(document.activeElement);
  renew();
  if (place >= 0) all()[place]?.focus();
}

export class Steps {
  constructor(root, engine, say, chose = () => {}) {
    this.chose = chose; // tells the picture which token is chosen here
    this.root = root; this.engine = engine; this.about = engine.about; this.say = say;
    this.open = new Set(); this.cells = new Map(); this.cards = [];
    this.chosen = {heads: 0, pixels: 0, map: 0, labels: 0}; // which matrix of several, by what they are
    this.columns = new Map(); // which column, by what the columns are
    this.picked = {}; // which row, by what the rows are; "tokens" are of the encoder
    this.best = 0; // the query that found the surest object
  }
  build() {
    const {about, say} = this, lang = say.number;
    this.cards = [];
    this.root.replaceChildren();
    let at = 0, inside = null;
    for (const step of about.steps) {
      if (step.group === null) inside = null;
      else if (String(inside?.group) !== String(step.group)) inside = this.group(step.group, at + 1);
      const card = this.card(step, ++at, lang);
      (inside ? inside.body : this.root).append(card.root);
      this.cards.push(card);
    }
    return this.draw();
  }
  group([kind, number], first) {
    const {say} = this, id = `${kind} ${number}`, last = first - 1 + this.about.steps.filter(({group}) => String(group) === String([kind, number])).length;
    const body = element("div", {className: "inside"});
    const root = element("details", {className: "block", open: this.open.has(id)},
      element("summary", {}, element("b", {}, say(kind, number + 1)), " ", element("span", {className: "soft"}, say(kind + "Is"), say("comma"), say("stepsFrom", first, last))), body);
    root.addEventListener("toggle", () => { this.mark(id, root.open); this.draw(); });
    this.root.append(root);
    return {group: [kind, number], body};
  }
  mark(id, open) { if (open) this.open.add(id); else this.open.delete(id); }
  card(step, place, lang) {
    const {say, about} = this, id = `step ${place}`;
    const parts = {
      shape: element("span", {className: "shape"}), canvas: element("canvas", {tabIndex: 0, role: "img"}),
      heads: element("div", {className: "heads"}), pictures: element("div", {className: "pictures"}), cell: element("div", {className: "cell"}), scale: element("div", {className: "soft small"}), numbers: element("div", {className: "numbers"}),
    };
    parts.numbers.append(element("div", {}, parts.heads, element("div", {className: "matrix"}, parts.canvas), parts.scale), parts.cell);
    const source = step.source && element("p", {className: "source"}, element("code", {}, step.source.code),
      element("span", {className: "soft"}, ` ${step.source.file}:${step.source.line}`));
    const equation = element("div", {className: "equation"});
    equation.innerHTML = step.equation; // our own, from steps.toml
    const root = element("details", {className: "step", open: this.open.has(id)},
      element("summary", {}, element("span", {className: "place"}, String(place)), element("b", {}, step.key === "other" ? `${step.title[lang]}: ${step.output}` : step.title[lang]), " ", parts.shape),
      element("p", {}, step.why[lang]), equation, ...(source ? [source] : []), parts.pictures, parts.numbers);
    const card = {step, place, id, root, parts, chosen: this.cells.get(id) ?? null};
    root.addEventListener("toggle", () => { this.mark(id, root.open); this.draw(); });
    parts.canvas.addEventListener("pointerdown", event => this.point(card, event));
    parts.canvas.addEventListener("keydown", event => this.key(card, event));
    const [c, h, w] = about.input, shape = {image: [1, h, w, c], answer: [1, about.labels.length]}[step.key] ?? about.outputs[about.same[step.output] ?? step.output];
    if (shape) parts.shape.textContent = shape.slice(shape.length > 2 ? 1 : 0).join(" × ");
    return card;
  }
  // Opens one step, with a column chosen, or one block; closes all others; gives its place in the page.
  async show(key, block, column) {
    const card = this.cards.find(({step}) => key === undefined ? step.group?.[1] === block : step.key === key && (block === undefined || !step.group || step.group[1] === block));
    if (!card) return null;
    this.open = new Set([...(key === undefined ? [] : [card.id]), ...(card.step.group ? [card.step.group.join(" ")] : [])]);
    await this.build();
    const shown = this.cards[card.place - 1];
    if (key === undefined) return shown.root.closest("details.block");
    if (column !== undefined && shown.matrix) this.choose(shown, shown.chosen[0], column);
    return shown.root;
  }
  visible(card) { return card.root.open && (!card.root.parentElement.closest("details") || card.root.parentElement.closest("details").open); }
  // What the rows or the columns of a step are: a name in about.sets, and what is known of it.
  setName(step, matrix, side = "rows") {
    if (step[side]) return step[side];
    const {prefix, grid} = this.about, n = grid[0] * grid[1], count = matrix[side];
    if (matrix.pixels || matrix.map || side === "columns" && !["scores", "scaled", "weights"].includes(step.key)) return null;
    return count === n + prefix ? "tokens" : count === n ? "patches" : null;
  }
  setOf(name) {
    const {tokens, grid} = this.about;
    if (name === "tokens") return {grid, before: tokens.map(each => each[this.say.number])};
    return name === "patches" ? {grid, before: []} : this.about.sets[name] ?? null;
  }
  set(step, matrix, side = "rows") { return this.setOf(this.setName(step, matrix, side)); }
  nameIn(name, i, short = false) { // in words
    const {say} = this, set = this.setOf(name);
    if (name === "queries") return say("queryNumber", i + 1);
    if (name === "edges") return say("edges")[i];
    if (!set) return "";
    const {grid: [, w], before} = set;
    if (i < before.length) return before[i].label === undefined ? before[i] : this.label(before[i].label);
    const place = i - (name === "tokens" ? this.about.prefix : before.length);
    if (place < 0) return say("tokenNumber", i + 1);
    return say(name === "map" ? "thePlace" : short ? "patchShort" : "patchAt", Math.floor(place / w) + 1, place % w + 1);
  }
  label(number) { return number < 0 ? this.say("noObject") : this.about.labels[number] ?? String(number); }
  token(i) { return this.nameIn("tokens", i); }
  rowName(card, matrix, row) {
    if (["head", "answer"].includes(card.step.key)) return "";
    const name = this.setName(card.step, matrix);
    return name ? this.nameIn(name, row) : matrix.rows === 1 ? "" : this.say("row", row + 1);
  }
  columnName(card, matrix, column, short = false) {
    if (["head", "answer"].includes(card.step.key)) return this.label(column);
    const name = this.setName(card.step, matrix, "columns");
    if (name && !matrix.map) return this.nameIn(name, column, short);
    return short ? String(column + 1) : this.say(matrix.pixels || matrix.map ? "column" : "number", column + 1);
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
    const all = await this.matrix(step.output);
    if (step.key !== "mask_head") return all;
    const query = Math.min(this.picked.queries ?? this.best, all.heads - 1); // of each query one matrix
    return {...all, heads: 1, map: false, query, at: (h, r, c) => all.at(query, r, c)};
  }
  async matrix(name) {
    const [found] = await this.engine.get(name);
    return matrixOf(found, this.about.maps.includes(this.about.same[name] ?? name));
  }
  heads(card) { keepFocus(card.parts.heads, () => this.choices(card)); }
  choices(card) { // buttons for the matrices of one step, or a list where they are many
    const {matrix, step} = card, {heads} = matrix, {say} = this;
    const kind = matrix.pixels ? "pixels" : matrix.map ? (step.columns === "labels" ? "labels" : "map") : "heads";
    const nameOf = h => kind === "labels" ? this.label(h) : kind === "map" ? say("channelNumber", h + 1) : kind === "pixels" ? (heads === 3 ? say("channel")[h] : say("row", h + 1)) : say("head", h + 1);
    const choose = h => {
      this.chosen[kind] = h;
      if (kind === "heads" && this.setName(step, matrix) === "tokens") this.chose(undefined, h);
      this.draw();
    };
    card.head = Math.min(this.chosen[kind], heads - 1);
    card.query = matrix.query;
    card.parts.heads.replaceChildren();
    if (heads > FEW) {
      const select = element("select", {ariaLabel: say("whichMatrix")}, ...Array.from({length: heads}, (_, h) => new Option(nameOf(h), h)));
      select.value = card.head;
      select.addEventListener("input", () => choose(+select.value));
      card.parts.heads.append(select);
    } else if (heads > 1) for (let h = 0; h < heads; h++) {
      const button = element("button", {type: "button", ariaPressed: String(h === card.head)}, nameOf(h));
      button.addEventListener("click", () => choose(h));
      card.parts.heads.append(button);
    }
  }
  paint(card) {
    this.heads(card);
    const {parts, matrix, head} = card, {rows, columns} = matrix;
    let most = 0, least = Infinity, largest = -Infinity;
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
      const v = matrix.at(head, r, c);
      most = Math.max(most, Math.abs(v)); least = Math.min(least, v); largest = Math.max(largest, v);
    }
    const isShare = ["weights", "answer", "probe", "points"].includes(card.step.key);
    const strip = rows === 1; // a vector is drawn in several lines if it is long
    const wide = strip ? Math.min(columns, 64) : columns, tall = strip ? Math.ceil(columns / wide) : rows;
    card.wide = strip ? wide : 0;
    const size = Math.max(1, Math.min(Math.floor(880 / wide), strip ? 22 : Math.max(1, Math.floor(520 / tall)), 26));
    const canvas = parts.canvas, context = canvas.getContext("2d");
    canvas.width = wide * size; canvas.height = tall * size; card.size = size;
    parts.numbers.style.setProperty("--wide", canvas.width + "px"); parts.numbers.style.setProperty("--ratio", wide / tall);
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
    const own = this.rowOf(card);
    if (own !== null) card.chosen = [own, card.chosen[1]];
    card.chosen = [card.chosen[0], this.columnOf(card)];
    const [row, column] = card.chosen = [Math.min(card.chosen[0], rows - 1), Math.min(card.chosen[1], columns - 1)];
    const [y, x] = strip ? [Math.floor(column / wide), column % wide] : [row, column];
    for (const [ink, inset, line] of [["#000", 0, Math.max(2, size / 6)], ["#ffd400", 1, Math.max(1, size / 8)]]) {
      context.strokeStyle = ink; context.lineWidth = line;
      context.strokeRect(x * size + inset - (size < 6 ? 2 : 0), y * size + inset - (size < 6 ? 2 : 0), Math.max(size, size < 6 ? 5 : size) - 2 * inset, Math.max(size, size < 6 ? 5 : size) - 2 * inset);
    }
    canvas.setAttribute("aria-label", this.say("matrixIs", rows, columns));
    parts.scale.textContent = this.axes(card) + (isShare ? this.say("shareScale", number(largest)) : matrix.pixels ? this.say("pixelScale") : this.say("signedScale", number(least), number(largest)));
  }
  axes({matrix, step}) { // what stands in the rows and columns
    const {say} = this, {rows, columns} = matrix, [down, across] = ["rows", "columns"].map(side => this.setName(step, matrix, side));
    const words = say("each");
    return words[down] ? say("axes", rows, words[down], columns, words[across] ?? words.numbers) + say("between") : "";
  }
  // The chosen column is the same in all steps whose columns are the same: tokens, or numbers of vectors of one length.
  columnsName({matrix, step}) { return matrix.pixels || matrix.map ? null : this.setName(step, matrix, "columns") ?? String(matrix.columns); }
  columnOf(card) {
    const {matrix, step, head, chosen: [row, column]} = card, kept = this.columns.get(this.columnsName(card));
    if (kept !== undefined || !["scores", "scaled", "weights", "probe"].includes(step.key)) return kept ?? column;
    let best = 0; // until one is chosen: where the row's attention goes most
    for (let c = 1; c < matrix.columns; c++) if (matrix.at(head, row, c) > matrix.at(head, row, best)) best = c;
    return best;
  }
  first(card) { // the cell that is open at the beginning: of the class token, or of a patch in the middle
    const {rows, columns} = card.matrix;
    if (["head", "answer"].includes(card.step.key)) {
      let best = 0;
      for (let c = 0; c < columns; c++) if (card.matrix.at(0, 0, c) > card.matrix.at(0, 0, best)) best = c;
      return [0, best];
    }
    if (card.step.key === "image") return [rows >> 1, columns >> 1];
    return [Math.min(this.rowOf(card) ?? (rows >> 1), rows - 1), Math.min(columns >> 1, columns - 1)];
  }
  // The chosen token, query or place is the same in all steps, so that it can be followed.
  rowOf(card) {
    const {matrix, step} = card, name = this.setName(step, matrix), {prefix, grid} = this.about;
    if (name === null) return null;
    const patch = (this.picked.tokens ?? prefix + (grid[0] * grid[1] >> 1)) - prefix, before = this.setOf(name)?.before?.length;
    if (name === "tokens") return patch + prefix;
    if (name === "queries") return this.picked.queries ?? this.best;
    if (this.isPatches(name)) return this.picked[name] ?? before + Math.max(0, patch);
    return this.picked[name] ?? matrix.rows >> 1;
  }
  isPatches(name) { return String(this.setOf(name)?.grid) === String(this.about.grid); }
  pick(name, row) {
    const before = this.setOf(name)?.before?.length ?? 0;
    if (name === "tokens" || !this.isPatches(name)) this.picked[name] = row;
    else if (row < before) this.picked[name] = row; // a class
    else { this.picked = {...this.picked, [name]: undefined, tokens: row - before + this.about.prefix}; }
  }
  select(token, head) { // chosen in the picture
    if (this.picked.tokens === token && (head === "mean" || +head === this.chosen.heads)) return;
    this.picked.tokens = token;
    if (head !== "mean") this.chosen.heads = +head;
    this.draw();
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
    const across = this.columnsName(card);
    if (across !== null) this.columns.set(across, column);
    const name = this.setName(card.step, card.matrix), before = this.picked.tokens;
    if (name !== null) this.pick(name, row);
    if (this.picked.tokens !== before) this.chose(this.picked.tokens);
    this.draw();
  }
  // The chosen cell, its neighbours as numbers, and what makes it.
  async explain(card) {
    const {matrix, chosen: [row, column], head} = card, {say} = this;
    const written = v => matrix.pixels ? String(Math.round(v)) : number(v);
    const value = matrix.at(head, row, column), rowName = this.rowName(card, matrix, row);
    const shortRow = this.nameIn(this.setName(card.step, matrix), row, true) ? r => this.nameIn(this.setName(card.step, matrix), r, true) : matrix.rows > 1 ? r => String(r + 1) : () => "";
    const where = [rowName, this.columnName(card, matrix, column)].filter(Boolean).join(["scores", "scaled", "weights"].includes(card.step.key) ? " → " : say("comma"));
    const near = element("table", {className: "near"});
    // an odd number of columns, the chosen one in the middle, as many as there is room for
    const first = Math.max(0, Math.min(row - 2, matrix.rows - 5)), room = Math.floor((card.parts.cell.clientWidth - 80) / 72), many = Math.min(matrix.columns, Math.max(3, Math.min(7, room - (room + 1) % 2))), left = Math.max(0, Math.min(column - (many >> 1), matrix.columns - many));
    near.append(element("tr", {}, element("td"), ...Array.from({length: many}, (_, i) => element("th", {}, this.columnName(card, matrix, left + i, true)))));
    for (let r = first; r < Math.min(matrix.rows, first + 5); r++) {
      const line = element("tr", {}, element(shortRow(r) ? "th" : "td", {}, shortRow(r)));
      for (let c = left; c < left + many; c++) {
        const cell = element("td", {className: r === row && c === column ? "here" : ""}, written(matrix.at(head, r, c)));
        cell.addEventListener("click", () => this.choose(card, r, c));
        line.append(cell);
      }
      near.append(line);
    }
    const made = await this.made(card, head, row, column), pictures = await PICTURES[card.step.picture]?.(card, this) ?? [];
    card.value = value; card.made = made;
    card.parts.pictures.replaceChildren(...pictures.map(([canvas, text]) => element("figure", {}, canvas, element("figcaption", {className: "soft"}, text))));
    card.parts.cell.replaceChildren(
      element("p", {className: "where"}, where, say("colon"), element("b", {}, written(value))), element("div", {className: "wide"}, near),
      ...(made ? [this.shown(made, value)] : []));
  }
  shown({terms, headings, text, total, note, pictures, count, sum, more, rest = "largestOf"}, value) {
    const {say} = this, body = element("div", {className: "made"});
    body.append(element("p", {}, element("b", {}, say("makes")), say("between"), text));
    if (pictures) body.append(pictures);
    if (terms) {
      const table = element("table", {className: "terms"}), most = terms.reduce((a, t) => Math.max(a, Math.abs(t.value)), 1e-12);
      table.append(element("tr", {}, element("td"), ...headings.map(t => element("th", {}, t))));
      for (const t of terms) {
        const bar = element("i", {className: "term"});
        bar.style.width = 100 * Math.abs(t.value) / most + "%"; bar.style.background = t.value < 0 ? "var(--minus)" : "var(--plus)";
        table.append(element("tr", {}, element("td", {}, t.name), element("td", {className: "num"}, t.a), element("td", {className: "num"}, t.b), element("td", {className: "num"}, number(t.value), bar)));
      }
      if (count > terms.length) {
        const others = sum - terms.reduce((a, t) => a + t.value, 0);
        table.append(element("tr", {}, element("td", {}, say("others", count - terms.length)), element("td"), element("td"), element("td", {className: "num"}, number(others))));
      }
      body.append(element("p", {className: "soft small"}, count > terms.length || rest !== "largestOf" ? say(rest, terms.length, count) : say("allOf", count)), element("div", {className: "wide"}, table));
    }
    const apart = Math.abs(total - value), right = apart <= 2e-3 * Math.max(1, Math.abs(value));
    body.append(element("p", {className: "total"}, note ? note.replaceAll("+ −", "− ") + " " : "", element("b", {}, "= " + number(total)), " ", right ? "✓" : `≠ ${number(value)}`), ...(more ? [element("p", {}, more)] : []));
    return body;
  }
  made(card, head, row, column) { return madeOf(this, card, head, row, column); }
}
