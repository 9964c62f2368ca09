// What pages say. The words are in words.toml, in English and Chinese: the browser's language decides, and a reader can switch.
export const LANGUAGES = {en: "English", zh: "中文"};

// What a reader has chosen is kept for the next time, where the browser keeps anything for this page.
const KEPT = "vitreous-language";
function remembered() { try { return localStorage.getItem(KEPT); } catch { return null; } }
function remember(language) { try { localStorage.setItem(KEPT, language); } catch { /* it is forgotten */ } }
function preferred() {
  const chosen = remembered();
  return chosen in LANGUAGES ? chosen : navigator.languages.map(each => each.toLowerCase().split("-")[0]).find(each => each in LANGUAGES) ?? "en";
}

// say(key, …) is a text with its {0}, {1} … filled in; `words` has a table for each language.
export function speaker(words, language = preferred()) {
  const table = words[language];
  const fill = (text, given) => text.replace(/\{(\d)\}/g, (_, i) => given[i]);
  const say = (key, ...given) => typeof table[key] === "string" ? fill(table[key], given) : table[key];
  say.counted = (key, n) => fill([table[key]].flat().at(n === 1 ? 0 : -1), [n.toLocaleString("en")]); // a text, or one for 1 and one for more
  say.message = message => Array.isArray(message) ? say(...message) : message; // a key and what is filled in, or a plain text
  say.part = name => speaker({[language]: table[name]}, language);
  say.language = language; say.number = Object.keys(LANGUAGES).indexOf(language);
  return say;
}

export function translate(root, say) { // what the HTML names
  for (const each of root.querySelectorAll("[data-say]")) each.textContent = say(each.dataset.say, ...JSON.parse(each.dataset.given ?? "[]"));
  for (const each of root.querySelectorAll("[data-label]")) each.ariaLabel = each.title = say(each.dataset.label);
  for (const each of root.querySelectorAll("[data-placeholder]")) each.placeholder = say(each.dataset.placeholder);
}

// Fills the page's select #language; `change(say)` is called now, and whenever another language is chosen. Gives a function
// that takes another language without remembering it.
export function speak(words, change = () => {}, first = preferred()) {
  const select = document.getElementById("language");
  const use = language => {
    const say = speaker(words, language);
    document.documentElement.lang = language === "zh" ? "zh-Hans" : language;
    select.value = language;
    translate(document, say);
    change(say);
  };
  select.append(...Object.entries(LANGUAGES).map(([value, name]) => new Option(name, value)));
  select.addEventListener("input", () => { remember(select.value); use(select.value); });
  use(first);
  return use;
}
