// Texts that never change are named by what they say in English; what else a page says stays so.
function speakFixed(words, places) {
  const keys = new Map(Object.entries(words.en).map(([key, text]) => [text, key]));
  for (const each of document.querySelectorAll(places))
    if (!each.children.length && keys.has(each.textContent)) each.dataset.say = keys.get(each.textContent);
  speak(words);
}
