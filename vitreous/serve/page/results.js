// One result of a model, in words and on the picture. What it is can be seen from what it has: no task is named here.
import {LEAST} from "./api.js";
import {paintMasks, readMask, swatch} from "./masks.js";
import {percent, say} from "./strings.js";
import {element} from "./viewer.js";

const KINDS = [ // what a result has, who shows it, and what it says in a few words
  ["objects", showObjects, (r, m) => say.counted("objects", r.objects.filter(o => o.score >= m.threshold).length)],
  ["classes", showAreas, r => r.classes.map(c => c.label).join(", ")],
  ["labels", showTags, r => r.labels.map(l => l.label).join(", ") || say("noTag")],
  ["top", showClasses, r => `${r.label} ${percent(r.score, 0)}`],
  ["hidden", showHidden, r => say("loss", r.loss.toFixed(3))],
  ["features", showVector, r => say("vector", r.features.length)],
];
const kindOf = result => KINDS.find(([has]) => has in result);

export const caption = (result, model) => kindOf(result)?.[2](result, model) ?? "";

// `place`: results, boxes and masks are its elements; look(label, object or {pixel}) opens the inside.
export function showResult(place, model, result) {
  place.results.replaceChildren();
  place.boxes.replaceChildren();
  place.masks.width = place.masks.height = 1;
  kindOf(result)?.[1](place, model, result);
}

const colourOf = (model, label) => model.colours[model.labels.indexOf(label)] ?? [120, 120, 120];
const inkOn = ([r, g, b]) => 77 * r + 150 * g + 29 * b > 128 * 256 ? "#000" : "#fff";

function bar(share) {
  const made = element("i", {className: "bar"});
  made.style.setProperty("--share", `${100 * Math.max(0, Math.min(1, share))}%`);
  return made;
}

function slider(text, value, min, act, show = v => v.toFixed(2)) {
  const output = element("output", {}, show(value));
  const input = element("input", {type: "range", min, max: 1, step: 0.01, value});
  input.addEventListener("input", () => { output.textContent = show(+input.value); act(+input.value); });
  return element("label", {className: "slider"}, element("span", {}, text, " ", output), input);
}

function headline(words, more = "") {
  return element("div", {className: "headline", ariaLive: "polite"}, element("h2", {}, words), element("p", {className: "soft"}, more));
}

// One class of many, with its score: a bar for each. A bar is a button where the model can show why.
function scoreRow(place, model, {label, score}, mark = "") {
  const tag = model.can_explain ? "button" : "div";
  const made = element(tag, {className: "score"}, element("span", {className: "label"}, mark, label),
    element("span", {className: "number"}, percent(score)), bar(score));
  if (model.can_explain) {
    Object.assign(made, {type: "button", title: say("sees", label)});
    made.addEventListener("click", () => place.look(label));
  }
  return element("li", {}, made);
}

function showClasses(place, model, result) {
  place.results.append(headline(result.label, say("sure", percent(result.score))),
    element("ul", {className: "scores"}, ...result.top.filter((each, i) => i < 5 || each.score >= 0.01).map(each => scoreRow(place, model, each))));
}

function showTags(place, model, result) {
  const head = headline(""), list = element("ul", {className: "scores"});
  const own = new Set(result.labels.map(each => each.label));
  function update(threshold) { // null: each label's own
    const found = result.top.filter(each => threshold === null ? own.has(each.label) : each.score >= threshold);
    head.firstChild.textContent = found.map(each => each.label).join(", ") || say("noTag");
    head.lastChild.textContent = found.length ? say.counted("tagsFound", found.length) : "";
    list.replaceChildren(...result.top.slice(0, Math.max(10, found.length)).map(each => {
      const made = scoreRow(place, model, each, found.includes(each) ? "✓ " : "");
      made.classList.toggle("off", !found.includes(each));
      return made;
    }));
    reset.hidden = threshold === null;
  }
  const cut = slider(say("threshold"), 0.5, 0, update);
  const reset = element("button", {type: "button", className: "plain"}, say("own"));
  reset.addEventListener("click", () => update(null));
  place.results.append(head, list, cut, reset);
  update(null);
}

