// SPDX-License-Identifier: Apache-2.0
// Staged files: how large, until when, and what was not stored twice.
import { del, get, request, segment } from "../api.js";
import { badge, bytes, confirm, every, fill, h, heading, notice, number, when } from "../dom.js";
import { chart } from "../chart.js";
import { LongTable } from "../table.js";

const ROOM = 300;
const history = { at: [], size: [] }; // since this view was first opened
let sampler = null, shown = () => {};

/** Samples the totals from now on, also while another view is open. */
async function sample() {
  const m = await get("/v1/attachments/metrics");
  history.at.push(new Date());
  history.size.push(m.total_bytes / 1048576);
  for (const list of Object.values(history)) if (list.length > ROOM) list.shift();
  shown(m);
}

/** A link would carry no token, so the bytes are asked for here and handed to the browser as a download. */
export async function download(a) {
  const blob = await (await request("GET", `/v1/attachments/${segment(a.checksum)}/content`)).blob();
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: a.name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const figures = (m) => [["files", m.total_count, m.total_bytes], ["persistent", m.persistent_count, m.persistent_bytes], ["will expire", m.expirable_count, m.expirable_bytes]]
  .map(([name, n, size]) => h("span", {}, h("b", {}, number(n)), ` ${name}, ${bytes(size)}`));

export function view(context) {
  const totals = h("p", { class: "figures" }), place = h("div");
  const size = chart({ title: "Size", unit: "MiB", series: [{ name: "size", key: "size" }], history });
  async function remove(a) {
    if (!(await confirm(`Delete ${a.name}?`, h("p", {}, "The row and its file go at once."), "Delete", true))) return;
    await del(`/v1/attachments/${segment(a.checksum)}`);
    notice(`${a.name} is deleted.`);
    draw();
  }
  const actions = (a) => h("span", { class: "buttons left" },
    h("button", { onclick: () => download(a), "aria-label": `Download ${a.name}` }, "Download"),
    context.can("attachments") ? h("button", { class: "danger", onclick: () => remove(a), "aria-label": `Delete ${a.name}` }, "Delete…") : null);
  function draw() {
    fill(place, new LongTable({ path: "/v1/attachments", label: "Attachments", empty: "No files are staged.",
      href: (a) => `#/why/${a.checksum}`, columns: [
        { title: "Name", class: "wide", cell: (a) => a.name }, { title: "Size", class: "n", cell: (a) => bytes(a.size) },
        { title: "Checksum", cell: (a) => h("code", { title: a.checksum }, a.checksum.slice(0, 12)) },
        { title: "Staged", cell: (a) => when(a.inserted_at) },
        { title: "Expires", cell: (a) => (a.persist ? badge("persistent", "info") : when(a.expires_at)) },
        { title: "Stored once", cell: (a) => (a.cached ? badge("deduplicated", "good") : "–") },
        { title: "", cell: actions }] }).element);
  }
  shown = (m) => {
    fill(totals, figures(m));
    size.draw();
  };
  if (sampler) sampler.now();
  else sampler = every(5000, sample);
  draw();
  return { element: h("div", {}, heading("Attachments", "Staged files. The same bytes of an owner are stored once."), totals,
    h("div", { class: "charts" }, size.element), place), stop: () => { shown = () => {}; } };
}
