// SPDX-License-Identifier: Apache-2.0
// Elements without markup: every text from the server becomes a text node, so a hostile name stays a name.

const isShown = (child) => child !== null && child !== undefined && child !== false;

/** An element. Attributes that start with "on" are listeners; false, null and undefined are left out. */
export function h(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (!isShown(value)) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter(isShown));
  return element;
}

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter(isShown));
}

const STEPS = [[86400000, "d", 3600000, "h"], [3600000, "h", 60000, "min"], [60000, "min", 1000, "s"], [1000, "s", 0, ""]];

export function duration(ms) {
  const size = Math.abs(ms);
  for (const [step, unit, below, belowUnit] of STEPS) {
    if (size < step) continue;
    const whole = Math.floor(size / step), part = below ? Math.floor((size % step) / below) : 0;
    return whole < 3 && part ? `${whole} ${unit} ${part} ${belowUnit}` : `${whole} ${unit}`;
  }
  return size === 0 ? "0" : `${Math.max(1, Math.round(size))} ms`;
}

/** A time as people read it, with the exact one on hover. It is kept up to date while it is in the document. */
export function when(text) {
  if (!text) return h("span", { class: "quiet" }, "–");
  return h("time", { datetime: text, title: text }, relative(text));
}

/** The same for what is still to come: once its time is there, it is "now". */
export function ahead(text) {
  const time = when(text);
  time.classList.add("ahead");
  return time;
}

function relative(text, isAhead = false) {
  const ms = Date.parse(text) - Date.now();
  if (Math.abs(ms) < 1000 || (isAhead && ms < 0)) return "now";
  return ms < 0 ? `${duration(ms)} ago` : `in ${duration(ms)}`;
}

setInterval(() => {
  for (const time of document.querySelectorAll("main time[title]")) {
    const now = relative(time.getAttribute("datetime"), time.classList.contains("ahead"));
    if (time.textContent !== now) time.textContent = now;
  }
}, 1000);

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${i === 0 ? n : n.toFixed(1)} ${units[i]}`;
}

/** A count, or a dash for one that this caller is not told. */
export const number = (n) => (n ?? null) === null ? "–" : n.toLocaleString("en");
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

/** Names and values of one thing; a value of null is left out. */
export const facts = (pairs) => h("dl", {}, pairs.filter(([, value]) => isShown(value))
  .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

const TONES = { live: "good", active: "good", queued: "info", processing: "info", completed: "good", kept: "good",
  due: "warn", suspect: "warn", silent: "warn", held: "info", protected: "info", referenced: "info", pending: "warn",
  expired: "quiet", failed: "bad", dead_letter: "bad", unread: "info", claimed: "warn", lost: "bad", refused: "bad" };

/** A state as a small label in its colour. */
export const badge = (state, tone = TONES[state] ?? "quiet") => h("span", { class: `badge ${tone}` }, state.replace("_", " "));

/** The head of a view: its name, what it is about, and what can be done. */
export const heading = (title, about, ...actions) => h("div", { class: "heading" },
  h("div", {}, h("h1", {}, title), about ? h("p", { class: "quiet" }, about) : null),
  actions.some(isShown) ? h("div", { class: "actions" }, actions) : null);

/** A table of few rows. Columns are { title, cell(row), class? }. */
export function shortTable(label, columns, rows, empty = "Nothing here.") {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.class }, c.title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((c) => h("td", { class: c.class }, c.cell(row))))))));
}

let noticeTimer;
/** One line at the foot of the page, read aloud by screen readers. */
export function notice(text, kind = "info") {
  fill(document.getElementById("notices"), h("p", { class: kind }, text));
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => fill(document.getElementById("notices")), 8000);
}

function openDialog(title, body, buttons, onclose) {
  const dialog = h("dialog", { "aria-label": title, onclose: () => { dialog.remove(); onclose(dialog.returnValue === "yes"); } },
    h("form", { method: "dialog" }, h("h2", {}, title), body, h("p", { class: "buttons" }, buttons)));
  document.body.append(dialog);
  dialog.showModal();
}

const cancel = () => h("button", { value: "no", formnovalidate: true }, "Cancel");

/** Asks before something is done; resolves to true or false. `body` shows what will happen. */
export function confirm(title, body, action, danger = false) {
  return new Promise((resolve) => openDialog(title, body,
    [cancel(), h("button", { value: "yes", class: danger ? "primary danger" : "primary" }, action)], resolve));
}

function field(f) {
  const common = { name: f.name, id: `ask-${f.name}`, required: f.required };
  if (f.options) return h("select", common, f.options.map((o) => h("option", { value: o, selected: o === f.value }, o)));
  if (f.multiline) return h("textarea", { ...common, rows: 6 });
  return h("input", { ...common, type: f.type ?? "text", value: f.value, autocomplete: "off" });
}

/** Asks for values; resolves to an object of them, or null.
 *  Each field is { name, label, value?, required?, multiline?, type?, options? }. */
export function ask(title, fields, action, about) {
  return new Promise((resolve) => {
    const inputs = fields.map(field);
    const body = [about ? h("p", { class: "quiet" }, about) : null,
      fields.map((f, i) => h("p", {}, h("label", { for: `ask-${f.name}` }, f.label), inputs[i]))];
    openDialog(title, body, [cancel(), h("button", { value: "yes", class: "primary" }, action)],
      (yes) => resolve(yes ? Object.fromEntries(inputs.map((i) => [i.name, i.value])) : null));
  });
}

/** Runs `draw` now and then every `ms`, one at a time, until stopped. A failure is said once and tried again. */
export function every(ms, draw) {
  let timer, stopped = false, failed = false;
  async function turn() {
    try {
      await draw();
      failed = false;
    } catch (e) {
      if (!failed && !stopped) notice(e.message, "bad");
      failed = true;
    }
    if (!stopped) timer = setTimeout(turn, document.hidden ? ms * 5 : ms);
  }
  turn();
  return { now: () => { clearTimeout(timer); return turn(); }, stop: () => { stopped = true; clearTimeout(timer); } };
}
