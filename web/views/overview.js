// SPDX-License-Identifier: Apache-2.0
// Is everything kept? What goes next, what is stuck?
import { get } from "../api.js";
import { chart } from "../chart.js";
import { ahead, duration, every, fill, h, heading, number, plural, shortTable, when } from "../dom.js";
import { history, sample } from "../metrics.js";

let hasReplicas = true; // until the daemon says that it knows of none

/** Admins see which processes share the store; a daemon that is alone has no such list. */
async function replicasFor(context) {
  if (!context.admin || !hasReplicas) return [];
  try {
    return (await get("/v1/replicas")).data.filter((r) => r.state === "live");
  } catch (e) {
    hasReplicas = e.status !== 404;
    return [];
  }
}

const SLOW = 3;               // the matrix is asked for with every third sample
const STUCK_MS = 600000;      // a due row that has waited longer needs a person

const CHARTS = [
  { title: "Removed", series: [{ name: "removed per minute", key: "removed", unit: "per min" }, { name: "due", key: "due", unit: "due" }] },
  { title: "Expiry lag", unit: "ms", series: [{ name: "lag", key: "lag" }] },
  { title: "Requests", unit: "per s", series: [{ name: "requests", key: "requests" }] },
  { title: "Commit latency", unit: "ms", series: [{ name: "commit", key: "commit" }] },
];

/** The facts that need a person, each with the page that helps. */
function troubles({ clock, matrix, totals, approvals }) {
  const list = [];
  const add = (href, text) => list.push(h("li", {}, href ? h("a", { href }, text) : text));
  const dead = totals.get("lapse_dead_letters") ?? 0, suspect = totals.get("lapse_agents_suspect") ?? 0;
  if (clock.state !== "trusted") add(null, `The wall clock has leapt by ${duration(clock.leap_ms)}; nothing expires because of it. “lapse clock accept” ends that.`);
  if (approvals > 0) add("#/approvals", `${plural(approvals, "sweep waits", "sweeps wait")} for your approval`);
  if (dead > 0) add("#/dead-letters", `${plural(dead, "deletion")} outside gave up`);
  if (suspect > 0) add("#/agents", `${plural(suspect, "agent")} fell silent together and are suspects`);
  for (const b of matrix) {
    if (b.oldest_due_age_ms > STUCK_MS) add("#/matrix", `${b.table}: the oldest due row has waited ${duration(b.oldest_due_age_ms)}`);
    if (b.problem) add("#/contracts", `${b.table}: ${b.problem}`);
  }
  return list;
}

function sentence(list, matrix) {
  const live = matrix.reduce((n, b) => n + b.live_rows, 0), due = matrix.reduce((n, b) => n + b.due_rows, 0);
  const kept = `${plural(live, "lifetime")} in ${plural(matrix.length, "table")}, ${due ? `${number(due)} due` : "none due"}.`;
  return h("section", { class: `hero ${list.length ? "warn" : "good"}`, "aria-label": "What needs you" },
    h("p", { class: "say" }, list.length ? `${plural(list.length, "thing needs", "things need")} you.` : "Every lifetime is being kept. Nothing needs you."),
    h("p", { class: "quiet" }, kept), list.length ? h("ul", {}, list) : null);
}

function tile(name, value, about, href) {
  return h("a", { class: "tile", href }, h("span", { class: "quiet" }, name), h("b", {}, value), h("span", { class: "quiet" }, about));
}

function tiles({ clock, fleet, matrix, totals, replicas }) {
  const live = (table) => matrix.find((b) => b.table === table)?.live_rows ?? 0;
  const dead = totals.get("lapse_dead_letters") ?? 0;
  return [
    !fleet ? null : tile("Agents", number(fleet.agents), fleet.silent ? `${number(fleet.silent)} silent` : "all heard", "#/agents"),
    !fleet ? null : tile("Breaker", fleet.breaker.state, fleet.breaker.state === "open" ? `${number(fleet.breaker.suspected)} suspects` : "no fleet fell silent", "#/agents"),
    tile("Clock", clock.state, clock.state === "trusted" ? "the times agree" : `leapt by ${duration(clock.leap_ms)}`, "#/events"),
    tile("Holds", number(live("holds")), "rows kept by hand", "#/holds"),
    tile("Dead letters", number(dead), dead ? "deletions gave up" : "none gave up", "#/dead-letters"),
    replicas.length > 1 ? tile("Replicas", number(replicas.length), replicas.map((r) => r.number).join(", "), "#/") : null,
  ];
}

const SCHEDULER_COLUMNS = [
  { title: "Scheduler", cell: ([name]) => h("b", {}, name) },
  { title: "Next run", cell: ([, list]) => ahead(list[0].next_sweep_at) },
  { title: "Every", cell: ([, list]) => duration(list[0].interval_ms) },
  { title: "Last sweep", cell: ([, list]) => when(list[0].last_sweep_at) },
  { title: "Took", class: "n", cell: ([, list]) => (list[0].last_sweep_at ? list[0].last_sweep_ms ? duration(list[0].last_sweep_ms) : "< 1 ms" : "–") },
  { title: "Live rows", class: "n", cell: ([, list]) => number(list.reduce((n, b) => n + b.live_rows, 0)) },
  { title: "Due", class: "n", cell: ([, list]) => number(list.reduce((n, b) => n + b.due_rows, 0)) },
  { title: "Removed", class: "n", cell: ([, list]) => number(list.reduce((n, b) => n + b.pruned_total, 0)) },
];

function bySchedulers(bounds) {
  const all = new Map();
  for (const b of bounds) all.set(b.scheduler, [...(all.get(b.scheduler) ?? []), b]);
  return [...all];
}

export function view(context) {
  const charts = CHARTS.map((c) => chart({ ...c, history }));
  const top = h("div", {}, h("p", { class: "quiet" }, "Looking…")), row = h("section", { class: "tiles", "aria-label": "State" });
  const table = h("section", {}, h("h2", {}, "Schedulers"));
  let turn = 0;

  async function slowly(totals) {
    const [m, clock, fleet, approvals, replicas] = await Promise.all([get("/v1/matrix"), get("/v1/clock"),
      context.sees("agents") ? get("/v1/fleet") : null, context.admin && context.sees("contracts") ? get("/v1/approvals").then((a) => a.data) : [], replicasFor(context)]);
    const waiting = approvals.filter((a) => !a.given_at).length;
    fill(top, sentence(troubles({ clock, matrix: m.data, totals, approvals: waiting }), m.data));
    fill(row, tiles({ clock, fleet, matrix: m.data, totals, replicas }));
    fill(table, h("h2", {}, "Schedulers"), shortTable("Schedulers", SCHEDULER_COLUMNS, bySchedulers(m.data)));
  }

  const timer = every(2000, async () => {
    const totals = await sample();
    charts.forEach((c) => c.draw());
    if (turn++ % SLOW === 0) await slowly(totals);
  });
  return {
    element: h("div", {}, heading("Overview"), top, row,
      h("section", { class: "charts", "aria-label": "Charts" }, charts.map((c) => c.element)), table),
    stop: timer.stop,
  };
}
