// Numbers as text, numbers as colours, and an output of the model as matrices.

const BLUE = [33, 102, 172], RED = [178, 24, 43], PAPER = [247, 247, 247];
const DARK = [20, 8, 46], LIGHT = [255, 240, 90], MIDDLE = [42, 150, 130];
const mix = (a, b, t) => a.map((v, i) => v + (b[i] - v) * t);
export const signed = t => t < 0 ? mix(PAPER, BLUE, Math.min(1, -t)) : mix(PAPER, RED, Math.min(1, t));
export const shares = t => t < 0.5 ? mix(DARK, MIDDLE, 2 * t) : mix(MIDDLE, LIGHT, 2 * t - 1);
export const number = v => {
  const a = Math.abs(v);
  const text = a === 0 ? "0" : a >= 1e4 || a < 1e-4 ? v.toExponential(1) : v.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : a >= 0.1 ? 3 : a >= 0.01 ? 4 : 5);
  return text.replaceAll("-", "−");
};
const erf = x => { // to 1.2e-7, by a rational of Numerical Recipes' form
  const t = 1 / (1 + 0.5 * Math.abs(x));
  const y = 1 - t * Math.exp(-x * x - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 +
    t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
  return x < 0 ? -y : y;
};
export const below = x => 0.5 * (1 + erf(x / Math.SQRT2)); // Φ: the share of a normal distribution
export const ACTIVATIONS = {
  gelu: x => x * below(x),
  "gelu-tanh": x => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  "quick-gelu": x => x / (1 + Math.exp(-1.702 * x)),
  relu: x => Math.max(0, x), "leaky-relu": x => x < 0 ? 0.01 * x : x, silu: x => x / (1 + Math.exp(-x)), tanh: Math.tanh,
};

// What is shown of an output: matrices (heads, rows, columns). Of a map (d, h, w) each channel is one.
export function matrixOf({dims, data}, map = false) {
  const shape = dims.slice(dims.length > 2 || dims[0] === 1 ? 1 : 0);
  if (shape.length === 1) return {heads: 1, rows: 1, columns: shape[0], at: (h, r, c) => data[c]};
  if (shape.length === 2) return {heads: 1, rows: shape[0], columns: shape[1], at: (h, r, c) => data[r * shape[1] + c]};
  const [a, b, c] = shape;
  return {heads: a, rows: b, columns: c, map, at: (h, r, col) => data[(h * b + r) * c + col]};
}
