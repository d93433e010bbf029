// SPDX-License-Identifier: Apache-2.0
// The log and its consumers: who is how far behind.
import { get, segment } from "../api.js";
import { badge, every, fill, h, heading, number, shortTable, when } from "../dom.js";

const NEWEST = 50; // rows shown

const CONSUMERS = [
  { title: "Consumer", cell: (c) => h("a", { href: `#/why/${segment(c.name)}` }, c.name) },
  { title: "Lag", class: "n", cell: (c) => h("span", { class: c.lag ? "warn" : "good" }, `${number(c.lag ?? 0)} rows`) },
  { title: "Cursor", cell: (c) => h("code", {}, c.cursor) }, { title: "Last advanced", cell: (c) => when(c.updated_at) },
];
const ROWS = [
  { title: "Topic", cell: (r) => badge(r.topic, "info") }, { title: "Payload", class: "wide", cell: (r) => h("code", {}, JSON.stringify(r.payload)) },
  { title: "Added", cell: (r) => when(r.created_at) }, { title: "Id", cell: (r) => h("a", { href: `#/why/${r.id}` }, h("code", {}, r.id)) },
];

export function view() {
  const consumers = h("div"), rows = h("div");
  const timer = every(5000, async () => {
    const [c, log] = await Promise.all([get("/v1/outbox/consumers", { limit: 100 }), get("/v1/outbox", { limit: NEWEST })]);
    fill(consumers, shortTable("Consumers", CONSUMERS, c.data, "No consumer has said how far it has read."));
    fill(rows, shortTable("Rows of the outbox", ROWS, log.data, "The outbox is empty."));
  });
  return { element: h("div", {}, heading("Outbox", "A log that consumers follow at their own pace."),
    h("h2", {}, "Consumers"), consumers, h("h2", {}, "Oldest rows that are kept"), rows), stop: timer.stop };
}
