// The server's API: requests, errors as words, the token, and patience with a server that is busy.
import {say} from "./strings.js";

const TRIES = 5; // at a queue that is full
let token = sessionStorage.getItem("token") ?? "";

export class Problem extends Error {
  constructor(kind, detail) {
    super(detail);
    this.kind = kind;
  }
  get title() { return say(`problem ${this.kind}`) ?? say("problem internal"); }
}

const pause = seconds => new Promise(done => setTimeout(done, 1000 * seconds));

// `waiting` is told in words why it takes longer.
export async function ask(path, {body, signal, waiting = () => {}} = {}) {
  for (let tries = 1; ; tries++) {
    let answer;
    try {
      const headers = token ? {authorization: `Bearer ${token}`} : {};
      answer = await fetch(path, {method: body ? "POST" : "GET", body, signal, headers});
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("unreachable", say("unreachable"));
    }
    if (answer.ok) return answer;
    const problem = await problemOf(answer);
    const seconds = +answer.headers.get("retry-after") || 1;
    if (problem.kind === "no-token") token = await askToken(token !== "");
    else if (problem.kind === "not-ready") { waiting(say("loading")); await pause(seconds); }
    else if (problem.kind === "queue-full" && tries < TRIES) { waiting(say("busy", seconds)); await pause(seconds); }
    else throw problem;
  }
}

async function problemOf(answer) {
  const found = await answer.json().catch(() => ({}));
  const kind = (found.type ?? "").replace("urn:vitreous:problem:", "") || "internal";
  return new Problem(kind, found.detail ?? `${answer.status} ${answer.statusText}`);
}

let asking = null; // one dialog, however many requests wait for it
function askToken(wrong) {
  return asking ??= new Promise((done, failed) => {
    const dialog = document.getElementById("token"), input = dialog.querySelector("input");
    const end = given => {
      asking = null;
      if (given) sessionStorage.setItem("token", given);
      if (given) done(given); else failed(new Problem("no-token", say("tokenNeeded")));
    };
    dialog.querySelector("form").onsubmit = event => { event.preventDefault(); dialog.close(input.value.trim()); };
    dialog.querySelector("button[type=button]").onclick = () => dialog.close("");
    dialog.onclose = () => end(dialog.returnValue);
    dialog.querySelector("p").hidden = !wrong;
    dialog.returnValue = input.value = "";
    dialog.showModal();
  });
}

function pathOf(model, action, options) {
  const query = new URLSearchParams(options).toString();
  return `/v1/models/${encodeURIComponent(model.name)}/${action}${query && `?${query}`}`;
}

// What is known about a photo, by model and question: nothing is asked twice.
const known = new WeakMap();

function once(photo, model, action, options, waiting) {
  const path = pathOf(model, action, options);
  if (!known.has(photo)) known.set(photo, new Map());
  const answers = known.get(photo);
  if (!answers.has(path)) {
    const body = new FormData();
    body.append("image", photo.file, photo.name);
    const found = ask(path, {body, signal: photo.leaving.signal, waiting})
      .then(answer => answer.json()).then(answer => answer.results[0]);
    answers.set(path, found);
    found.catch(() => answers.delete(path));
  }
  return answers.get(path);
}

export const LEAST = 0.05; // scores below are not asked for; above, the page cuts by itself

function predictOptions(model) {
  const options = [];
  const cuts = model.takes_threshold && model.threshold !== null;
  if (cuts) options.push(["threshold", Math.min(LEAST, model.threshold)]);
  if (model.takes_top) options.push(["top", cuts ? 100 : model.takes_threshold ? 50 : 10]);
  if (model.masks.includes("rle")) options.push(["masks", "rle"]);
  return options;
}

export function predict(photo, model, waiting) {
  return once(photo, model, "predict", predictOptions(model), waiting);
}

export function curlLine(photo, model, threshold) { // what gives the answer that is shown, for a shell
  const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
  const bearer = token ? " -H 'Authorization: Bearer TOKEN'" : "";
  const options = predictOptions(model).filter(([name]) => name === "masks");
  if (threshold !== undefined) options.unshift(["threshold", threshold]);
  const address = location.origin + pathOf(model, "predict", options);
  return `curl${bearer} -F ${quoted(`image=@${photo.name}`)} ${quoted(address)}`;
}

export function explain(photo, model, {classes = [], pixel = null}, waiting) {
  const options = [["maps", "viewer"], ...classes.map(name => ["classes", name])];
  if (pixel) options.push(["y", pixel[0]], ["x", pixel[1]]);
  return once(photo, model, "explain", options, waiting);
}

export async function openDescription(event) { // by a link, the browser would send no token
  if (!token) return;
  event.preventDefault();
  const tab = open("", "_blank"); // at once: later it would be a popup that browsers block
  const found = await (await ask("/openapi.json")).blob();
  tab.location = URL.createObjectURL(found);
}
