// What moves each second: health, the summary, topics and pipelines.

import { spark } from "./chart.js";
import { bytes, count, element, rate, seconds } from "./format.js";

const PILLS = { ok: "good", running: "good", degraded: "warn", restarting: "warn", stopped: "warn", failed: "bad" };
const byId = (id) => document.getElementById(id);
const paces = new Map();
const many = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export function showHealth({ status, reasons }) {
  const pill = byId("health");
  pill.textContent = { ok: "all is well", degraded: "degraded", failed: "failed" }[status] ?? status;
  pill.className = `pill ${PILLS[status] ?? ""}`;
  byId("reasons").hidden = reasons.length === 0;
  byId("reasons").textContent = reasons.join("\n");
}

export function showSummary({ topics, pipelines, views, alerts }) {
  const sum = (list, of) => list.reduce((total, each) => total + of(each), 0);
  const running = pipelines.filter((each) => each.state === "running").length;
  const dead = sum(alerts, (each) => each.dead);
  const tables = views.filter((each) => !each.name.startsWith("!"));  // the others are rows of alerts
  const tiles = [
    [rate(sum(topics, (each) => each.history.at(-1) ?? 0)), "records a second in"],
    [count(sum(topics, (each) => each.end)), `records in ${many(topics.length, "topic")}`],
    [`${running}/${pipelines.length}`, "pipelines running"],
    [count(sum(pipelines, (each) => each.lag)), "records still to read"],
    [count(sum(tables, (each) => each.count)), `rows in ${many(tables.length, "view")}`],
    [count(sum(alerts, (each) => each.waiting)), dead ? `alerts waiting, ${count(dead)} given up` : "alerts waiting"],
  ];
  byId("summary").replaceChildren(...tiles.map(([value, text]) =>
    element("div", { className: "tile" }, element("b", { textContent: value }), element("span", { textContent: text }))));
}

export function showTopics(topics) {
  label("topics", topics.length, "No topics: start with --broker, or create one.");
  const cards = topics.map((topic) => {
    const now = topic.history.at(-1) ?? 0;
    const figure = element("div", { className: "rate", textContent: rate(now) }, element("small", { textContent: " records/s" }));
    const text = `${many(topic.end, "record")} · ${many(topic.partitions, "partition")}`;
    return element("div", { className: `card ${now ? "" : "still"}` },
      element("h3", { textContent: topic.name }), figure, element("p", { textContent: text }), spark(topic.history));
  });
  if (cards.length) document.querySelector("#topics .cards").replaceChildren(...cards);
}

export function showPipelines(pipelines) {
  const section = byId("pipelines");
  section.querySelector("small").textContent = pipelines.length || "";
  section.querySelector("tbody").replaceChildren(...(pipelines.length ? pipelines.flatMap(pipelineLines) : [nothing()]));
}

function nothing() {
  return element("tr", {}, element("td", { colSpan: 9, className: "quiet", textContent: "No pipeline has run yet: headwater run APP starts them." }));
}

function pipelineLines(status) {
  const history = paces.get(status.name) ?? [];
  history.push(status.rows_per_second ?? 0);
  paces.set(status.name, history.slice(-60));
  const behind = status.watermark ? (Date.now() - Date.parse(status.watermark)) / 1000 : null;
  const number = (text, className = "") => element("td", { className: `number ${className}`, textContent: text });
  const line = element("tr", {},
    element("td", {}, status.name, element("span", { className: "kind", textContent: status.kind ?? "" })),
    element("td", {}, element("span", { className: `pill ${PILLS[status.state] ?? ""}`, textContent: status.state ?? "unknown" })),
    number(rate(status.rows_per_second ?? 0)),
    element("td", {}, spark(history)),
    number(count(status.lag), status.lag > 100 ? "behind" : ""),
    number(behind === null ? "–" : seconds(Math.max(behind, 0))),
    number(status.batch_ms == null ? "–" : seconds(status.batch_ms / 1000)),
    number(status.state_bytes ? bytes(status.state_bytes) : "–"),
    number(status.epoch ?? "–"));
  if (!status.error) return [line];
  return [line, element("tr", {}, element("td", { colSpan: 9, className: "error", textContent: String(status.error).split("\n")[0] }))];
}

export function label(id, number, empty) {
  const section = byId(id);
  section.querySelector("small").textContent = number || "";
  if (number === 0) section.lastElementChild.replaceChildren(element("p", { className: "empty", textContent: empty }));
}
