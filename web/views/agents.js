// SPDX-License-Identifier: Apache-2.0
// The fleet: a map by cluster, the most silent agents first, and everybody by name.
import { del, get, segment } from "../api.js";
import { badge, confirm, duration, every, facts, fill, h, heading, notice, number, plural, shortTable, when } from "../dom.js";
import { LongTable } from "../table.js";

const hrefOf = (a) => `#/agents/${segment(a.agent_id)}`;

/** The state as the fleet counts it: live, but silent for long. */
const stateOf = (a, silentAfter) => (a.state === "live" && Date.now() - Date.parse(a.last_seen) > silentAfter ? "silent" : a.state);

function byName(query, silentAfter) {
  return new LongTable({
    path: "/v1/agents", query, label: "Agents", empty: "No agent is alive here.", href: hrefOf,
    columns: [
      { title: "Agent", cell: (a) => a.agent_id }, { title: "Cluster", cell: (a) => a.cluster_id },
      { title: "State", cell: (a) => badge(stateOf(a, silentAfter)) }, { title: "Last seen", cell: (a) => when(a.last_seen) },
      { title: "Capabilities", class: "wide", cell: (a) => a.capabilities.join(", ") },
    ],
  });
}

/** One cell for each cluster, as large as its share of the fleet, redder the more of it is silent. */
function map(fleet, choose) {
  if (fleet.clusters.length === 0) return h("p", { class: "empty" }, "No agent has said that it is alive.");
  return h("ul", { class: "map" }, fleet.clusters.map((c) => {
    const share = c.agents ? c.silent / c.agents : 0;
    const tone = share === 0 ? "good" : share < 0.5 ? "warn" : "bad";
    const cell = h("button", { class: tone, onclick: () => choose(c.cluster_id), title: `Show the agents of ${c.cluster_id}` },
      h("b", {}, c.cluster_id), h("span", {}, plural(c.agents, "agent")), h("span", {}, c.silent ? `${number(c.silent)} silent` : "all heard"));
    const item = h("li", {}, cell);
    item.style.flexGrow = String(1 + Math.sqrt(c.agents));
    return item;
  }));
}

const QUIET_COLUMNS = [
  { title: "Agent", cell: (a) => h("a", { href: hrefOf(a) }, a.agent_id) }, { title: "Cluster", cell: (a) => a.cluster_id },
  { title: "State", cell: (a) => badge(a.silent ? "silent" : "live") }, { title: "Last seen", cell: (a) => when(a.last_seen) },
  { title: "Goes", cell: (a) => when(a.expires_at) },
];

function one(context, name) {
  const element = h("div", {}, heading(name));
  async function forget() {
    const body = h("p", {}, "The agent and what it can do go at once. A heartbeat registers it anew.");
    if (!(await confirm(`Forget ${name}?`, body, "Forget", true))) return;
    await del(`/v1/agents/${segment(name)}`);
    notice(`${name} is forgotten.`);
    location.hash = "#/agents";
  }
  get(`/v1/agents/${segment(name)}`, { include_suspect: "true" }).then((a) => fill(element,
    heading(a.agent_id, null, h("a", { class: "button", href: `#/inboxes/${segment(name)}` }, "Inbox"),
      h("a", { class: "button", href: `#/why/${segment(name)}` }, "Why?"),
      context.can("agents") ? h("button", { class: "danger", onclick: forget }, "Forget…") : null),
    h("div", { class: "panel padded" }, facts([["State", badge(a.state)], ["Cluster", a.cluster_id], ["First seen", when(a.first_seen)],
      ["Last seen", when(a.last_seen)], ["Capabilities", a.capabilities.join(", ") || "none"]]))),
  (e) => fill(element, heading(name), h("p", { class: "bad" }, e.message), h("p", {}, h("a", { href: `#/why/${segment(name)}` }, "Where did it go?"))));
  return { element };
}

export function view(context, name) {
  if (name) return one(context, name);
  const top = h("div"), quiet = h("div"), place = h("div");
  let silentAfter = null; // not known yet
  const input = (name) => h("input", { name, autocomplete: "off" });
  const form = h("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); draw(); } },
    h("label", {}, "Cluster ", input("cluster_id")), h("label", {}, "Capability ", input("capability")),
    h("label", {}, h("input", { type: "checkbox", name: "include_suspect" }), " Suspects too"), h("button", {}, "Show"));

  function draw() {
    const { cluster_id, capability, include_suspect } = form.elements;
    fill(place, byName({ cluster_id: cluster_id.value, capability: capability.value, include_suspect: include_suspect.checked ? "true" : "" }, silentAfter).element);
  }
  function choose(cluster) {
    form.elements.cluster_id.value = cluster;
    draw();
    form.scrollIntoView({ block: "start" });
  }
  const timer = every(5000, async () => {
    const fleet = await get("/v1/fleet");
    const isFirst = silentAfter === null;
    silentAfter = fleet.silent_after_ms;
    if (isFirst) draw();
    const said = `${plural(fleet.agents, "agent")}, ${number(fleet.silent)} silent for more than ${duration(fleet.silent_after_ms)}; evicted after ${duration(fleet.evict_after_ms)} of silence.`;
    const open = fleet.breaker.state === "open" ? h("p", { class: "warn" }, `The breaker is open: ${plural(fleet.breaker.suspected, "agent")} fell silent together and are kept as suspects.`) : null;
    if (!top.contains(document.activeElement)) fill(top, h("p", { class: "quiet" }, said), open, map(fleet, choose));
    fill(quiet, h("h2", {}, "Most silent first"), shortTable("Most silent agents", QUIET_COLUMNS, fleet.quietest.slice(0, 8), "No agent is alive."));
  });
  return { element: h("div", {}, heading("Agents"), top, quiet, h("h2", {}, "All agents, by name"), form, place), stop: timer.stop };
}
