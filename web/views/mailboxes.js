// SPDX-License-Identifier: Apache-2.0
// Disposable mailboxes. Mail is shown as text; its HTML only in a frame that runs nothing and loads nothing.
import { del, get, post, segment } from "../api.js";
import { badge, bytes, confirm, facts, fill, h, heading, notice, when } from "../dom.js";
import { LongTable } from "../table.js";
import { download } from "./attachments.js";

/** The frame's document inherits the page's policy: no script, no picture, no font from anywhere. */
function asHtml(html) {
  const frame = h("iframe", { sandbox: "", srcdoc: html, title: "The mail's HTML, isolated", referrerpolicy: "no-referrer" });
  return h("details", {}, h("summary", {}, "Show its HTML, isolated"), frame);
}

/** Files of a mail are attachments of the owner; a token without the room sees their names only. */
function files(context, list) {
  if (!list?.length) return null;
  const one = (a) => h("li", {}, context.sees("attachments") ? h("button", { class: "link", onclick: () => download(a), "aria-label": `Download ${a.name}` }, a.name) : a.name,
    h("span", { class: "quiet" }, ` ${bytes(a.size)}, ${a.type}`));
  return [h("h3", {}, "Files"), h("ul", { class: "files" }, list.map(one))];
}

function mail(context, m) {
  return [h("h2", {}, m.subject || "(no subject)"),
    facts([["From", m.from], ["To", (m.to ?? []).join(", ") || null], ["Received", when(m.received_at)]]),
    h("pre", { class: "text" }, m.body || "(no text)"), m.truncated ? h("p", { class: "quiet" }, "The text was longer and has been cut.") : null,
    m.html ? asHtml(m.html) : null, files(context, m.attachments)];
}

function box(context, id) {
  const head = h("div", {}, heading(id)), list = h("div"), reader = h("section", { class: "reader", "aria-live": "polite" });
  const path = `/v1/mailboxes/${segment(id)}`, writes = context.can("mailboxes");
  async function renew() {
    await post(`${path}/renew`, {});
    notice("Renewed.");
    draw();
  }
  async function remove(b) {
    if (!(await confirm(`Delete ${b.address}?`, h("p", {}, "The mailbox and its mail go at once."), "Delete", true))) return;
    await del(path);
    notice(`${b.address} is deleted.`);
    location.hash = "#/mailboxes";
  }
  async function draw() {
    const b = await get(path), active = b.status === "active";
    fill(head, heading(b.address, null, h("a", { class: "button", href: `#/why/${segment(b.id)}` }, "Why?"),
      active && writes ? h("button", { onclick: renew }, "Renew") : null,
      writes ? h("button", { class: "danger", onclick: () => remove(b) }, "Delete…") : null),
    h("div", { class: "panel padded" }, facts([["State", badge(b.status)], ["Created", when(b.created_at)],
      [active ? "Expires" : "Expired", when(b.expires_at)],
      ["Account", b.cleanup.state === "clean" ? null : `${b.cleanup.state}, ${b.cleanup.attempts} attempts`]])));
    if (!active) return;
    fill(list, new LongTable({ path: `${path}/messages`, label: "Mail", empty: "No mail yet.",
      onrow: async (m) => fill(reader, mail(context, await get(`${path}/messages/${segment(m.id)}`))),
      columns: [{ title: "From", cell: (m) => m.from }, { title: "Subject", class: "wide", cell: (m) => m.subject },
        { title: "Received", cell: (m) => when(m.received_at) }] }).element);
    fill(reader, h("p", { class: "empty" }, "Choose a mail to read it. Reading it here does not mark it."));
  }
  draw().catch((e) => fill(head, heading(id), h("p", { class: "bad" }, e.message), h("p", {}, h("a", { href: `#/why/${segment(id)}` }, "Where did it go?"))));
  return { element: h("div", {}, head, h("div", { class: "split" }, list, reader)) };
}

export function view(context, id) {
  if (id) return box(context, id);
  const place = h("div");
  const expired = h("input", { type: "checkbox", onchange: () => draw() });
  const draw = () => fill(place, new LongTable({ path: "/v1/mailboxes", query: expired.checked ? { include_expired: "true" } : {},
    label: "Mailboxes", empty: "No mailboxes.", href: (b) => `#/mailboxes/${segment(b.id)}`, columns: [
      { title: "Address", cell: (b) => b.address }, { title: "State", cell: (b) => badge(b.status) },
      { title: "Expires", cell: (b) => when(b.expires_at) }, { title: "Created", cell: (b) => when(b.created_at) },
      { title: "Account", cell: (b) => (b.cleanup.state === "clean" ? "–" : badge(b.cleanup.state)) }] }).element);
  async function create() {
    const b = await post("/v1/mailboxes", {});
    notice(`${b.address} is ready.`);
    draw();
  }
  draw();
  return { element: h("div", {}, heading("Mailboxes", "Addresses that end by themselves, and their mail.",
    context.can("mailboxes") ? h("button", { class: "primary", onclick: create }, "New mailbox") : null),
  h("form", { class: "filters" }, h("label", {}, expired, " Expired ones too")), place) };
}
