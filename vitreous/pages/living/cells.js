// What makes one cell of a step: the largest of the products that are added up, or the few numbers that it comes from.
import {element} from "../templates/viewer.js";
import {ACTIVATIONS, below, number} from "./matrices.js";
import {filter} from "./pictures.js";

function gateOf(steps, card) { // what an intervention multiplies this output by
  const {key, group} = card.step, {changes} = steps.engine, heads = steps.about.changes.heads?.dims[1], block = group?.[1];
  if (key === "generated") return changes.position?.[0] ?? 1;
  if (group?.[0] !== "block") return 1;
  if (key === "heads") return changes.heads?.[block * heads + card.head] ?? 1;
  if (key === "attention") return changes.attention?.[block] ?? 1;
  return key === "mlp" ? changes.mlp?.[block] ?? 1 : 1;
}
export async function madeOf(steps, card, head, row, column) {
  const how = card.step.how, {about, engine, say} = steps;
  const needed = how?.linear?.weight ?? how?.weight;
  if (!how || needed && !engine.weight(needed)) return null; // or its weights are not stored
  const of = name => steps.matrix(name);
  const dot = (n, a, b, name) => {
    const all = Array.from({length: n}, (_, i) => ({i, x: a(i), y: b(i)}));
    const sum = all.reduce((s, t) => s + t.x * t.y, 0);
    const shown = all.map(t => ({...t, value: t.x * t.y})).sort((p, q) => Math.abs(q.value) - Math.abs(p.value)).slice(0, 8);
    return {sum, count: n, terms: shown.map(t => ({name: name ? name(t.i) : say("number", t.i + 1), a: number(t.x), b: number(t.y), value: t.value}))};
  };
  const gate = gateOf(steps, card), closing = (total, parts) => ({total: total * gate, note: parts.join(" + ") + (gate === 1 ? "" : ` × ${gate}`)});
  const headings = (...keys) => ({headings: [...keys.map(key => say(key)), say("product")]});
  const row0 = steps.rowName(card, card.matrix, row) || say("theImage"), column0 = steps.columnName(card, card.matrix, column);
  switch (how.kind) {
    case "patch": {
      const weight = engine.weight(how.weight), bias = engine.weight(how.bias), [d, c, ph, pw] = weight.shape, n = c * ph * pw;
      const order = engine.changes.patch_order?.[row] ?? row, keep = engine.changes.patch_keep?.[row] ?? 1;
      const {grid, input, mean, std} = about, [, h, w] = input, top = Math.floor(order / grid[1]) * ph, left = order % grid[1] * pw;
      const pixel = i => {
        const k = Math.floor(i / (ph * pw)), y = Math.floor(i / pw) % ph, x = i % pw;
        return keep * (engine.pixels[(k * h + top + y) * w + left + x] / 255 - mean[k % mean.length]) / std[k % std.length];
      };
      const found = dot(n, pixel, i => weight.data[column * n + i], i => {
        const k = Math.floor(i / (ph * pw)), channel = c === 1 ? "" : (c === 3 ? say("channel")[k] : say("channelNumber", k + 1)) + say("comma");
        return say("pixelAt", channel, Math.floor(i / pw) % ph + 1, i % pw + 1);
      });
      const b = bias ? bias.data[column] : 0;
      const pictures = element("div", {className: "filters"}, filter(pixel, c, ph, pw, say("thePatch")), element("span", {className: "times"}, "·"),
        filter(i => weight.data[column * n + i], c, ph, pw, say("theFilter", column + 1)));
      return {...found, ...headings("pixel", "weight"), pictures, text: say("howPatch", row0, n, column + 1), ...closing(found.sum + b, [number(found.sum), ...(bias ? [`${number(b)} ${say("bias")}`] : [])])};
    }
    case "linear": {
      const x = await of(how.of), weight = engine.weight(how.weight), bias = how.bias && engine.weight(how.bias), n = weight.shape[1];
      const {map, heads, columns} = card.matrix, line = how.first + (map ? head : (heads > 1 ? head * columns : 0) + column);
      const from = i => map ? x.at(i, row, column) : x.map ? x.at(i, Math.floor(row / x.columns), row % x.columns) : x.at(0, x.rows === 1 ? 0 : row + (how.skip ?? 0), i);
      const found = dot(n, from, i => weight.data[line * n + i]), b = bias ? bias.data[line] : 0;
      return {...found, ...headings("input", "weight"), text: say("howLinear", map ? say("thePlace", row + 1, column + 1) : row0, n, map ? say("channelNumber", head + 1) : column0), ...closing(found.sum + b, [number(found.sum), ...(bias ? [`${number(b)} ${say("bias")}`] : [])])};
    }
    case "turn": { // a pair of channels, turned by an angle
      const {linear} = how, [x, angles] = await Promise.all([of(linear.of), of(how.angles)]), weight = engine.weight(linear.weight), bias = linear.bias && engine.weight(linear.bias);
      const {columns} = card.matrix, half = columns / 2, pairs = how.layout === "pairs", n = weight.shape[1];
      const [partner, number2, first] = pairs ? [column ^ 1, column >> 1, column % 2 === 0] : [(column + half) % columns, column % half, column < half];
      const before = c => { // as it is before it is turned
        const line = linear.first + head * columns + c;
        let sum = bias ? bias.data[line] : 0;
        for (let i = 0; i < n; i++) sum += x.at(0, row, i) * weight.data[line * n + i];
        return sum;
      };
      const [a, b, angle] = [before(column), before(partner), row < about.prefix ? 0 : angles.at(0, row - about.prefix, number2)], sign = first ? -1 : 1;
      return {text: say("howTurn", column + 1, partner + 1, number(angle)), total: a * Math.cos(angle) + sign * b * Math.sin(angle), note: `${number(a)} · cos(${number(angle)}) ${first ? "−" : "+"} ${number(b)} · sin(${number(angle)})`};
    }
    case "neighbours": { // a convolution over the grid, in one channel
      const x = await of(how.of), weight = engine.weight(how.weight), bias = engine.weight(how.bias), [,, kh, kw] = weight.shape, [h, w] = about.grid;
      const cell = engine.changes.position_order?.[row] ?? row;
      const place = i => [Math.floor(cell / w) + Math.floor(i / kw) - (kh >> 1), cell % w + i % kw - (kw >> 1)];
      const inside = ([r, c]) => r >= 0 && c >= 0 && r < h && c < w;
      const value = i => { const [r, c] = place(i); return inside([r, c]) ? x.at(0, r * w + c, column) : 0; };
      const found = dot(kh * kw, value, i => weight.data[column * kh * kw + i], i => { const [r, c] = place(i); return inside([r, c]) ? say("patchShort", r + 1, c + 1) : say("outside"); });
      const b = bias.data[column];
      return {...found, ...headings("input", "weight"), text: say("howNeighbours", kh, kw, row0, column + 1), ...closing(found.sum + b, [number(found.sum), `${number(b)} ${say("bias")}`])};
    }
    case "join": {
      const x = await of(how.of), weight = engine.weight(how.weight), bias = how.bias && engine.weight(how.bias), n = weight.shape[1];
      const found = dot(n, i => x.at(Math.floor(i / x.columns), row, i % x.columns), i => weight.data[column * n + i], i => say("headNumber", Math.floor(i / x.columns) + 1, i % x.columns + 1));
      const b = bias ? bias.data[column] : 0;
      return {...found, ...headings("input", "weight"), text: say("howJoin", x.heads, n), ...closing(found.sum + b, [number(found.sum), ...(bias ? [`${number(b)} ${say("bias")}`] : [])])};
    }
    case "scores": {
      const [q, k] = await Promise.all(how.of.map(of));
      const found = dot(q.columns, i => q.at(head, row, i), i => k.at(head, column, i));
      return {...found, headings: ["q", "k", say("product")], text: say("howScores", row0, column0, q.columns), total: found.sum, note: ""};
    }
    case "scale": {
      const [x, plus] = await Promise.all([of(how.of), how.plus && of(how.plus)]), v = x.at(head, row, column), b = plus ? plus.at(head, row, column) : 0;
      return {text: say(plus ? "howScalePlus" : "howScale", number(v), number(1 / how.by), number(b)), total: v * how.by + b, note: `${number(v)} / ${number(1 / how.by)}${plus ? ` + ${number(b)}` : ""}`};
    }
    case "softmax": {
      const x = await of(how.of), n = x.columns, line = Array.from({length: n}, (_, i) => x.at(head, row, i)), most = Math.max(...line);
      const sum = line.reduce((s, v) => s + Math.exp(v - most), 0), own = Math.exp(line[column] - most);
      const shown = line.map((x, i) => ({i, x, exp: Math.exp(x - most)})).sort((a, b) => b.x - a.x).slice(0, 8);
      const terms = shown.map(({i, x, exp}) => ({name: steps.columnName(card, card.matrix, i, true), a: number(x), b: number(exp), value: exp / sum}));
      const table = {terms, count: n, sum: 1, headings: ["x", "exp(x − m)", say("share")], rest: "largestShares"};
      return {...table, text: say("howSoftmax", number(line[column]), number(most), n), total: own / sum, note: `exp(${number(line[column])} − ${number(most)}) / ${number(sum)} = ${number(own)} / ${number(sum)}`};
    }
    case "mix": {
      const [weights, v] = await Promise.all(how.of.map(of));
      const found = dot(weights.columns, j => weights.at(head, row, j), j => v.at(head, j, column), j => steps.nameIn(how.columns ?? steps.setName(card.step, weights), j, true));
      return {...found, headings: [say("share"), "v", say("product")], text: say("howMix", row0, weights.columns), ...closing(found.sum, gate === 1 ? [] : [number(found.sum)])};
    }
    case "sum": {
      const [a, b] = await Promise.all(how.of.map(of));
      // of the tokens before the patches, positions may have only the first ones, or none
      const missing = a.rows - b.rows, prefix = about.prefix, before = row < prefix ? row : row - missing;
      const x = a.at(0, row, column), y = row < prefix && row >= prefix - missing ? null : b.at(0, before, column);
      const length = at => Math.sqrt(Array.from({length: a.columns}, (_, i) => at(i) ** 2).reduce((s, v) => s + v, 0));
      const added = i => y === null ? 0 : b.at(0, before, i);
      const sizes = [i => a.at(0, row, i), added, i => a.at(0, row, i) + added(i)].map(at => number(length(at)));
      return {text: say("howSum"), total: x + (y ?? 0), note: `${number(x)} + ${number(y ?? 0)}`, more: say("sizesAre", row0, ...sizes)};
    }
    case "norm": {
      const all = await Promise.all(how.of.map(of)), weight = engine.weight(how.weight), bias = engine.weight(how.bias), n = card.matrix.columns;
      const line = Array.from({length: n}, (_, i) => all.reduce((sum, x) => sum + x.at(0, row, i), 0)), mean = line.reduce((a, b) => a + b, 0) / n;
      const variance = line.reduce((s, v) => s + (v - mean) ** 2, 0) / n, g = weight?.data[column] ?? 1, b = bias?.data[column] ?? 0;
      const plain = (line[column] - mean) / Math.sqrt(variance + how.eps);
      return {text: (all.length > 1 ? say("howNormOfSum") + " " : "") + say("howNorm", n, number(mean), number(variance)), total: plain * g + b, note: `(${number(line[column])} − ${number(mean)}) / √(${number(variance)} + ${how.eps}) · ${number(g)} + ${number(b)}`};
    }
    case "activation": {
      const x = await of(how.of), v = x.at(0, row, column);
      const text = say("howActivation", how.name, number(v)), gelu = how.name === "gelu";
      return {text: gelu ? text + say("between") + say("phiIs") : text, total: ACTIVATIONS[how.name](v), note: gelu ? `${number(v)} · Φ(${number(v)}) = ${number(v)} · ${number(below(v))}` : `${how.name}(${number(v)})`};
    }
    case "learned": return {text: say("howToken"), total: card.matrix.at(0, row, column), note: engine.changes.position?.[0] === 0 ? "× 0" : ""};
    case "stack": {
      const x = await of(how.of), before = about.prefix;
      if (row < before) return {text: say("howToken"), total: card.matrix.at(0, row, column), note: ""};
      return {text: say("howSame"), total: x.at(0, row - before, column), note: ""};
    }
    case "flat": { const x = await of(how.of); return {text: say("howFlat"), total: x.at(column, Math.floor(row / x.columns), row % x.columns), note: ""}; }
    case "placed": { const x = await of(how.of); return {text: say("howFlat"), total: x.at(0, how.skip + row * card.matrix.columns + column, head), note: ""}; }
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
