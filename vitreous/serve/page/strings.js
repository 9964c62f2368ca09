// What the page says, in its reader's language.
import {WORDS} from "./table.js";
import {speak, speaker} from "./words.js";

export let say = speaker(WORDS);
export function onLanguage(change) { // now, and whenever another one is chosen
  speak(WORDS, next => { say = next; change(); });
}

export const percent = (share, digits = 1) =>
  share > 0 && share < 0.5 / 10 ** (digits + 2) ? `< ${1 / 10 ** digits} %` : `${(100 * share).toFixed(digits)} %`;
