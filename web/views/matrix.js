// SPDX-License-Identifier: Apache-2.0
// Every bound: what is kept, what is due, what was removed; and a sweep by hand, which first shows what would go.
import { get, post, segment } from "../api.js";
import { ahead, badge, confirm, duration, every, facts, fill, h, heading, notice, number, plural, when } from "../dom.js";

/** What a dry run would remove, table by table. */
function wouldGo(answer) {
  const rows = Object.entries(answer.tables).filter(([, n]) => n > 0);
  if (rows.length === 0) return h("p", {}, "Nothing is due: the sweep would remove no row.");
  return h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Table"), h("th", { scope: "col", class: "n" }, "Rows that go"))),
    h("tbody", {}, rows.map(([table, n]) => h("tr", {}, h("td", {}, table), h("td", { class: "n" }, number(n))))));
}

const dryRun = (scheduler) => post(`/v1/sweep/${segment(scheduler)}`, undefined, { dry_run: "true" });

async function showDryRun(scheduler) {
  const dry = await dryRun(scheduler);
  await confirm(`Dry run of ${scheduler}`, wouldGo(dry), "Close");
}

async function sweep(scheduler, redraw) {
  const dry = await dryRun(scheduler);
  if (!(await confirm(`Sweep ${scheduler} now?`, wouldGo(dry), "Sweep now", true))) return;
  const done = await post(`/v1/sweep/${segment(scheduler)}`);
  notice(`${scheduler}: ${plural(done.pruned, "row")} removed.`);
  redraw();
}

function pace(b) {
  if (!b.last_sweep_at || (b.last_sweep_rows ?? null) === null) return null; // none yet, or not for this caller
  const took = b.last_sweep_ms ? duration(b.last_sweep_ms) : "less than 1 ms";
  if (b.last_sweep_rows === 0) return `nothing to remove, ${took}`;
  const rate = b.rows_per_second ? `, ${number(b.rows_per_second)} per s` : "";
  return `${plural(b.last_sweep_rows, "row")} in ${took}${rate}`;
}

const undeletable = (b) => Object.entries(b.undeletable ?? {}).filter(([, n]) => n > 0);

function figure(name, value, tone) {
  return h("span", { class: tone }, h("b", {}, value), ` ${name}`);
}

function card(b, context, redraw) {
  const kept = undeletable(b), stuck = b.undeletable_rows;
  const sweeps = context.admin && context.can("engine") && b.paths.includes("sweep");
  return h("article", { class: b.due_rows ? "due" : null },
    h("h2", {}, b.table, h("span", { class: "badge quiet" }, b.scheduler)),
    h("p", { class: "figures" }, figure("live", number(b.live_rows)), figure("due", number(b.due_rows), b.due_rows ? "warn" : null),
      stuck === undefined ? null : figure("undeletable", number(stuck), stuck ? "info" : null), figure("removed", number(b.pruned_total))),
    facts([
      ["Due when", h("code", {}, b.due_when)], ["Safety rule", b.safety_rule],
      ["Oldest due", b.oldest_due_age_ms === null ? null : `${duration(b.oldest_due_age_ms)} overdue`],
      ["Clear", b.due_rows && (b.clears_in_ms ?? null) !== null ? `in ${duration(b.clears_in_ms)}` : null],
      ["Kept by", kept.length ? kept.map(([why, n]) => `${number(n)} ${why}`).join(", ") : null],
      ["Window", b.window_ms === null ? null : duration(b.window_ms)],
      ["Last sweep", b.last_sweep_at ? when(b.last_sweep_at) : null], ["Pace", pace(b)], ["Next sweep", ahead(b.next_sweep_at)],
      ["Contract", b.contract ? h("a", { href: `#/contracts/${segment(b.contract)}` }, b.contract) : null],
      ["Problem", b.problem ? h("span", { class: "bad" }, b.problem) : null],
    ]),
    b.waits_for_approval ? h("p", {}, badge("waits", "warn"), " ", h("a", { href: "#/approvals" }, "for your approval")) : null,
    sweeps ? h("p", { class: "buttons left" },
      h("button", { onclick: () => showDryRun(b.scheduler), "aria-label": `Dry run of ${b.scheduler} for ${b.table}` }, "Dry run"),
      h("button", { onclick: () => sweep(b.scheduler, redraw), "aria-label": `Sweep ${b.scheduler} for ${b.table}` }, "Sweep…")) : null);
}

export function view(context) {
  const cards = h("div", { class: "cards" }, h("p", { class: "quiet" }, "Looking…"));
  const filter = h("input", { type: "search", placeholder: "Table or scheduler", "aria-label": "Filter by table or scheduler", oninput: draw });
  const only = h("input", { type: "checkbox", onchange: draw });
  let bounds = [];

  function draw() {
    if (cards.contains(document.activeElement)) return; // a person is about to press something
    const wanted = bounds.filter((b) => `${b.table} ${b.scheduler}`.includes(filter.value) && (!only.checked || b.due_rows > 0));
    fill(cards, wanted.length ? wanted.map((b) => card(b, context, timer.now)) : h("p", { class: "empty" }, "No table matches."));
  }
  const timer = every(5000, async () => {
    bounds = (await get("/v1/matrix")).data;
    draw();
  });
  return {
    element: h("div", {}, heading("The maintenance matrix", "Every bounded table: what makes a row due, and what is never removed."),
      h("form", { class: "filters", onsubmit: (e) => e.preventDefault() }, filter, h("label", {}, only, " Only what is due")), cards),
    stop: timer.stop,
  };
}
