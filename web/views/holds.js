// SPDX-License-Identifier: Apache-2.0
// Rows that must stay, whatever their deadline says.
import { del, get, put, segment } from "../api.js";
import { ask, confirm, fill, h, heading, notice, when } from "../dom.js";
import { LongTable } from "../table.js";

const path = (table, key) => `/v1/holds/${segment(table)}/${segment(key)}`;

/** Asks for a reason and holds the row; true when it is held. */
export async function hold(table = "", key = "") {
  const tables = (await get("/v1/matrix")).data.map((b) => b.table);
  const given = await ask("Hold a row", [{ name: "table", label: "Table", options: tables, value: table || "messages" },
    { name: "key", label: "Key", required: true, value: key }, { name: "reason", label: "Reason", required: true }], "Hold",
  "A held row stays past its deadline until the hold is released.");
  if (!given) return false;
  await put(path(given.table, given.key), { reason: given.reason });
  notice(`${given.table} ${given.key} is held.`);
  return true;
}

export function view(context) {
  const place = h("div");
  async function release(x) {
    const body = h("p", {}, `${x.table} ${x.key} goes at its deadline again; if that has passed, with the next sweep.`);
    if (!(await confirm("Release the hold?", body, "Release"))) return;
    await del(path(x.table, x.key));
    notice("Released.");
    draw();
  }
  const draw = () => fill(place, new LongTable({ path: "/v1/holds", label: "Holds", empty: "Nothing is held.", columns: [
    { title: "Table", cell: (x) => x.table }, { title: "Key", cell: (x) => h("a", { href: `#/why/${segment(x.key)}` }, h("code", {}, x.key)) },
    { title: "Reason", class: "wide", cell: (x) => x.reason }, { title: "Since", cell: (x) => when(x.created_at) },
    { title: "Until", cell: (x) => (x.until ? when(x.until) : "released") },
    { title: "", cell: (x) => (context.can("engine") ? h("button", { onclick: () => release(x), "aria-label": `Release ${x.table} ${x.key}` }, "Release…") : null) }] }).element);
  draw();
  const action = context.can("engine") ? h("button", { class: "primary", onclick: async () => { if (await hold()) draw(); } }, "Hold a row…") : null;
  return { element: h("div", {}, heading("Holds", "Rows that stay, whatever their deadline says.", action), place) };
}
