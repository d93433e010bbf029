// SPDX-License-Identifier: Apache-2.0
// Contracts over other databases: their bounds, what they left alone and why, and what a sweep would remove.
import { get, post, segment } from "../api.js";
import { badge, confirm, every, fill, h, heading, number, shortTable } from "../dom.js";

const left = (b) => Object.entries(b.undeletable).filter(([, n]) => n > 0).map(([why, n]) => `${number(n)} ${why}`).join(", ") || "–";

const BOUNDS = [
  { title: "Bound", cell: (b) => h("b", {}, b.bound) }, { title: "Table", cell: (b) => b.table }, { title: "Scheduler", cell: (b) => b.scheduler },
  { title: "Removed", class: "n", cell: (b) => number(b.pruned_total) }, { title: "Left alone", cell: left },
  { title: "State", cell: (b) => (b.problem ? h("span", { class: "bad" }, b.problem) : b.waits_for_approval ? badge("waits for approval", "warn") : badge("kept", "good")) },
];

async function plan(name) {
  const answer = await post(`/v1/contracts/${segment(name)}/plan`);
  await confirm(`What ${name} would remove now`, h("pre", { class: "text" }, JSON.stringify(answer, null, 2)), "Close");
}

function card(c, context) {
  return h("section", { class: "panel padded" }, h("div", { class: "heading" }, h("h2", {}, c.name),
    context.admin && context.can("contracts") && !c.refused ? h("button", { onclick: () => plan(c.name), "aria-label": `Plan of ${c.name}` }, "Plan") : null),
  h("p", { class: "quiet" }, c.database), c.refused ? h("p", { class: "bad" }, `Refused: ${c.refused}`) : null,
  shortTable(`Bounds of ${c.name}`, BOUNDS, c.bounds, "It has no bounds."));
}

export function view(context, name) {
  const place = h("div", {});
  const timer = every(5000, async () => {
    const { data } = await get("/v1/contracts");
    const wanted = name ? data.filter((c) => c.name === name) : data;
    if (place.contains(document.activeElement)) return;
    fill(place, wanted.length ? wanted.map((c) => card(c, context)) : h("p", { class: "empty" }, "No contract is kept here. docs/contracts.md tells how to write one."));
  });
  return { element: h("div", {}, heading("Contracts", "Bounds over tables of other databases."), place), stop: timer.stop };
}
