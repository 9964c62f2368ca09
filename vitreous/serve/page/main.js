// The page: images come in, panes show what models say about the one that is chosen.
import {ask, openDescription, predict} from "./api.js";
import {Pane} from "./pane.js";
import {openPhoto, thumbnail} from "./photo.js";
import {caption} from "./results.js";
import {onLanguage, say} from "./strings.js";
import {element} from "./viewer.js";

const at = id => document.getElementById(id);
const photos = [], panes = [];
let models = [], current = null, starting = null;

const touch = matchMedia("(pointer: coarse)").matches; // nothing is dropped here, but there is a camera

if (touch) {
  document.querySelector("#start h2").dataset.say = "tap";
  document.querySelector("#start p").dataset.say = "orPhoto";
}
onLanguage(() => {
  at("strip").ariaLabel = say("images");
  for (const photo of photos) nameRemove(photo);
  for (const pane of panes) pane.speak();
  if (panes.length) { preview(photos); showExamples(panes[0].model); }
});

// Images

async function add(files) {
  const added = [];
  for (const file of files) {
    const photo = await openPhoto(file);
    photos.push(photo);
    at("strip").append(thumb(photo));
    added.push(photo);
    choose(added[0]);
  }
  if (models.length) await preview(added);
  else starting ??= start(); // the token was not given before
}

function thumb(photo) {
  const text = element("span", {className: "caption"}, "…");
  const button = element("button", {type: "button", className: "thumb", title: photo.name, ariaLabel: photo.name}, thumbnail(photo), text);
  const remove = element("button", {type: "button", className: "remove"}, "×");
  photo.item = element("div", {className: "item"}, button, remove);
  photo.caption = text;
  nameRemove(photo);
  button.addEventListener("click", () => choose(photo));
  remove.addEventListener("click", () => discard(photo));
  photo.item.addEventListener("keydown", event => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === "Delete") discard(photo);
    else if (step) {
      const next = photos[photos.indexOf(photo) + step];
      if (next) { choose(next); next.item.firstChild.focus(); }
    } else return;
    event.preventDefault();
  });
  return photo.item;
}

function nameRemove(photo) {
  const button = photo.item.lastChild;
  button.ariaLabel = button.title = say("remove", photo.name);
}

function choose(photo) {
  const other = photo !== current;
  current = photo;
  for (const each of photos) each.item.firstChild.setAttribute("aria-pressed", each === photo);
  at("strip").hidden = photos.length < 2;
  at("start").hidden = photos.length > 0;
  document.body.classList.toggle("started", photos.length > 0);
  photo?.item.scrollIntoView({block: "nearest", inline: "nearest"});
  if (other) for (const pane of panes) pane.show(photo);
}

function discard(photo) {
  const place = photos.indexOf(photo);
  photo.leaving.abort();
  photo.item.remove();
  photos.splice(place, 1);
  const next = photos[Math.min(place, photos.length - 1)] ?? null;
  choose(photo === current ? next : current);
  (next?.item.firstChild ?? at("choose")).focus();
}

async function preview(some) { // a few words below each, by the first pane's model
  const model = panes[0].model;
  for (const photo of some) {
    try {
      const words = caption(await predict(photo, model), model);
      if (model === panes[0].model) photo.caption.textContent = words;
    } catch { photo.caption.textContent = "!"; }
  }
}

at("choose").addEventListener("click", () => at("files").click());
at("start").addEventListener("click", () => at("files").click());
at("photograph").addEventListener("click", () => at("camera").click());
at("photograph").hidden = !touch; // elsewhere it would only choose a file
for (const id of ["files", "camera"])
  at(id).addEventListener("change", event => { const chosen = [...event.target.files]; event.target.value = ""; add(chosen); });
document.addEventListener("paste", event => {
  const files = [...event.clipboardData.files];
  if (files.length) { event.preventDefault(); add(files); }
});
let inside = 0; // how deep in the page a dragged file is
document.addEventListener("dragenter", event => {
  event.preventDefault();
  inside++;
  document.body.classList.toggle("dropping", event.dataTransfer.types.includes("Files"));
});
document.addEventListener("dragleave", () => { if (--inside <= 0) { inside = 0; document.body.classList.remove("dropping"); } });
document.addEventListener("dragover", event => event.preventDefault());
document.addEventListener("drop", event => {
  event.preventDefault();
  inside = 0;
  document.body.classList.remove("dropping");
  add([...event.dataTransfer.files]);
});

// Models

function addPane(model) {
  const pane = new Pane(`pane${panes.length + 1}`, models, {changed, closed: () => compare(false)});
  panes.push(pane);
  at("panes").append(pane.root);
  if (model) pane.use(model);
  pane.show(current);
}

function changed(pane) {
  if (pane !== panes[0]) return;
  for (const photo of photos) photo.caption.textContent = "…";
  preview(photos);
  showExamples(pane.model);
}

function compare(on) {
  at("compare").setAttribute("aria-pressed", on);
  document.body.classList.toggle("comparing", on);
  if (on && panes.length === 1) { // best with another one for the same task
    const others = models.filter(each => each !== panes[0].model);
    addPane(others.find(each => each.task === panes[0].model.task) ?? others[0]);
  } else if (!on && panes.length > 1) {
    panes.pop().root.remove();
    at("compare").focus();
  }
}
at("compare").addEventListener("click", () => compare(panes.length === 1));
document.addEventListener("keydown", event => { if (event.key === "Escape" && panes.length > 1) compare(false); });

// Examples, where the server gives some

async function showExamples(model) {
  const row = at("examples").querySelector(".row");
  row.replaceChildren();
  at("examples").hidden = !model.examples;
  if (!model.examples) return;
  const path = `/v1/models/${encodeURIComponent(model.name)}/examples`;
  try {
    const {examples} = await (await ask(path)).json();
    for (const {name, number} of examples) {
      const data = await (await ask(`${path}/${number}`)).blob();
      const file = new File([data], name.split("/").at(-1), {type: data.type});
      const photo = await openPhoto(file);
      if (model !== panes[0].model) return;
      const button = element("button", {type: "button", className: "thumb", ariaLabel: say("example", name), title: name}, thumbnail(photo));
      button.addEventListener("click", () => { add([file]); scrollTo({top: 0}); });
      row.append(button);
    }
  } catch { /* the page works without them */ }
}

async function start() {
  at("loading").hidden = false;
  try {
    const waiting = words => { at("loading").textContent = words; };
    ({models} = await (await ask("/v1/models", {waiting})).json());
  } catch (error) {
    at("loading").textContent = `${error.title}: ${error.message}`;
    starting = null;
    return;
  }
  at("loading").hidden = true;
  at("compare").hidden = models.length < 2;
  addPane();
  choose(current);
  preview(photos);
  await showExamples(models[0]);
}
at("description").addEventListener("click", openDescription);
starting = start();
