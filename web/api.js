// SPDX-License-Identifier: Apache-2.0
// The HTTP contract, as the page uses it. The token lives in this module's memory and nowhere else: a reload forgets it.

let token = null;
let owner = null;

export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code ?? "unknown";
  }
}

export const setToken = (text) => { token = text || null; };
export const hasToken = () => token !== null;

/** An admin looks at the things of another owner; null = its own. */
export const actFor = (name) => { owner = name || null; };

function headers(extra) {
  const all = { ...extra };
  if (token) all.Authorization = `Bearer ${token}`;
  if (owner) all["X-Lapse-Owner"] = owner;
  return all;
}

function address(path, query) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

/** The response of a request, or an ApiError. */
export async function request(method, path, { query = {}, body, head = {}, signal } = {}) {
  const json = body === undefined ? {} : { "Content-Type": "application/json" };
  const response = await fetch(address(path, query), {
    method, signal, cache: "no-store", credentials: "omit",
    headers: headers({ ...head, ...json }),
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.ok) return response;
  let error;
  try { error = (await response.json()).error; } catch { /* not our JSON: the status says enough */ }
  throw new ApiError(response.status, error);
}

export const get = async (path, query, signal) => (await request("GET", path, { query, signal })).json();
export const post = async (path, body, query) => (await request("POST", path, { body, query })).json();
export const put = async (path, body) => (await request("PUT", path, { body })).json();
export const del = async (path, query) => (await request("DELETE", path, { query })).json();
export const segment = encodeURIComponent;

/** Follows the stream of events until `signal` aborts, and resumes after a lost connection where it stopped.
 *  EventSource cannot send a token, so the stream is read by fetch. `onevents` gets what one read brought. */
export async function follow({ onevents, onstate, signal, lastId = null }) {
  let pause = 500;
  while (!signal.aborted) {
    try {
      const head = lastId ? { "Last-Event-ID": lastId } : {};
      const response = await request("GET", "/v1/events", { head, signal });
      onstate("live");
      pause = 500;
      for await (const batch of parse(response.body)) {
        lastId = batch.findLast((e) => e.id)?.id ?? lastId;
        const events = batch.filter((e) => e.type);
        if (events.length) onevents(events);
      }
    } catch (e) {
      if (signal.aborted) return;
      if (e instanceof ApiError && (e.status === 401 || e.status === 403)) { onstate("refused"); return; }
    }
    onstate("lost");
    await new Promise((wake) => setTimeout(wake, pause + Math.random() * 250));
    pause = Math.min(pause * 2, 10000);
  }
}

/** Server-sent events of a byte stream: those that each read completes. */
async function* parse(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", event = {};
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    const batch = [];
    for (const line of lines) {
      if (line !== "") { readField(event, line); continue; }
      if (event.id !== undefined || event.data !== undefined) batch.push(event);
      event = {};
    }
    if (batch.length) yield batch;
  }
}

function readField(event, line) {
  const colon = line.indexOf(":");
  if (colon <= 0) return;
  const name = line.slice(0, colon), text = line.slice(colon + 1).replace(/^ /, "");
  if (name === "id") event.id = text;
  else if (name === "event") event.type = text;
  else if (name === "data") event.data = (event.data ?? "") + text;
}
