// One view: its chart, chosen from its data, and its rows as a table that can be sorted.

import { bars, lines } from "./chart.js";
import { cell, count, element, moment } from "./format.js";

const KEPT = 2000, SHOWN = 60, SERIES = 8, BARS = 8, POINTS = 240;

export class View {
  constructor(name) {
    this.name = name;
    this.key = [];
    this.rows = new Map();
    this.lines = new Map();
    this.sort = null;
    this.measure = null;
    this.changed = false;
    this.total = element("span");
    this.select = element("select", { title: "What the chart shows", hidden: true });
    this.select.addEventListener("change", () => { this.measure = this.select.value; this.changed = true; this.draw(); });
    this.chart = element("div", { className: "chart" });
    this.head = element("tr");
    this.body = element("tbody");
    const link = element("a", { href: `/views/${encodeURIComponent(name)}`, textContent: "JSON" });
    this.panel = element("article", { className: "panel view" },
      element("div", {}, element("h3", { textContent: name.replace(/^!/, "") }), this.total, this.select, link),
      this.chart,
      element("div", { className: "scroll" }, element("table", {}, element("thead", {}, this.head), this.body)));
  }

  update(rows, { fresh }) {
    for (const { key, row } of rows) {
      if (row === null) { this.rows.delete(key); continue; }
      // Deleted first, so that a map's order is that of the changes, newest last.
      this.rows.delete(key);
      this.rows.set(key, { key, row, flash: !fresh });
    }
    for (const key of this.rows.keys()) {
      if (this.rows.size <= KEPT) break;
      this.rows.delete(key);
    }
    this.changed = true;
  }

  describe({ key, count: total }) {
    this.key = key;
    const newest = this.rows.size < total ? `, the newest ${count(this.rows.size)} here` : "";
    this.total.textContent = `${count(total)} ${total === 1 ? "row" : "rows"} by ${key.join(", ")}${newest}`;
  }

  draw() {
    if (!this.changed || !this.panel.isConnected) return;
    this.changed = false;
    const rows = [...this.rows.values()].reverse();
    const columns = this.columns(rows);
    this.drawChart(rows, columns);
    this.drawTable(rows, columns);
  }

  columns(rows) {
    const names = new Set(this.key);
    for (const { row } of rows.slice(0, 50)) Object.keys(row).forEach((name) => names.add(name));
    return [...names].filter((name) => rows.some(({ row }) => row[name] !== undefined)).map((name) => {
      const values = rows.slice(0, 50).map(({ row }) => row[name]).filter((value) => value != null);
      return {
        name,
        numeric: values.length > 0 && values.every((value) => typeof value === "number"),
        time: values.length > 0 && values.every((value) => moment(value) !== null),
        text: values.length > 0 && values.every((value) => typeof value === "string"),
        key: this.key.includes(name),
      };
    });
  }

  // A time among the key makes lines over it; otherwise bars: of the largest, or of how often a text occurs.
  drawChart(rows, columns) {
    const clock = columns.find((column) => column.time && column.key);
    const measures = columns.filter((column) => column.numeric && !column.key).map((column) => column.name);
    const groups = columns
      .filter((column) => column.text && !column.time && !column.key && !clock)
      .filter(({ name }) => new Set(rows.map(({ row }) => row[name])).size <= 12 && rows.length > 12)
      .map(({ name }) => `rows by ${name}`);
    const choices = this.name.startsWith("!") ? [] : [...groups, ...measures];
    if (!choices.includes(this.measure)) this.measure = choices[0] ?? null;
    this.offer(choices);
    // Of the panel: a chart that is empty is not laid out, and has no width yet.
    const width = Math.max(this.panel.clientWidth - 16, 280);
    let drawn = [];
    if (this.measure && clock) drawn = lines(this.series(rows, clock, columns), width);
    else if (this.measure && this.bars(rows).length) drawn = bars(this.bars(rows), width);
    this.chart.replaceChildren(...drawn);
  }

  offer(choices) {
    const shown = [...this.select.options].map((option) => option.value);
    this.select.hidden = choices.length < 2;
    if (shown.join("\n") === choices.join("\n")) return;
    this.select.replaceChildren(...choices.map((name) => element("option", { value: name, textContent: name })));
    this.select.value = this.measure;
  }

  series(rows, clock, columns) {
    const names = columns.filter((column) => column.key && column !== clock).map((column) => column.name);
    const found = new Map();
    for (const { row } of rows) {
      const at = moment(row[clock.name]), value = row[this.measure];
      if (at === null || typeof value !== "number") continue;
      const name = names.map((each) => cell(row[each])).join(" · ") || this.measure;
      if (!found.has(name)) found.set(name, []);
      found.get(name).push([at, value, moment(row[clock.name]?.end) > Date.now()]);
    }
    const total = (points) => points.reduce((sum, point) => sum + Math.abs(point[1]), 0);
    const largest = [...found].sort((a, b) => total(b[1]) - total(a[1])).slice(0, SERIES);
    return new Map(largest.map(([name, points]) => [name, points.sort((a, b) => a[0] - b[0]).slice(-POINTS)]));
  }

  bars(rows) {
    const group = this.measure.startsWith("rows by ") ? this.measure.slice(8) : null;
    if (group === null) {
      const values = rows.filter(({ row }) => typeof row[this.measure] === "number").map(({ key, row }) => [this.label(row, key), row[this.measure]]);
      return values.sort((a, b) => b[1] - a[1]).slice(0, BARS);
    }
    const counts = new Map();
    for (const { row } of rows) counts.set(cell(row[group]), (counts.get(cell(row[group])) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).slice(0, BARS);
  }

  // What the key of a row reads like, column by column as in the table.
  label(row, key) {
    return this.key.every((name) => name in row) ? this.key.map((name) => cell(row[name])).join(" · ") : key;
  }

  drawTable(rows, columns) {
    const clock = columns.find((column) => column.time && column.key);
    const sort = this.sort ?? (clock ? { name: clock.name, down: true } : null);
    this.head.replaceChildren(...columns.map((column) => this.header(column, sort)));
    if (sort) rows = rows.toSorted((a, b) => compare(a.row[sort.name], b.row[sort.name]) * (sort.down ? -1 : 1));
    const shown = rows.slice(0, SHOWN);
    const lines = new Map();
    for (const entry of shown) lines.set(entry.key, this.line(entry, columns));
    this.lines = lines;
    this.body.replaceChildren(...lines.values());
  }

  header(column, sort) {
    const mark = sort?.name === column.name ? (sort.down ? " ↓" : " ↑") : "";
    const button = element("button", { textContent: column.name + mark });
    button.addEventListener("click", () => {
      this.sort = { name: column.name, down: sort?.name === column.name ? !sort.down : column.numeric || column.time };
      this.changed = true;
      this.draw();
    });
    return element("th", { className: column.numeric ? "number" : "" }, button);
  }

  line(entry, columns) {
    const line = this.lines.get(entry.key) ?? element("tr");
    line.replaceChildren(...columns.map(({ name, numeric }) => {
      const text = cell(entry.row[name]);
      return element("td", { className: numeric ? "number" : "", textContent: text, title: text.length > 40 ? text : "" });
    }));
    if (entry.flash) {
      entry.flash = false;
      const colour = getComputedStyle(document.documentElement).getPropertyValue("--flash");
      line.animate([{ background: colour }, { background: "transparent" }], { duration: 1600, easing: "ease-out" });
    }
    return line;
  }
}

function compare(a, b) {
  const [one, other] = [moment(a) ?? a, moment(b) ?? b];
  if (one == null || other == null) return (one == null) - (other == null);
  return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
}
