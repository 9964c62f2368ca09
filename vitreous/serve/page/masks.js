// Masks over a picture: run lengths, patterns that tell classes apart without colour, and where a label fits.

const SIDE = 800; // pixels of a mask's longer side as it is drawn
const STEP = 16, LINE = 4; // pixels from one line of a pattern to the next, and of a line

// Whether the pattern of a class has ink at a place.
const PATTERNS = [
  () => false,
  (x, y) => (x + y) % STEP < LINE,
  (x, y) => y % STEP < LINE,
  (x, y) => (x - y + 1000 * STEP) % STEP < LINE,
  (x, y) => x % STEP < LINE,
  (x, y) => x % STEP < 2 * LINE && y % STEP < 2 * LINE,
  (x, y) => x % STEP < LINE || y % STEP < LINE,
];
const patternOf = number => PATTERNS[number % PATTERNS.length];

function runs(text) { // COCO's compressed run lengths: zeros first, then ones, in turn
  const found = [];
  for (let i = 0; i < text.length;) {
    let value = 0, shift = 0, code;
    do {
      code = text.charCodeAt(i++) - 48;
      value |= (code & 31) << shift;
      shift += 5;
    } while (code & 32);
    if (code & 16) value |= -1 << shift;
    found.push(found.length > 2 ? value + found[found.length - 2] : value);
  }
  return found;
}

export function drawnSize([height, width]) {
  const scale = SIDE / Math.max(height, width);
  return {width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale))};
}

// The pixels of a mask in a drawing: all of them, those at its edge, and the centre of its widest part.
export function readMask({size, counts}) {
  const [rows, columns] = size, {width, height} = drawnSize(size);
  const inside = new Uint8Array(width * height), all = [], edge = [];
  let sum = 0, first = 0;
  const ends = runs(counts).map(length => sum += length);
  for (let x = 0; x < width; x++) { // runs go down the columns
    const column = Math.floor((x + 0.5) * columns / width) * rows;
    while (ends[first] <= column) first++;
    for (let y = 0, run = first; y < height; y++) {
      const at = column + Math.floor((y + 0.5) * rows / height);
      while (ends[run] <= at) run++;
      inside[y * width + x] = run % 2;
    }
  }
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const i = y * width + x;
    if (!inside[i]) continue;
    const outer = x < 2 || y < 2 || x >= width - 2 || y >= height - 2;
    if (outer || !inside[i - 2] || !inside[i + 2] || !inside[i - 2 * width] || !inside[i + 2 * width]) edge.push(i);
    else all.push(i);
  }
  return {width, height, inside, all, edge, centre: centre(inside, width, height)};
}

function centre(inside, width, height) { // farthest from what is outside, on a coarse grid, in shares
  const step = 8, w = Math.ceil(width / step), h = Math.ceil(height / step), far = new Uint16Array(w * h);
  const is = (x, y) => x >= 0 && y >= 0 && x < w && y < h;
  const at = (x, y) => is(x, y) ? far[y * w + x] : 0;
  let best = 0, where = null;
  for (let y = 0; y < h; y++) for (let x = 0; x < w; x++)
    if (inside[Math.min(height - 1, y * step + 4) * width + Math.min(width - 1, x * step + 4)])
      far[y * w + x] = 1 + Math.min(at(x - 1, y), at(x, y - 1));
  for (let y = h - 1; y >= 0; y--) for (let x = w - 1; x >= 0; x--) {
    const i = y * w + x;
    if (far[i]) far[i] = Math.min(far[i], 1 + Math.min(at(x + 1, y), at(x, y + 1)));
    if (far[i] > best) { best = far[i]; where = [(x + 0.5) / w, (y + 0.5) / h]; }
  }
  return where;
}

// layers: {mask, colour, pattern, strength: 0..1}; later ones lie above.
export function paintMasks(canvas, size, layers) {
  const {width, height} = drawnSize(size);
  canvas.width = width; canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height), pixels = image.data;
  for (const {mask, colour, pattern, strength} of layers) {
    const has = patternOf(pattern);
    const set = (i, alpha) => {
      pixels[4 * i] = colour[0]; pixels[4 * i + 1] = colour[1]; pixels[4 * i + 2] = colour[2];
      pixels[4 * i + 3] = 255 * alpha;
    };
    for (const i of mask.all) set(i, strength * (has(i % width, Math.floor(i / width)) ? 0.95 : 0.5));
    for (const i of mask.edge) set(i, Math.min(1, 2 * strength));
  }
  context.putImageData(image, 0, 0);
}

export function swatch(colour, pattern) {
  const canvas = document.createElement("canvas");
  canvas.className = "swatch"; canvas.width = 28; canvas.height = 20;
  const context = canvas.getContext("2d"), has = patternOf(pattern);
  for (let y = 0; y < canvas.height; y++) for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = `rgba(${colour},${has(2 * x, 2 * y) ? 1 : 0.5})`;
    context.fillRect(x, y, 1, 1);
  }
  return canvas;
}
