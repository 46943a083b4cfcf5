// Headwater in a browser: queries, live views that resume by themselves, and notifications. No build step:
//
//   import { query, live, notifications } from "/headwater.js";
//   const { rows } = await query("revenue", { where: { country: "DE", "amount[gte]": 10 }, order: "-amount" });
//   const view = live("revenue", { where: { country: "DE" }, onChange: (key, row) => console.log(key, row) });
//   view.rows;      // a Map of the rows as they are now, by key
//   view.close();

const FIRST_PAUSE = 200;
const LONGEST_PAUSE = 10_000;

/** Shows the server a token once: it answers with a cookie, which every later request carries. */
export async function signIn(token) {
  return answered(await fetch("/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } }));
}

/** Whether a token is needed, and the roles of the one that was shown. */
export async function session() {
  return answered(await fetch("/session"));
}

/** Rows of a view: { rows: [{ key, row }], token, next }. `next` is the address of the next page, or null. */
export async function query(view, { where = {}, order, limit, fields, wait } = {}) {
  const options = { order, limit, wait, fields: fields?.join(",") };
  return answered(await fetch(`/views/${encodeURIComponent(view)}?${parameters(where, options)}`));
}

/** Appends records to a topic; resolves with the token that a query can wait for. */
export async function send(topic, records, { idempotencyKey } = {}) {
  const headers = { "Content-Type": "application/json" };
  if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
  const path = `/topics/${encodeURIComponent(topic)}`;
  return (await answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(records) }))).token;
}

/**
 * Keeps the rows of a view, or of those that `where` asks for, as they are now.
 *
 * `onReady(rows)` is called when all rows are there, also when it had to start over; `onChange(key, row, before)`
 * for each change behind that, with null for a row that is deleted or does not match any more; `onState(state)`
 * with "open" and "closed". A connection that is cut goes on behind the last change.
 */
export function live(view, { where = {}, fields, slow, onReady, onChange, onState } = {}) {
  const rows = new Map();
  let token = null;
  let pause = FIRST_PAUSE;
  let socket = null;
  let timer = null;
  let closed = false;

  const take = ({ event, key, row, token: at }) => {
    if (event === "start") rows.clear();
    if (event === "row") rows.set(key, row);
    if (event === "change" && (row !== null || rows.has(key))) {
      const before = rows.get(key) ?? null;
      if (row === null) rows.delete(key);
      else rows.set(key, row);
      onChange?.(key, row, before);
    }
    token = at ?? token;
    if (event === "ready") onReady?.(rows);
  };

  const connect = () => {
    const options = { since: token ?? undefined, slow, fields: fields?.join(",") };
    const path = `/views/${encodeURIComponent(view)}/live?${parameters(where, options)}`;
    socket = new WebSocket(new URL(path, location.href.replace(/^http/, "ws")));
    socket.onopen = () => { pause = FIRST_PAUSE; onState?.("open"); };
    socket.onmessage = ({ data }) => take(JSON.parse(data));
    socket.onclose = () => {
      onState?.("closed");
      if (closed) return;
      timer = setTimeout(connect, pause * (0.5 + Math.random()));
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    };
  };
  connect();

  return {
    rows,
    get token() { return token; },
    /** Cuts the connection, as a network would. */
    reconnect() { socket.close(); },
    close() { closed = true; clearTimeout(timer); socket.close(); },
  };
}

/**
 * Calls `onMessage(message)` for each alert that goes to browsers, and shows it as a notification of the system where
 * the user has allowed that: call `Notification.requestPermission()` on a click.
 */
export function notifications(onMessage = () => {}) {
  const stream = new EventSource("/alerts/feed");
  stream.addEventListener("alert", ({ data }) => {
    const message = JSON.parse(data);
    onMessage(message);
    if (globalThis.Notification?.permission === "granted") {
      new Notification(message.alert, { body: JSON.stringify(message.row), tag: message.id });
    }
  });
  return { close: () => stream.close() };
}

function parameters(where, options) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) if (value !== undefined) found.set(name, value);
  for (const [column, value] of Object.entries(where)) {
    found.set(column, Array.isArray(value) ? value.map((each) => String(each).replaceAll(",", "\\,")).join(",") : String(value));
  }
  return found;
}

async function answered(answer) {
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error), { status: answer.status });
  return body;
}