// Boxes, and masks where objects have them.
function showObjects(place, model, result) {
  const [height, width] = result.size, hidden = new Set();
  let threshold = model.threshold, chosen = null;
  function sample({label, segmentation}) { // of the mask's pattern, or of the box's line
    const number = model.labels.indexOf(label), colour = colourOf(model, label);
    if (segmentation) return swatch(colour, number);
    const made = element("i", {className: `swatch line line${number % 3}`});
    made.style.borderColor = `rgb(${colour})`;
    return made;
  }
  const objects = result.objects.map((object, i) => {
    const number = model.labels.indexOf(object.label), colour = colourOf(model, object.label);
    const [left, top, right, bottom] = object.box, words = `${object.label} ${object.score.toFixed(2)}`;
    const tag = element("span", {className: "tag"}, words);
    const box = element("div", {className: `box line${number % 3}`}, tag);
    Object.assign(box.style, {
      left: percentOf(left, width), top: percentOf(top, height), width: percentOf(right - left, width),
      height: percentOf(bottom - top, height), borderColor: `rgb(${colour})`, zIndex: 1000 - i});
    box.classList.toggle("high", top / height < 0.06);
    box.classList.toggle("far", left / width > 0.7);
    Object.assign(tag.style, {background: `rgb(${colour})`, color: inkOn(colour)});
    const row = element("button", {type: "button", className: "object"}, sample(object),
      element("span", {className: "label"}, object.label), element("span", {className: "number"}, object.score.toFixed(2)), bar(object.score));
    const made = {...object, box, row: element("li", {}, row), area: (right - left) * (bottom - top), colour, number};
    for (const each of [box, row]) {
      each.addEventListener("pointerenter", () => choose(made));
      each.addEventListener("pointerleave", () => choose(null));
    }
    row.addEventListener("focus", () => choose(made));
    row.addEventListener("blur", () => choose(null));
    if (model.can_explain) {
      row.title = say("looks", words);
      for (const each of [row, box]) each.addEventListener("click", () => place.look(object));
    }
    return made;
  });
  // small ones lie above large ones, so that all can be pointed at
  [...objects].sort((a, b) => b.area - a.area).forEach((object, i) => object.box.style.zIndex = i + 1);
  const head = headline(""), list = element("ul", {className: "objects"}), classes = element("div", {className: "classes"});
  const shown = () => objects.filter(each => each.score >= threshold && !hidden.has(each.label));
  function choose(object) {
    chosen = object;
    for (const each of objects) for (const part of [each.box, each.row]) part.classList.toggle("on", each === object);
    place.boxes.classList.toggle("choosing", object !== null);
    drawMasks();
  }
  function drawMasks() {
    if (!objects.some(each => each.segmentation)) return;
    const above = shown().reverse().sort((a, b) => (a === chosen) - (b === chosen));
    paintMasks(place.masks, result.size, above.filter(each => each.segmentation).map(each => ({
      mask: each.mask ??= readMask(each.segmentation), colour: each.colour, pattern: each.number,
      strength: chosen === null ? 0.75 : chosen === each ? 1 : 0.2})));
  }
  function update() {
    const now = shown();
    head.firstChild.textContent = say.counted("objects", now.length);
    head.lastChild.textContent = now.length ? "" : objects.length ? say("highestIs", `${objects[0].label} ${objects[0].score.toFixed(2)}`) : say("noObjects");
    place.boxes.classList.toggle("many", now.length > 12);
    for (const each of objects) each.box.hidden = each.row.hidden = !now.includes(each);
    const counts = new Map();
    for (const each of objects) if (each.score >= threshold) counts.set(each.label, (counts.get(each.label) ?? 0) + 1);
    for (const each of classes.children) {
      each.hidden = !counts.has(each.dataset.label);
      each.querySelector(".number").textContent = counts.get(each.dataset.label) ?? 0;
    }
    drawMasks();
    place.cut(threshold);
  }
  for (const label of new Set(objects.map(each => each.label))) {
    const input = element("input", {type: "checkbox", checked: true});
    const made = element("label", {}, input, sample(objects.find(each => each.label === label)), element("span", {}, label), element("span", {className: "number"}));
    made.dataset.label = label;
    input.addEventListener("input", () => { if (input.checked) hidden.delete(label); else hidden.add(label); update(); });
    classes.append(made);
  }
  list.append(...objects.map(each => each.row));
  place.boxes.append(...objects.map(each => each.box));
  const least = Math.min(LEAST, model.threshold);
  place.results.append(head, slider(say("threshold"), threshold, least, value => { threshold = value; update(); }), classes, list);
  update();
}
const percentOf = (part, whole) => `${100 * part / whole}%`;

