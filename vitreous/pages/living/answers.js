// The model's answer: classes with their shares, a mask, or boxes over the image.
import {element, percent} from "../templates/viewer.js";
import {number} from "./matrices.js";

const softmax = data => { const most = Math.max(...data), e = Array.from(data, v => Math.exp(v - most)), s = e.reduce((a, b) => a + b, 0); return e.map(v => v / s); };
const sigmoid = data => Array.from(data, v => 1 / (1 + Math.exp(-v)));
export const scoresOf = ({logits: {data}}, about) => about.excludes ? softmax(data) : sigmoid(data);

// Classes, the most likely first, and how each differs from `before`, where something is changed.
export function answered(found, before, about, say) {
  const made = [];
  if (!found.logits) return [element("p", {}, say("vector"))];
  if (!about.labels.length) return Array.from(found.logits.data.slice(0, 20), (v, i) => element("p", {}, say("outputIs", i + 1), ": ", element("b", {}, number(v))));
  const scores = scoresOf(found, about), old = before && scoresOf(before, about);
  const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]).slice(0, 5);
  if (old) { const best = old.indexOf(Math.max(...old)); if (!order.includes(best)) order.push(best); }
  for (const i of order) {
    const bar = element("i", {className: "bar"});
    bar.style.setProperty("--share", (100 * scores[i]).toFixed(1) + "%");
    const difference = old ? differenceOf(scores[i] - old[i]) : "";
    const on = !about.excludes && about.thresholds && scores[i] >= about.thresholds[i] ? " ✓" : "";
    made.push(element("div", {className: "class"}, element("span", {className: "label"}, about.labels[i] + on), element("span", {className: "num"}, percent(scores[i]), " ", difference), bar));
  }
  if (old) made.push(element("p", {className: "soft small"}, say(scores.every((v, i) => Math.abs(v - old[i]) < 5e-4) ? "noChange" : "changeIs")));
  return made;
}

// The same in one line: the best class, or how much there is of each, or of objects how many.
export function inShort(found, before, about, say) {
  const {logits} = found;
  if (!logits || !about.labels.length) return [];
  if (about.answer === "objects") return [say("objects", sureOf(objectsIn(found, about), about).length, percent(thresholdOf(about)))];
  if (about.answer === "mask") return [countsOf(logits).slice(0, 3).map(([share, i]) => `${about.labels[i] ?? i} ${percent(share)}`).join(say("comma"))];
  const scores = scoresOf(found, about), best = scores.indexOf(Math.max(...scores)), old = before && scoresOf(before, about);
  const shown = [element("b", {}, about.labels[best]), " ", percent(scores[best])];
  if (old) shown.push(" ", differenceOf(scores[best] - old[best]));
  return shown;
}
function differenceOf(share) {
  const points = Math.abs(100 * share).toFixed(1), sign = points === "0.0" ? "" : share < 0 ? "−" : "+";
  return element("span", {className: "change " + (sign === "−" ? "down" : sign && "up")}, sign + points);
}
const thresholdOf = about => about.threshold ?? 0.5;
const sureOf = (objects, about) => objects.filter(each => each.score >= thresholdOf(about));

