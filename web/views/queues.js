// SPDX-License-Identifier: Apache-2.0
// Work queues: how deep, how old, what failed; a failed item can be tried again.
import { get, post, segment } from "../api.js";
import { badge, confirm, every, facts, fill, h, heading, notice, number, plural, when } from "../dom.js";
import { LongTable } from "../table.js";

const STATES = ["queued", "processing", "failed", "completed"];
const TABLES = ["channel_inbox", "channel_outbox"];
const RETRY_AT_ONCE = 100;

function depthCard(d, table, state) {
  const link = (s) => h("a", { href: `#/queues/${d.table}/${s}`, class: s === "failed" && d.failed ? "bad" : null,
    "aria-current": d.table === table && s === state ? "true" : null }, h("b", {}, number(d[s])), ` ${s}`);
  return h("article", {}, h("h2", {}, d.table.replaceAll("_", " ")), h("p", { class: "figures" }, STATES.map(link)),
    facts([["Oldest queued", d.oldest_queued_at ? when(d.oldest_queued_at) : "–"], ["Oldest failed", d.oldest_failed_at ? when(d.oldest_failed_at) : null]]));
}

export function view(context, chosenTable, chosenState) {
  const table = TABLES.includes(chosenTable) ? chosenTable : TABLES[0], state = STATES.includes(chosenState) ? chosenState : "queued";
  const depths = h("div", { class: "cards" }), place = h("div"), path = `/v1/queues/${table}`;
  const tries = state === "failed" && context.can("tables");
  const retry = (id) => post(`${path}/${segment(id)}/retry`);
  async function retryOne(item) {
    await retry(item.id);
    notice("It is queued again.");
    draw();
  }
  async function retryAll() {
    const { data } = await get(path, { status: "failed", limit: RETRY_AT_ONCE });
    if (!(await confirm("Retry failed items?", h("p", {}, `${plural(data.length, "item goes", "items go")} back into the queue for one more attempt.`), "Retry all"))) return;
    const done = await Promise.allSettled(data.map((item) => retry(item.id)));
    notice(`${plural(done.filter((d) => d.status === "fulfilled").length, "item is", "items are")} queued again.`);
    draw();
  }
  const columns = [
    { title: "Id", cell: (i) => h("code", {}, i.id) }, { title: "About", cell: (i) => i.key ?? "–" },
    { title: "Added", cell: (i) => when(i.created_at) }, { title: "Attempts", class: "n", cell: (i) => String(i.attempt) },
    state === "failed" ? { title: "Error", class: "wide", cell: (i) => i.error ?? "–" } : null,
    tries ? { title: "", cell: (i) => h("button", { onclick: () => retryOne(i), "aria-label": `Retry ${i.id}` }, "Retry") } : null,
    state === "processing" ? { title: "Lease ends", cell: (i) => when(i.lease_expires_at) } : null,
    { title: "Worker", cell: (i) => i.worker ?? "–" }, { title: "Payload", class: "wide", cell: (i) => h("code", {}, JSON.stringify(i.payload)) },
  ].filter(Boolean);
  function draw() {
    fill(place, new LongTable({ path, query: { status: state }, label: `${table}, ${state}`, empty: `Nothing is ${state}.`, href: (i) => `#/why/${i.id}`, columns }).element);
    timer?.now();
  }
  let timer = null;
  draw();
  timer = every(5000, async () => {
    const { data } = await get("/v1/queues");
    if (!depths.contains(document.activeElement)) fill(depths, data.map((d) => depthCard(d, table, state)));
  });
  return { element: h("div", {}, heading("Queues", "Work that waits, is under way, or failed."), depths,
    h("div", { class: "heading" }, h("h2", {}, table.replaceAll("_", " "), " ", badge(state)), tries ? h("button", { onclick: retryAll }, "Retry all…") : null), place), stop: timer.stop };
}
