// SPDX-License-Identifier: Apache-2.0
// A chart of one or two series over the last minutes, as SVG: no library, the page's own colours, a value under the pointer.
import { duration, fill, h, number, svg } from "./dom.js";

const WIDTH = 320, HEIGHT = 96, TOP = 6; // of the drawing, which is stretched to its box
const SHOWN_LEAST = 30;                  // samples that its width stands for, at least

const shown = (value) => {
  if (value === null || value === undefined) return "–";
  if (value >= 100 || Number.isInteger(value)) return number(Math.round(value));
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
};

/** A maximum that people can read: 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value) ?? value;
}

/** The corners of a line; a sample of null breaks nothing, the line goes on at the next one. */
function corners(values, room, most) {
  const points = [];
  values.forEach((value, i) => {
    if (value === null || value === undefined) return;
    const x = room < 2 ? WIDTH : WIDTH - ((values.length - 1 - i) / (room - 1)) * WIDTH;
    points.push([x, HEIGHT - (Math.min(value, most) / most) * (HEIGHT - TOP)]);
  });
  if (points.length === 1) points.unshift([points[0][0] - 3, points[0][1]]); // one sample is a dash
  return points;
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** series: [{ name, key, unit? }], the keys of a history { at: [Date], key: [number|null] }. */
export function chart({ title, unit, series, history }) {
  const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "plot", "aria-hidden": "true" });
  const now = h("span", { class: "now" }, "–"), top = h("span", { class: "top" }), under = h("span", { class: "under", "aria-hidden": "true" });
  const since = h("span", {});
  const element = h("figure", { class: "chart" },
    h("figcaption", {}, h("span", { class: "name" }, title), now),
    h("div", { class: "frame", onpointermove: point, onpointerleave: () => fill(under) }, plot, top, under),
    h("p", { class: "span" }, since, series.length > 1 ? series.map((s, i) => h("span", { class: `key series-${i}` }, s.name)) : null,
      h("span", {}, "now")));

  const text = (s, i) => `${shown(history[s.key].at(i))} ${s.unit ?? unit}`;
  const texts = (i) => series.map((s) => text(s, i)).join(", ");

  function point(e) {
    const n = history.at.length, box = plot.getBoundingClientRect();
    const i = Math.round(n - 1 - (1 - (e.clientX - box.left) / box.width) * (Math.max(n, SHOWN_LEAST) - 1));
    if (n === 0 || i < 0 || i >= n) return fill(under);
    fill(under, `${texts(i)} at ${history.at[i].toTimeString().slice(0, 8)}`);
  }

  function draw() {
    fill(now, series.map((s) => [shown(history[s.key].at(-1)), h("small", {}, ` ${s.unit ?? unit} `)]));
    element.setAttribute("aria-label", `${title}: ${texts(-1)}`);
    const most = ceiling(Math.max(...series.flatMap((s) => history[s.key].map((v) => v ?? 0)), 0.001));
    fill(top, shown(most));
    const n = history.at.length, width = Math.max(n, SHOWN_LEAST);
    if (n > 1) fill(since, `${duration(((history.at.at(-1) - history.at[0]) / (n - 1)) * (width - 1))} ago`);
    fill(plot, svg("path", { class: "grid", d: `M0 ${TOP}H${WIDTH}M0 ${(HEIGHT + TOP) / 2}H${WIDTH}` }),
      series.map((s, i) => {
        const points = corners(history[s.key], width, most);
        if (points.length === 0) return null;
        const line = path(points), area = `${line}V${HEIGHT}H${points[0][0].toFixed(1)}Z`;
        return [svg("path", { class: `area series-${i}`, d: area }), svg("path", { class: `line series-${i}`, d: line, "vector-effect": "non-scaling-stroke" })];
      }));
  }

  draw();
  return { element, draw };
}