function bestOf({dims: [, k, h, w], data}) { // of each pixel
  const classes = new Int32Array(h * w);
  for (let i = 0; i < h * w; i++) for (let c = 1; c < k; c++) if (data[c * h * w + i] > data[classes[i] * h * w + i]) classes[i] = c;
  return classes;
}
function countsOf(logits, classes = bestOf(logits)) { // [share, class], the largest first
  const counts = new Array(logits.dims[1]).fill(0);
  for (const i of classes) counts[i]++;
  return counts.map((n, i) => [n / classes.length, i]).filter(([n]) => n).sort((a, b) => b[0] - a[0]);
}
function canvasWith(picture, [, h, w], draw) { // the image, and something over it
  const scale = Math.max(1, Math.ceil(480 / w)), canvas = element("canvas", {width: w * scale, height: h * scale, className: "drawn"}), context = canvas.getContext("2d");
  const image = new Image();
  image.onload = () => { context.imageSmoothingEnabled = false; context.drawImage(image, 0, 0, canvas.width, canvas.height); draw(context, canvas); };
  image.src = picture;
  return canvas;
}
function inkOn(colour) { // black or white, whichever is read better: as pages/colours.py has it
  const [red, green, blue] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
  return 77 * red + 150 * green + 29 * blue > 128 * 256 ? "#000" : "#fff";
}
function maskOver(context, {dims: [,, h, w], data}, query, colour) { // of one object: where its logits are above zero
  const {width, height} = context.canvas;
  context.globalAlpha = 0.45; context.fillStyle = colour;
  for (let i = 0; i < h * w; i++) if (data[query * h * w + i] > 0) context.fillRect(i % w * width / w, Math.floor(i / w) * height / h, width / w, height / h);
  context.globalAlpha = 1;
}
// What is found, the surest first: objects with their queries and boxes.
export function objectsIn({logits, boxes}, about) {
  const [, q, k] = logits.dims, classes = about.labels.length, found = [];
  for (let i = 0; i < q; i++) {
    const line = logits.data.slice(i * k, (i + 1) * k), scores = about.noObject ? softmax(line) : sigmoid(line);
    let best = 0;
    for (let c = 1; c < classes; c++) if (scores[c] > scores[best]) best = c;
    found.push({best, query: i, score: scores[best], box: boxes.data.slice(4 * i, 4 * i + 4)});
  }
  return found.sort((a, b) => b.score - a.score);
}
export const DRAWN = {
  mask({logits}, picture, about) {
    const [,, h, w] = logits.dims, classes = bestOf(logits);
    const canvas = canvasWith(picture, about.input, (context, {width, height}) => {
      context.globalAlpha = 0.55;
      for (let i = 0; i < h * w; i++) { context.fillStyle = about.colours[classes[i]]; context.fillRect(i % w * width / w, Math.floor(i / w) * height / h, width / w + 0.5, height / h + 0.5); }
    });
    const list = countsOf(logits, classes).slice(0, 8).map(([share, i]) => {
      const mark = element("i", {className: "swatch"}); mark.style.background = about.colours[i];
      return element("li", {}, mark, about.labels[i] ?? String(i), " ", percent(share));
    });
    return element("div", {}, canvas, element("ul", {className: "legendary"}, ...list));
  },
  objects(found, picture, about, say) {
    const all = objectsIn(found, about), sure = sureOf(all, about);
    const canvas = canvasWith(picture, about.input, (context, {width, height}) => {
      if (found.masks) for (const {query, best} of sure) maskOver(context, found.masks, query, about.colours[best]);
      context.font = "bold 18px system-ui"; context.lineWidth = 3;
      for (const {best, score, box: [x, y, w, h]} of sure.slice(0, 50)) {
        const text = `${about.labels[best]} ${percent(score)}`, left = Math.max(0, (x - w / 2) * width), top = Math.max(0, (y - h / 2) * height), wide = context.measureText(text).width + 8;
        context.strokeStyle = context.fillStyle = about.colours[best];
        context.strokeRect((x - w / 2) * width, (y - h / 2) * height, w * width, h * height);
        context.fillRect(Math.min(left, width - wide), top, wide, 24);
        context.fillStyle = inkOn(about.colours[best]);
        context.fillText(text, Math.min(left, width - wide) + 4, top + 18);
      }
    });
    const next = sure.length ? [] : [element("p", {}, say("noneReaches", percent(thresholdOf(about)), about.labels[all[0].best], percent(all[0].score)))];
    return element("div", {}, canvas, element("p", {}, say("objects", sure.length, percent(thresholdOf(about)))), ...next);
  },
};
