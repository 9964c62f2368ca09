// What the page's address asks for: page.html#step=scores&block=1&head=2&token=5&only=steps. Numbers count from 1, as labels do.
import {LANGUAGES} from "../templates/words.js";

export const PARTS = ["look", "change", "steps", "answer"];

// Numbers count from 0 in what is found; what this page does not know is left out, and the console says so.
export function readLink(hash, about, live) {
  const {steps, grid: [h, w], prefix, samples, layers, queries} = about;
  const oneOf = names => text => names.includes(text) ? text : undefined;
  const upTo = most => text => /^\d+$/.test(text) && +text >= 1 && +text <= most ? text - 1 : undefined;
  const most = (values, none) => Math.max(none, ...values);
  const known = {
    step: oneOf(steps.map(({key}) => key)), lang: oneOf(Object.keys(LANGUAGES)), only: oneOf(PARTS.filter(name => live || name !== "change")),
    block: upTo(most(steps.map(({group}) => group ? group[1] + 1 : 0), 0)), head: upTo(most([...layers.map(name => about.outputs[name][1]), ...queries.map(({heads}) => heads)], 1)),
    token: upTo(prefix + h * w), column: upTo(Infinity), sample: upTo(samples.length),
    patch: text => { // row, column
      const [row, column] = text.split(",").map((part, i) => upTo([h, w][i])(part.trim()));
      return row === undefined || column === undefined ? undefined : prefix + row * w + column;
    },
  };
  const found = {};
  for (const [name, text] of new URLSearchParams(hash.slice(1))) {
    const value = Object.hasOwn(known, name) ? known[name](text) : undefined;
    if (value === undefined) console.warn(`#${name}=${text} is ignored: see docs/living-page.md, "Links into the page"`);
    else found[name === "patch" ? "token" : name] = value;
  }
  return found;
}
