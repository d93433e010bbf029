// SPDX-License-Identifier: Apache-2.0
// Inboxes and their messages: read, send, who has claimed what.
import { post, segment } from "../api.js";
import { ask, badge, duration, facts, fill, h, heading, notice, number, when } from "../dom.js";
import { LongTable } from "../table.js";

async function send(to, redraw) {
  const fields = [...(to ? [] : [{ name: "to", label: "To", required: true }]),
    { name: "from", label: "From", value: "operator", required: true }, { name: "content", label: "Content", multiline: true, required: true }];
  const m = await ask(to ? `Message to ${to}` : "New message", fields, "Send");
  if (!m) return;
  await post(`/v1/agents/${segment(to ?? m.to)}/messages`, { from: m.from, content: m.content });
  notice(`Sent to ${to ?? m.to}.`);
  redraw();
}

const isClaimed = (m) => !m.read && m.claimed_until && Date.parse(m.claimed_until) > Date.now();
const stateOf = (m) => badge(m.read ? "read" : isClaimed(m) ? "claimed" : "unread");

function inbox(context, agent) {
  const list = h("div"), reader = h("section", { class: "reader", "aria-live": "polite" });
  const path = `/v1/agents/${segment(agent)}/messages`;
  const mark = async (m) => { open(await post(`${path}/${m.id}/read`)); draw(); };
  const open = (m) => fill(reader, h("h2", {}, `From ${m.from}`), stateOf(m),
    facts([["Type", m.type], ["Sent", when(m.timestamp)], ["Read", m.read ? when(m.read_at) : null],
      ["Claimed until", isClaimed(m) ? when(m.claimed_until) : null], ["Id", h("a", { href: `#/why/${m.id}` }, h("code", {}, m.id))]]),
    h("pre", { class: "text" }, m.content),
    m.read || !context.can("messages") ? null : h("button", { onclick: () => mark(m) }, "Mark as read"));
  const draw = () => fill(list, new LongTable({ path, query: { claims: "true" }, label: `Messages of ${agent}`, empty: "No messages.", onrow: open, columns: [
    { title: "From", cell: (m) => m.from }, { title: "Content", cell: (m) => m.content.slice(0, 120), class: "wide" },
    { title: "Sent", cell: (m) => when(m.timestamp) }, { title: "State", cell: stateOf }] }).element);
  draw();
  fill(reader, h("p", { class: "empty" }, "Choose a message to read it."));
  const action = context.can("messages") ? h("button", { class: "primary", onclick: () => send(agent, draw) }, "Send…") : null;
  return { element: h("div", {}, heading(agent, "Messages, newest first. Reading one here does not mark it.", action), h("div", { class: "split" }, list, reader)) };
}

export function view(context, agent) {
  if (agent) return inbox(context, agent);
  const place = h("div");
  const draw = () => fill(place, new LongTable({ path: "/v1/messages/stats", label: "Inboxes", empty: "No inbox has messages.",
    href: (s) => `#/inboxes/${segment(s.agent_id)}`, columns: [
      { title: "Agent", cell: (s) => s.agent_id }, { title: "Messages", class: "n", cell: (s) => number(s.total) },
      { title: "Unread", class: "n", cell: (s) => number(s.unread) },
      { title: "Oldest unread", cell: (s) => (s.unread ? duration(s.oldest_unread_age_sec * 1000) : "–") }] }).element);
  draw();
  const action = context.can("messages") ? h("button", { class: "primary", onclick: () => send(null, draw) }, "Send…") : null;
  return { element: h("div", {}, heading("Inboxes", "Unread messages are kept at any age; read ones go.", action), place) };
}
