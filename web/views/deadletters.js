// SPDX-License-Identifier: Apache-2.0
// Deletions outside that gave up: retry them one by one or all together, or let them go.
import { del, post, segment } from "../api.js";
import { confirm, fill, h, heading, notice, plural, when } from "../dom.js";
import { LongTable } from "../table.js";

export function view(context) {
  const place = h("div"), writes = context.can("engine");
  async function retry(d) {
    await post(`/v1/dead-letters/${segment(d.id)}/retry`);
    notice("Tried again.");
    draw();
  }
  async function retryAll() {
    if (!(await confirm("Retry all dead letters?", h("p", {}, "Every deletion is tried again. Repeating one is harmless."), "Retry all"))) return;
    const answer = await post("/v1/dead-letters/retry", {});
    notice(`${plural(answer.retried, "deletion is", "deletions are")} tried again.`);
    draw();
  }
  async function drop(d) {
    if (!(await confirm("Drop this dead letter?", h("p", {}, `What it was about stays outside: ${d.target}`), "Drop", true))) return;
    await del(`/v1/dead-letters/${segment(d.id)}`);
    notice("Dropped.");
    draw();
  }
  const actions = (d) => (writes ? h("span", { class: "buttons left" },
    h("button", { onclick: () => retry(d), "aria-label": `Retry ${d.target}` }, "Retry"),
    h("button", { class: "danger", onclick: () => drop(d), "aria-label": `Drop ${d.target}` }, "Drop…")) : null);
  const all = writes ? h("button", { class: "primary", hidden: true, onclick: retryAll }, "Retry all…") : null;
  const onload = (n) => { if (all) all.hidden = n === 0; };
  const draw = () => fill(place, new LongTable({ path: "/v1/dead-letters", label: "Dead letters", empty: "No deletion has given up.", onload, columns: [
    { title: "Kind", cell: (d) => d.kind }, { title: "Target", class: "wide", cell: (d) => h("a", { href: `#/why/${segment(d.target)}` }, h("code", {}, d.target)) },
    { title: "Attempts", class: "n", cell: (d) => String(d.attempts) }, { title: "Last error", class: "wide", cell: (d) => d.error },
    { title: "Since", cell: (d) => when(d.created_at) }, { title: "", cell: actions }] }).element);
  draw();
  return { element: h("div", {}, heading("Dead letters", "Deletions outside the store that gave up after their last attempt.",
    all), place) };
}
