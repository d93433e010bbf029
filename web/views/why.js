// SPDX-License-Identifier: Apache-2.0
// One thing: its life as a timeline and, while it lives, when and why it will go.
import { get, segment } from "../api.js";
import { ahead, badge, facts, fill, h, heading, when } from "../dom.js";
import { hold } from "./holds.js";

const ROOM_OF = { messages: (t) => `#/inboxes/${segment(t.row.agent)}`, agents: (t) => `#/agents/${segment(t.key)}`,
  mailboxes: (t) => `#/mailboxes/${segment(t.key)}`, mailboxes_expired: (t) => `#/mailboxes/${segment(t.key)}` };

/** A text of an event's data as a link to its own story. */
function told(data) {
  const parts = [];
  const visit = (name, value) => {
    if (Array.isArray(value)) value.slice(0, 5).forEach((v) => visit(name, v));
    else if (value && typeof value === "object") Object.entries(value).forEach(([n, v]) => visit(n, v));
    else parts.push(h("span", { class: "pair" }, h("span", { class: "quiet" }, name, " "), String(value)));
  };
  Object.entries(data).forEach(([name, value]) => visit(name, value));
  return h("span", { class: "told" }, parts);
}

const moment = (at, title, tone, ...about) => h("li", { class: tone }, when(at), h("b", {}, title), about);

function timeline(answer) {
  const list = answer.timeline.map((e) => moment(e.at, e.type, e.inferred ? "inferred" : null, told(e.data),
    e.inferred ? h("span", { class: "quiet" }, "The batch that must have held it.") : null));
  for (const t of answer.things) {
    if (!answer.timeline.some((e) => Math.abs(Date.parse(e.at) - Date.parse(t.created_at)) < 5)) list.unshift(moment(t.created_at, "created", null, h("span", { class: "quiet" }, "by its id; the event is no longer kept")));
    if (t.goes_at) list.push(moment(t.goes_at, t.state === "due" ? "was due" : "goes", "ahead", h("span", {}, t.rule)));
  }
  return h("ol", { class: "timeline", "aria-label": "Timeline, oldest first" }, list);
}

function thing(t, context, redraw) {
  const room = ROOM_OF[t.table]?.(t);
  const place = context.admin && context.can("engine") && !t.hold
    ? h("button", { onclick: async () => { if (await hold(t.table, t.key)) redraw(); } }, "Hold…") : null;
  return h("article", { class: "thing" }, h("h2", {}, h("span", {}, t.key), badge(t.state)), h("p", { class: "say" }, t.why),
    facts([["Table", t.table], ["Created", when(t.created_at)],
      [t.state === "due" ? "Was due" : "Goes", t.goes_at ? when(t.goes_at) : "not as things are"], ["Next sweep", ahead(t.next_sweep_at)],
      ...Object.entries(t.row).filter(([, v]) => v !== "").map(([k, v]) => [k[0].toUpperCase() + k.slice(1).replaceAll("_", " "), v]),
      ["Held since", t.hold ? [when(t.hold.placed_at), `: ${t.hold.reason}`] : null], ["Rule", h("code", {}, t.rule)], ["Safety rule", t.safety_rule]]),
    h("p", { class: "buttons left" }, room ? h("a", { class: "button", href: room }, "Open") : null, place));
}

function result(answer, context, redraw) {
  if (answer.things.length === 0 && answer.timeline.length === 0) {
    return h("p", { class: "empty" }, "Nothing is known by this name: no row has it, and no event that is still kept mentions it.");
  }
  return [answer.things.length ? h("div", { class: "cards" }, answer.things.map((t) => thing(t, context, redraw)))
    : h("p", { class: "hero quiet" }, "It is gone. This is what is still known of it."),
  h("h2", {}, "Its life"), answer.more_events ? h("p", { class: "quiet" }, "Older events are left out.") : null, timeline(answer)];
}

export function view(context, name) {
  const place = h("div", { "aria-live": "polite" });
  document.getElementById("thing").value = name ?? "";
  async function draw() {
    if (!name) {
      document.getElementById("thing").focus();
      return fill(place, h("p", { class: "empty" }, "Type an id, an agent, an address, a checksum or a key into the box above."));
    }
    fill(place, h("p", { class: "quiet" }, "Looking…"));
    try {
      fill(place, result(await get("/v1/why", { q: name }), context, draw));
    } catch (e) {
      fill(place, h("p", { class: "bad" }, e.message));
    }
  }
  draw();
  return { element: h("div", {}, heading(name ? `Why ${name}?` : "Why?", "What happened to this thing, and when and why will it go?"), place) };
}
