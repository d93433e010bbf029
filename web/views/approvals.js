// SPDX-License-Identifier: Apache-2.0
// Sweeps that would remove more than they may without a person.
import { get, post, segment } from "../api.js";
import { confirm, every, fill, h, heading, notice, number, plural, shortTable, when } from "../dom.js";

export function view(context) {
  const place = h("div");
  async function approve(a) {
    const share = a.table_rows ? ` of ${number(a.table_rows)} in the table` : "";
    const body = h("p", {}, `${plural(a.due_rows, "row")}${share} would go. The approval covers what was due when the sweep asked.`);
    if (!(await confirm(`Let ${a.bound} be swept?`, body, "Approve", true))) return;
    await post(`/v1/approvals/${segment(a.bound)}`);
    notice(`${a.bound} is approved.`);
    timer.now();
  }
  const columns = [
    { title: "Bound", cell: (a) => h("b", {}, a.bound) }, { title: "Would go", class: "n", cell: (a) => number(a.due_rows) },
    { title: "Of", class: "n", cell: (a) => (a.table_rows === null ? "–" : number(a.table_rows)) }, { title: "Asked", cell: (a) => when(a.wanted_at) },
    { title: "Approved", cell: (a) => when(a.given_at) },
    { title: "", cell: (a) => (a.given_at || !context.can("contracts") ? null : h("button", { onclick: () => approve(a), "aria-label": `Approve ${a.bound}` }, "Approve…")) },
  ];
  const timer = every(5000, async () => fill(place, shortTable("Approvals", columns, (await get("/v1/approvals")).data, "No sweep waits for you.")));
  return { element: h("div", {}, heading("Approvals", "Sweeps of contracts that would remove more than ask_above wait here for a person."), place), stop: timer.stop };
}
