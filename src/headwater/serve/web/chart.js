// Charts: a spark line, lines over time, bars of the largest.

import { count, element, short, svg, time } from "./format.js";

const COLOURS = 8;

export function spark(history, width = 60) {
  const shown = history.slice(-width);
  const most = Math.max(...shown, 1e-9);
  const drawing = svg("svg", { viewBox: `0 0 ${width - 1} 100`, preserveAspectRatio: "none", "aria-hidden": "true" });
  if (shown.length < 2) return drawing;
  const first = width - shown.length;
  const points = shown.map((value, i) => `${first + i},${96 - 86 * (value / most)}`).join(" ");
  drawing.append(
    svg("polygon", { class: "spark-area", points: `${first},100 ${points} ${width - 1},100` }),
    svg("polyline", { class: "spark-line", points }),
  );
  return drawing;
}

// The steps of an axis: round numbers, about as many as asked for.
function steps(low, high, about) {
  const rough = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map((s) => s * 1000);

function timeSteps(low, high, about) {
  const step = TIMES.find((each) => (high - low) / each <= about) ?? (high - low) / about;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
}

// `series` is a map from names to lists of [time, value, whether it may still grow], in order of time.
export function lines(series, width) {
  const height = 230, left = 46, right = 14, top = 12, bottom = 22;
  const all = [...series.values()].flat();
  const from = Math.min(...all.map((p) => p[0])), to = Math.max(...all.map((p) => p[0]));
  const low = Math.min(0, ...all.map((p) => p[1])), high = Math.max(...all.map((p) => p[1]), low + 1e-9) * 1.06;
  const x = (at) => left + ((at - from) / (to - from || 1)) * (width - left - right);
  const y = (value) => height - bottom - ((value - low) / (high - low)) * (height - top - bottom);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  for (const value of steps(low, high, 4)) {
    drawing.append(
      svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { class: "axis", x: left - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)),
    );
  }
  for (const at of timeSteps(from, to, width / 110)) {
    // The last one would stand half outside.
    const anchor = x(at) > width - right - 24 ? "end" : "middle";
    const place = anchor === "end" ? width : x(at);
    drawing.append(svg("text", { class: "axis", x: place, y: height - 5, "text-anchor": anchor }, time(at, to - from)));
  }
  const legend = element("div", { className: "legend" });
  [...series].forEach(([name, points], i) => {
    const colour = i % COLOURS;
    const drawn = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
    // What may still grow is dashed: a window that is not over.
    const closed = points.findIndex((point) => point[2]);
    const whole = closed < 0 ? drawn : drawn.slice(0, closed);
    drawing.append(svg("polyline", { class: `series k${colour}`, points: whole.join(" ") }));
    if (closed > 0) drawing.append(svg("polyline", { class: `series open k${colour}`, points: drawn.slice(closed - 1).join(" ") }));
    const [at, value] = points.at(-1);
    drawing.append(svg("circle", { class: `f${colour}`, cx: x(at), cy: y(value), r: 3.2 }));
    legend.append(
      element("span", {}, element("i", { className: `f${colour}` }), `${name} `, element("b", { textContent: short(value) })),
    );
  });
  drawing.prepend(svg("title", {}, [...series.keys()].join(", ")));
  return [drawing, legend];
}

// `values` is a list of [name, value], largest first.
export function bars(values, width) {
  const top = 8, label = Math.min(170, width * 0.32), right = 74;
  const step = Math.min(222 / values.length, 30);
  const height = top + step * values.length + 6;
  const most = Math.max(...values.map((v) => v[1]), 1e-9);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  values.forEach(([name, value], i) => {
    const y = top + i * step;
    const long = Math.max(((width - label - right) * Math.max(value, 0)) / most, 2);
    const shown = name.length > 22 ? `${name.slice(0, 21)}…` : name;
    drawing.append(
      svg("text", { class: "bar-label", x: label - 8, y: y + step / 2 + 4, "text-anchor": "end" }, shown),
      svg("rect", { class: "bar f0", x: label, y: y + 3, width: long, height: step - 6, opacity: 1 - 0.055 * i }),
      svg("text", { class: "bar-value", x: label + long + 7, y: y + step / 2 + 4 }, Number.isInteger(value) ? count(value) : short(value)),
    );
  });
  return [drawing];
}
