// Making elements, and numbers and times as people read them.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(number) {
  return Math.abs(number) >= 1e6 ? compact.format(number) : whole.format(number);
}

export function short(number) {
  return Math.abs(number) >= 1e4 ? compact.format(number) : fine.format(number);
}

export function rate(number) {
  return number >= 100 ? count(number) : number >= 10 ? number.toFixed(0) : number.toFixed(number ? 1 : 0);
}

export function bytes(number) {
  if (!number) return "0 B";
  const power = Math.min(Math.floor(Math.log2(number) / 10), 4);
  return `${fine.format(number / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

export function seconds(number) {
  if (number < 0.95) return `${Math.round(number * 1000)} ms`;
  if (number < 90) return `${number.toFixed(number < 10 ? 1 : 0)} s`;
  if (number < 5400) return `${Math.round(number / 60)} min`;
  return number < 172800 ? `${Math.round(number / 3600)} h` : `${Math.round(number / 86400)} d`;
}

const ISO = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}/;

// The moment a value stands for, in milliseconds: of a window its start; null for what is no time.
export function moment(value) {
  if (value && typeof value === "object" && "start" in value) return moment(value.start);
  if (typeof value !== "string" || !ISO.test(value)) return null;
  const at = Date.parse(value);
  return Number.isNaN(at) ? null : at;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const clockWithSeconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export function time(at, span = 0) {
  if (span > 86400e3 || Math.abs(Date.now() - at) > 86400e3) return day.format(at);
  return (at % 60000 ? clockWithSeconds : clock).format(at);
}

export function cell(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return fine.format(value);
  const at = moment(value);
  if (at !== null) return time(at);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
