// SPDX-License-Identifier: Apache-2.0
// Leases and refreshed entries: who holds what, and until when.
import { del, segment } from "../api.js";
import { confirm, fill, h, heading, notice, number, when } from "../dom.js";
import { LongTable } from "../table.js";

const LEASES = ["workspace_leases", "conversation_leases", "oauth_refresh_leases", "models_dev_refresh_leases"];
const ENTRIES = ["presence_entries", "connections"];

export function view(context, chosen) {
  const table = [...LEASES, ...ENTRIES].includes(chosen) ? chosen : LEASES[0];
  const isLease = LEASES.includes(table), place = h("div");
  async function release(l) {
    const body = h("p", {}, `${l.holder} loses it at once, and the next one that asks gets a larger fencing token.`);
    if (!(await confirm(`Release ${l.key}?`, body, "Release", true))) return;
    await del(`/v1/leases/${segment(table)}/${segment(l.key)}`, { holder: l.holder, fencing_token: l.fencing_token });
    notice(`${l.key} is released.`);
    draw();
  }
  const key = { title: "Key", cell: (l) => l.key };
  const leaseColumns = [key, { title: "Holder", cell: (l) => l.holder }, { title: "Fencing token", class: "n", cell: (l) => String(l.fencing_token) },
    { title: "Acquired", cell: (l) => when(l.acquired_at) }, { title: "Ends", cell: (l) => when(l.expires_at) },
    { title: "", cell: (l) => (context.can("tables") ? h("button", { class: "danger", onclick: () => release(l), "aria-label": `Release ${l.key}` }, "Release…") : null) }];
  const entryColumns = [key, { title: "Data", class: "wide", cell: (e) => h("code", {}, JSON.stringify(e.data)) },
    { title: "Created", cell: (e) => when(e.created_at) }, { title: "Last seen", cell: (e) => when(e.last_seen_at) }, { title: "Ends", cell: (e) => when(e.expires_at) }];
  const draw = () => fill(place, new LongTable({ path: `/v1/${isLease ? "leases" : "tables"}/${table}`, label: table, empty: isLease ? "No lease is held." : "No entry is alive.",
    href: (l) => `#/why/${segment(l.key)}`, columns: isLease ? leaseColumns : entryColumns }).element);
  const tab = (t) => h("a", { href: `#/leases/${t}`, "aria-current": t === table ? "true" : null }, t.replaceAll("_", " "));
  draw();
  return { element: h("div", {}, heading("Leases", "What is held by one worker at a time, and what lives as long as it is refreshed."),
    h("div", { class: "tabs" }, [...LEASES, ...ENTRIES].map(tab)), place) };
}
