// The page: one event stream in, and everything on the screen drawn from it.

import { session, signIn } from "/headwater.js";
import { label, showHealth, showPipelines, showSummary, showTopics } from "./state.js";
import { View } from "./view.js";

const views = new Map();
let state = null;
let heard = 0;

function view(name) {
  if (!views.has(name)) views.set(name, new View(name));
  return views.get(name);
}

function show() {
  if (state === null) return;
  document.title = state.app ? `${state.app} · Headwater` : "Headwater";
  document.getElementById("app").textContent = state.app ?? "Headwater";
  showHealth(state.health);
  showSummary(state);
  showTopics(state.topics);
  showPipelines(state.pipelines);
  const shown = state.views.filter(({ name }) => !name.startsWith("!"));
  const alerts = state.views.filter(({ name }) => name.startsWith("!"));
  place("views", shown, "No views yet: a pipeline with @app.view makes one.");
  place("alerts", alerts, "No alerts yet: a pipeline with @app.alert makes one.");
  for (const { name, waiting, dead } of state.alerts) {
    view(`!${name}`).total.textContent = `${waiting} waiting, ${dead} given up`;
  }
}

function place(id, described, empty) {
  label(id, described.length, empty);
  const panels = described.map((each) => {
    view(each.name).describe(each);
    return view(each.name).panel;
  });
  const holder = document.querySelector(`#${id} .panels`);
  // Only when the set changes: moving an element would lose its place and its scrolling.
  if (panels.length && (panels.length !== holder.children.length || panels.some((panel, i) => holder.children[i] !== panel))) {
    holder.replaceChildren(...panels);
  }
}

function draw() {
  if (!document.hidden) for (const each of views.values()) each.draw();
}

function follow() {
  heard = Date.now();
  const stream = new EventSource("/live");
  const on = (name, handle) => stream.addEventListener(name, (event) => { heard = Date.now(); handle(JSON.parse(event.data)); });
  on("state", (data) => { state = data; show(); draw(); });
  on("rows", (data) => { const each = view(data.view); each.rows.clear(); each.update(data.rows, { fresh: true }); draw(); });
  on("changes", (data) => { view(data.view).update(data.rows, { fresh: false }); draw(); });
}

const form = document.getElementById("sign-in");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = form.querySelector("input");
  try {
    await signIn(field.value.trim());
    form.hidden = true;
    follow();
  } catch (error) {
    form.querySelector("span").textContent = error.message;
  }
  field.value = "";
});

const { required, roles } = await session();
if (required && !roles.includes("read")) form.hidden = false;
else follow();

setInterval(() => {
  const away = heard ? Math.round((Date.now() - heard) / 1000) : 0;
  document.getElementById("updated").textContent = away > 3 ? `last heard ${away} s ago` : "";
  if (away > 3) explain();
}, 1000);

// Say why nothing is heard: a server whose store is away answers, and tells of it.
async function explain() {
  let health = { status: "disconnected", reasons: ["The server does not answer; trying again."] };
  try {
    const told = await (await fetch("/health")).json();
    if (told.reasons?.length) health = told;
  } catch { /* it does not answer */ }
  if (Date.now() - heard > 3000) showHealth(health);
}

addEventListener("resize", () => { for (const each of views.values()) each.changed = true; draw(); });

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => localStorage.getItem("theme") ?? (dark.matches ? "dark" : "light");
const dress = () => { root.dataset.theme = theme(); };
document.getElementById("theme").addEventListener("click", () => {
  localStorage.setItem("theme", theme() === "dark" ? "light" : "dark");
  dress();
});
dark.addEventListener("change", dress);
dress();
