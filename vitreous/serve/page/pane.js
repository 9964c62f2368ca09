// One model and what it says about a photo. Two of them stand side by side to be compared.
import {curlLine, explain, predict} from "./api.js";
import {paint} from "./photo.js";
import {caption, showResult} from "./results.js";
import {say} from "./strings.js";
import {element, openViewer} from "./viewer.js";
import {translate} from "./words.js";

const PATIENCE = 120; // milliseconds before it is said that something takes time

export class Pane {
  constructor(name, models, {changed, closed}) {
    this.name = name;
    this.models = models;
    this.root = document.getElementById("pane").content.cloneNode(true).firstElementChild;
    translate(this.root, say);
    const find = selector => this.root.querySelector(selector);
    this.parts = {select: find("select"), about: find(".about"), wait: find(".wait"), problem: find(".problem"),
      answer: find(".answer"), inside: find(".inside"), photo: find(".photo"), pixels: find(".pixels"), name: find(".name")};
    this.place = {results: find(".results"), boxes: find(".boxes"), masks: find(".masks"), look: which => this.look(which),
      cut: threshold => { this.threshold = threshold; this.#curl(); }};
    this.model = models[0];
    this.mode = "answer";
    this.photo = null;
    this.turn = 0;
    const {select} = this.parts;
    select.append(...models.map(each => new Option(each.name, each.name)));
    select.addEventListener("input", () => { this.use(models.find(each => each.name === select.value)); changed(this); });
    for (const button of this.root.querySelectorAll("[data-mode]"))
      button.addEventListener("click", () => this.open(button.dataset.mode));
    find(".problem button").addEventListener("click", () => this.refresh());
    find(".close").addEventListener("click", closed);
    this.root.addEventListener("keydown", event => {
      if (event.key !== "Escape" || this.mode !== "inside") return;
      event.stopPropagation();
      this.open("answer");
      this.root.querySelector("[data-mode=inside]").focus();
    });
    this.use(this.model);
  }

  use(model) {
    this.model = model;
    this.parts.select.value = model.name;
    this.#describe();
    this.root.setAttribute("aria-label", model.name);
    if (!model.can_explain) this.mode = "answer";
    this.refresh();
  }

  #describe() { // what a model is for is said in English alone
    const {purpose, model, labels, engine, precision, licence} = this.model;
    const known = [say.language === "en" && purpose, model, labels.length && say.counted("classes", labels.length), `${engine} ${precision}`, licence && say("licence", licence)];
    this.parts.about.textContent = known.filter(Boolean).join(" · ");
  }

  speak() { // in another language, what is shown
    this.#describe();
    this.refresh(this.which, this.viewer?.state);
  }

  show(photo) {
    this.photo = photo;
    this.refresh();
  }

  open(mode) {
    this.mode = mode;
    this.refresh();
  }

  look(which) { // at a class, by its name, at one of the objects, or at {pixel: [y, x]}
    if (!this.model.can_explain) return;
    this.mode = "inside";
    this.refresh(which);
  }

  async refresh(which = null, before = null) {
    this.which = which;
    const mine = ++this.turn, {photo, model, parts} = this, inside = this.mode === "inside";
    this.root.classList.toggle("empty", !photo);
    for (const button of this.root.querySelectorAll("[data-mode]")) {
      button.setAttribute("aria-pressed", button.dataset.mode === this.mode);
      const closed = button.dataset.mode === "inside" && !model.can_explain;
      button.disabled = !photo || closed;
      button.title = closed ? say("noInside") : "";
    }
    parts.problem.hidden = true;
    if (!photo) {
      parts.answer.hidden = parts.inside.hidden = parts.wait.hidden = true;
      return;
    }
    const current = () => mine === this.turn;
    const waiting = words => { if (current()) parts.wait.lastChild.textContent = words; };
    waiting(say(inside ? "explaining" : "computing"));
    const timer = setTimeout(() => { if (current()) { parts.wait.hidden = false; this.root.classList.add("waiting"); } }, PATIENCE);
    if (!inside && this.painted !== photo) this.#paint(null); // the picture is there before the answer
    try {
      const result = await predict(photo, model, waiting);
      const data = inside ? await explain(photo, model, this.#question(result, which), waiting) : null;
      if (!current()) return;
      this.root.querySelector(".said").textContent = `${photo.name}: ${caption(result, model)}`;
      if (inside) this.#showInside(result, data, which, before); else this.#showAnswer(result);
    } catch (error) {
      if (!current() || error.name === "AbortError") return;
      if (!error.kind) throw error;
      parts.answer.hidden = parts.inside.hidden = true;
      parts.problem.hidden = false;
      parts.problem.children[0].textContent = error.title;
      parts.problem.children[1].textContent = error.message;
    } finally {
      clearTimeout(timer);
      if (current()) { parts.wait.hidden = true; this.root.classList.remove("waiting"); }
    }
  }

  #question(result, which) { // a class that is asked for, with the most likely ones; or a pixel
    if (typeof which !== "string") return {pixel: which?.pixel};
    const best = result.top.slice(0, 3).map(each => each.label);
    return {classes: [...new Set([which, ...best])]};
  }

  #paint(size) {
    const {photo, parts} = this;
    this.painted = photo;
    paint(photo, parts.pixels, size);
    parts.pixels.ariaLabel = photo.name;
    parts.photo.style.setProperty("--ratio", parts.pixels.width / parts.pixels.height);
    parts.name.textContent = photo.picture ? photo.name : `${photo.name}: ${say("noPicture")}`;
    this.place.results.replaceChildren();
    this.place.boxes.replaceChildren();
    this.place.masks.width = this.place.masks.height = 1;
    parts.inside.hidden = true;
    parts.answer.hidden = false;
  }

  #showAnswer(result) {
    this.#paint(result.size);
    this.threshold = undefined;
    this.line = element("pre");
    showResult(this.place, this.model, result);
    this.place.results.append(element("details", {}, element("summary", {}, say("curl")), this.line));
    this.#curl();
  }

  #curl() {
    this.line.textContent = curlLine(this.photo, this.model, this.threshold);
  }

  #showInside(result, data, which, before) {
    const {parts} = this;
    let first = typeof which === "string" ? `for the class ${which}` : null;
    if (which?.box) first = `object ${data.objects?.names.indexOf(`${which.label} ${which.score.toFixed(2)}`)}`;
    this.viewer = openViewer(parts.inside, data, {say: say.part("viewer"), prefix: `${this.name}-`, first, before});
    parts.inside.querySelector(".choices").prepend(
      element("h2", {}, caption(result, this.model)), element("p", {className: "soft hint"}, this.viewer.hint));
    parts.answer.hidden = true;
    parts.inside.hidden = false;
    if (which && !before) parts.inside.querySelector(".stage").focus({preventScroll: true});
  }
}
