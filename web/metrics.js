// SPDX-License-Identifier: Apache-2.0
// What the overview shows over time: samples of /metrics, taken while the page is open.
import { request } from "./api.js";

const ROOM = 300; // samples: ten minutes at one every 2 s

/** The sums over all labels of each series in Prometheus' text format. */
export function sums(text) {
  const totals = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue;
    const name = line.slice(0, line.search(/[{ ]/));
    if (name.endsWith("_bucket")) continue;
    totals.set(name, (totals.get(name) ?? 0) + Number(line.slice(line.lastIndexOf(" ") + 1)));
  }
  return totals;
}

export const history = { at: [], removed: [], due: [], lag: [], requests: [], commit: [] };
let last = null;

/** The mean of a histogram since the last sample, in milliseconds; null = nothing happened. */
function mean(now, name) {
  const count = (now.get(`${name}_count`) ?? 0) - (last.totals.get(`${name}_count`) ?? 0);
  const sum = (now.get(`${name}_sum`) ?? 0) - (last.totals.get(`${name}_sum`) ?? 0);
  return count > 0 ? (sum / count) * 1000 : null;
}

/** Takes one sample. The first one only sets the starting point, since rates need two. */
export async function sample() {
  const totals = sums(await (await request("GET", "/metrics")).text());
  const at = Date.now();
  if (last) {
    const seconds = (at - last.at) / 1000;
    const rate = (name) => Math.max(0, ((totals.get(name) ?? 0) - (last.totals.get(name) ?? 0)) / seconds);
    history.at.push(new Date(at));
    history.removed.push(rate("lifecycle_prune_rows_total") * 60);
    history.due.push(totals.get("lapse_due_rows") ?? 0);
    history.lag.push(mean(totals, "lapse_expiry_lag_seconds"));
    history.requests.push(rate("lapse_http_requests_total"));
    history.commit.push(mean(totals, "lapse_commit_seconds"));
    for (const list of Object.values(history)) if (list.length > ROOM) list.shift();
  }
  last = { at, totals };
  return totals;
}
