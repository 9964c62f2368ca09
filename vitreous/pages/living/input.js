// An image as the model takes it: what vitreous/data/preprocess.py does, to the bit as Pillow resizes.

const BITS = 2 ** 22;
const FILTERS = {
  bilinear: [1, x => Math.max(0, 1 - Math.abs(x))],
  bicubic: [2, x => { // a = -0.5
    x = Math.abs(x);
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
  }],
};
function weightsFor(from, to, [support, filter], antialias) {
  const scale = from / to, wide = antialias ? Math.max(scale, 1) : 1, reach = support * wide;
  return Array.from({length: to}, (_, i) => {
    const centre = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5)), last = Math.min(from, Math.trunc(centre + reach + 0.5));
    const found = Array.from({length: last - first}, (_, k) => filter((k + first - centre + 0.5) / wide));
    const sum = found.reduce((a, b) => a + b, 0);
    return [first, found.map(v => Math.trunc(v / sum * BITS + (v < 0 ? -0.5 : 0.5)))];
  });
}
const clip = sum => Math.max(0, Math.min(255, Math.floor(sum / BITS)));

// planes (c, h, w) of whole numbers -> (c, height, width)
export function resize({data, c, h, w}, height, width, how, antialias = true) {
  if (h === height && w === width) return {data, c, h, w};
  if (how === "nearest") {
    const made = new Float32Array(c * height * width);
    for (let k = 0, at = 0; k < c; k++) for (let y = 0; y < height; y++) for (let x = 0; x < width; x++)
      made[at++] = data[(k * h + Math.floor(y * h / height)) * w + Math.floor(x * w / width)];
    return {data: made, c, h: height, w: width};
  }
  const filter = FILTERS[how];
  let now = data, wide = w;
  if (w !== width) {
    const table = weightsFor(w, width, filter, antialias), made = new Float32Array(c * h * width);
    for (let row = 0, at = 0; row < c * h; row++) for (const [first, weights] of table) {
      let sum = BITS / 2;
      for (let k = 0; k < weights.length; k++) sum += weights[k] * now[row * w + first + k];
      made[at++] = clip(sum);
    }
    now = made; wide = width;
  }
  if (h !== height) {
    const table = weightsFor(h, height, filter, antialias), made = new Float32Array(c * height * wide);
    for (let plane = 0, at = 0; plane < c; plane++) for (const [first, weights] of table) for (let x = 0; x < wide; x++) {
      let sum = BITS / 2;
      for (let k = 0; k < weights.length; k++) sum += weights[k] * now[(plane * h + first + k) * wide + x];
      made[at++] = clip(sum);
    }
    now = made;
  }
  return {data: now, c, h: height, w: width};
}

function channels({data, c, h, w}, wanted) {
  if (c === wanted) return {data, c, h, w};
  const n = h * w, made = new Float32Array(wanted * n);
  if (wanted === 1) for (let i = 0; i < n; i++) made[i] = roundEven(LUMINANCE.reduce((sum, part, k) => f32(sum + f32(part * data[k * n + i])), 0));
  else for (let k = 0; k < wanted; k++) made.set(data.subarray(0, n), k * n);
  return {data: made, c: wanted, h, w};
}
const f32 = Math.fround, LUMINANCE = [0.299, 0.587, 0.114].map(f32); // as torch computes it
const roundEven = x => { const r = Math.round(x); return r - x === 0.5 && r % 2 ? r - 1 : r; };

// What the model sees of an image: pixels from 0 to 255, (c, h, w) in one array.
export function prepare(image, {channels: wanted, size: [height, width], resize: how, whole, crop, interpolation, antialias}) {
  image = channels(image, wanted);
  if (image.h === height && image.w === width && crop === 1) return image.data;
  if (whole || how === "square") return resize(image, height, width, interpolation, antialias).data;
  const [tall, wide] = [height, width].map(side => Math.trunc(side / crop + 1e-9));
  const factor = Math.max(tall / image.h, wide / image.w);
  const h = Math.max(tall, Math.trunc(image.h * factor + 1e-9)), w = Math.max(wide, Math.trunc(image.w * factor + 1e-9));
  const large = resize(image, h, w, interpolation, antialias);
  const top = roundEven((h - height) / 2), left = roundEven((w - width) / 2), made = new Float32Array(wanted * height * width);
  for (let k = 0, at = 0; k < wanted; k++) for (let y = 0; y < height; y++, at += width)
    made.set(large.data.subarray((k * h + top + y) * w + left, (k * h + top + y) * w + left + width), at);
  return made;
}

// A file, a blob or a data URL -> planes; alpha is seen on white.
export async function readImage(source, most = 4096) {
  const blob = typeof source === "string" ? new Blob([bytesOfUrl(source)]) : source;
  const bitmap = await createImageBitmap(blob, {colorSpaceConversion: "none"});
  const scale = Math.min(1, most / Math.max(bitmap.width, bitmap.height));
  const w = Math.max(1, Math.round(bitmap.width * scale)), h = Math.max(1, Math.round(bitmap.height * scale));
  const canvas = new OffscreenCanvas(w, h), context = canvas.getContext("2d", {willReadFrequently: true});
  context.fillStyle = "#fff"; context.fillRect(0, 0, w, h);
  context.drawImage(bitmap, 0, 0, w, h);
  return planes(context.getImageData(0, 0, w, h));
}
export function planes({data, width: w, height: h}) {
  const n = w * h, made = new Float32Array(3 * n);
  for (let i = 0; i < n; i++) for (let k = 0; k < 3; k++) made[k * n + i] = data[4 * i + k];
  return {data: made, c: 3, h, w};
}
function bytesOfUrl(url) {
  const text = atob(url.slice(url.indexOf(",") + 1));
  return Uint8Array.from(text, letter => letter.charCodeAt(0));
}

// What is drawn with a pen, as the digits of the data are: cut out, as high as the picture, in its middle.
export function centred(drawn, height, width) {
  const {data, h, w} = drawn;
  let top = h, left = w, bottom = -1, right = -1;
  for (let y = 0; y < h; y++) for (let x = 0; x < w; x++) if (data[y * w + x] > 40) {
    top = Math.min(top, y); bottom = Math.max(bottom, y); left = Math.min(left, x); right = Math.max(right, x);
  }
  const made = new Float32Array(height * width);
  if (bottom < 0) return made;
  const scale = Math.min(height / (bottom - top + 1), width / (right - left + 1));
  const tall = Math.min(height, Math.max(1, Math.round((bottom - top + 1) * scale))), wide = Math.min(width, Math.max(1, Math.round((right - left + 1) * scale)));
  const cut = new Float32Array((bottom - top + 1) * (right - left + 1));
  for (let y = top, at = 0; y <= bottom; y++) for (let x = left; x <= right; x++) cut[at++] = data[y * w + x];
  const small = resize({data: cut, c: 1, h: bottom - top + 1, w: right - left + 1}, tall, wide, "bilinear");
  const y0 = Math.floor((height - tall) / 2), x0 = Math.floor((width - wide) / 2);
  for (let y = 0; y < tall; y++) for (let x = 0; x < wide; x++) made[(y0 + y) * width + x0 + x] = small.data[y * wide + x];
  return made;
}