// A class for each pixel.
function showAreas(place, model, result) {
  const off = new Set();
  let strength = 0.75, chosen = null;
  const areas = result.classes.map(each => {
    const number = model.labels.indexOf(each.label), colour = colourOf(model, each.label);
    return {...each, number, colour, mask: readMask(each.segmentation)};
  });
  for (const each of areas) {
    each.tag = element("span", {className: "tag spot"}, each.label);
    const [x, y] = each.mask.centre ?? [0.5, 0.5];
    Object.assign(each.tag.style, {left: `${100 * x}%`, top: `${100 * y}%`, background: `rgb(${each.colour})`, color: inkOn(each.colour)});
    const input = element("input", {type: "checkbox", checked: true});
    each.row = element("li", {}, element("label", {className: "area"}, input, swatch(each.colour, each.number),
      element("span", {className: "label"}, each.label), element("span", {className: "number"}, percent(each.area)),
      element("span", {className: "number soft"}, percent(each.score, 0)), bar(each.area)));
    input.addEventListener("input", () => { if (input.checked) off.delete(each); else off.add(each); update(); });
    each.row.addEventListener("pointerenter", () => choose(each));
    each.row.addEventListener("pointerleave", () => choose(null));
    input.addEventListener("focus", () => choose(each));
    input.addEventListener("blur", () => choose(null));
  }
  function choose(area) {
    if (chosen === area) return;
    chosen = area;
    update();
  }
  function update() {
    for (const each of areas) {
      each.row.classList.toggle("on", each === chosen);
      // a class without room for its name says it when it is pointed at
      each.tag.hidden = off.has(each) || !(each === chosen || (chosen === null && each.mask.centre && each.area > 0.01));
    }
    paintMasks(place.masks, result.size, areas.filter(each => !off.has(each)).map(each => ({
      mask: each.mask, colour: each.colour, pattern: each.number,
      strength: strength * (chosen === null ? 1 : chosen === each ? 1.2 : 0.25)})));
  }
  const surface = element("div", {className: "surface"});
  surface.addEventListener("pointermove", event => {
    const box = surface.getBoundingClientRect(), {width, height} = areas[0]?.mask ?? {width: 1, height: 1};
    const x = Math.floor((event.clientX - box.left) / box.width * width), y = Math.floor((event.clientY - box.top) / box.height * height);
    choose(areas.find(each => !off.has(each) && each.mask.inside[y * width + x]) ?? null);
  });
  surface.addEventListener("pointerleave", () => choose(null));
  if (model.can_explain && model.takes_pixel) {
    surface.title = say("why");
    surface.addEventListener("click", event => {
      const box = surface.getBoundingClientRect();
      const shares = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
      place.look({pixel: shares.map((share, i) => Math.max(0, Math.min(result.size[i] - 1, Math.floor(share * result.size[i]))))});
    });
  }
  place.boxes.append(surface, ...areas.map(each => each.tag));
  place.results.append(headline(say.counted("classesFound", areas.length), say("ofImage")),
    element("ul", {className: "areas"}, ...areas.map(each => each.row)),
    slider(say("strength"), strength, 0, value => { strength = value; update(); }, v => percent(v, 0)));
  update();
}

// What a model in pre-training predicts: patches that were hidden from it.
function showHidden(place, model, result) {
  const rows = result.hidden, flat = rows.flat();
  const grid = element("div", {className: "patches", role: "img", ariaLabel: say("hidden", flat.filter(Boolean).length, flat.length)},
    ...flat.map(hidden => element("i", {className: hidden ? "hidden" : ""})));
  grid.style.setProperty("--columns", rows[0].length);
  place.results.append(headline(say("loss", result.loss.toFixed(4)), say("hidden", flat.filter(Boolean).length, flat.length)), grid);
}

function showVector(place, model, result) {
  const values = result.features, least = Math.min(...values), most = Math.max(...values);
  const canvas = element("canvas", {className: "vector", width: values.length, height: 60, role: "img", ariaLabel: say("vector", values.length)});
  const context = canvas.getContext("2d");
  context.fillStyle = "#4f7fd0";
  values.forEach((value, i) => {
    const zero = 60 * most / (most - least || 1), end = 60 * (most - value) / (most - least || 1);
    context.fillRect(i, Math.min(zero, end), 1, Math.max(1, Math.abs(zero - end)));
  });
  place.results.append(headline(say("vector", values.length), say("range", least.toFixed(3), most.toFixed(3))), canvas);
}
