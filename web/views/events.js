// SPDX-License-Identifier: Apache-2.0
// Events as they happen. They are kept as they came; only what is drawn is parsed, a few times a second, and a drawing takes
// several frames, so that a thousand per second stay cheap and no frame takes long.
import { follow } from "../api.js";
import { badge, fill, h, heading, number } from "../dom.js";

const KEEP = 5000;   // events in memory
const SHOW = 80;     // lines in the document
const DRAW_MS = 200; // between two drawings
const STEP = 20;     // lines of one frame

/** The colour of an event, by the last word of its type. */
function tone(type) {
  if (/(failed|dead_letter|jumped|tripped|refused|gap)$/.test(type)) return "bad";
  if (/(evicted|expired|pruned|cleaned|deleted|suspected|wanted)$/.test(type)) return "warn";
  return /(seen|created|renewed|staged|acquired|accepted|sent)$/.test(type) ? "good" : "info";
}

/** A line without an event; show() gives it one, and another one later. */
function line() {
  return h("li", {}, h("time"), h("b"), h("span"));
}

function show(li, e) {
  if (li.title === e.id) return;
  const { type, at, text } = read(e), [time, name, rest] = li.children;
  li.title = e.id;
  time.dateTime = at;
  time.textContent = at.slice(11, 23);
  name.className = tone(type);
  name.textContent = type;
  rest.textContent = text;
}

function read(e) {
  let data = {};
  try { data = JSON.parse(e.data); } catch { /* shown as it came */ }
  return { type: e.type, at: data.at ?? "", text: JSON.stringify(data.data ?? data) };
}

export function view() {
  const aborter = new AbortController();
  let kept = [], paused = false, timer = null, frame = 0, seen = 0, missed = 0;
  const list = h("ol", { class: "events", "aria-label": "Events, newest first" }), state = h("span", { class: "badge quiet" }, "connecting");
  const type = h("input", { name: "type", placeholder: "mailbox.", oninput: draw }), text = h("input", { name: "text", oninput: draw });
  const count = h("span", { class: "quiet" });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    missed = 0;
    pause.setAttribute("aria-pressed", String(paused));
    fill(pause, paused ? "Resume" : "Pause");
    drawNow();
  } }, "Pause");

  function draw() {
    timer ??= setTimeout(() => requestAnimationFrame(drawNow), DRAW_MS);
  }

  function drawNow() {
    clearTimeout(timer);
    timer = null;
    fill(count, `${number(seen)} seen${paused ? `, ${number(missed)} while paused` : ""}`);
    if (paused) return;
    const wanted = [];
    for (let i = kept.length - 1; i >= 0 && wanted.length < SHOW; i--) {
      const e = kept[i];
      if (e.type.startsWith(type.value) && e.data.includes(text.value)) wanted.push(e);
    }
    cancelAnimationFrame(frame);
    if (!wanted.length) fill(list, h("li", { class: "empty" }, seen ? "No event matches." : "Nothing has happened since you came."));
    else drawLines(wanted, 0);
  }

  /** A part of the lines now, the rest in the next frames. */
  function drawLines(wanted, from) {
    const to = Math.min(from + STEP, wanted.length);
    if (list.firstChild?.className === "empty") fill(list);
    for (let i = from; i < to; i++) show(list.children[i] ?? list.appendChild(line()), wanted[i]);
    if (to < wanted.length) frame = requestAnimationFrame(() => drawLines(wanted, to));
    else while (list.children.length > wanted.length) list.lastChild.remove();
  }

  function onevents(batch) {
    seen += batch.length;
    if (paused) missed += batch.length;
    kept.push(...batch);
    if (kept.length > 2 * KEEP) kept = kept.slice(-KEEP);
    draw();
  }

  follow({ signal: aborter.signal, onevents, onstate: (s) => { state.className = badge(s).className; fill(state, s); } });
  drawNow();
  return {
    element: h("div", {}, heading("Events", "What happens, as it happens."), h("form", { class: "filters", onsubmit: (e) => e.preventDefault() },
      state, h("label", {}, "Type starts with ", type), h("label", {}, "Contains ", text), pause, count), h("div", { class: "panel" }, list)),
    stop: () => { aborter.abort(); clearTimeout(timer); cancelAnimationFrame(frame); },
  };
}
