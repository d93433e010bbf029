// SPDX-License-Identifier: Apache-2.0
// lapse from TypeScript, with fetch alone: Node 18 or newer.
//   tsc --target es2022 --module nodenext quickstart.ts && node quickstart.js heartbeat AGENT CLUSTER
//   … work AGENT                 claim messages, do the work, mark them read
//   … follow                     print events, across restarts of the daemon
//   … lease TABLE KEY HOLDER     hold a lease until Ctrl-C, then give it back
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env["LAPSE_URL"] ?? "http://127.0.0.1:7878";
const token = process.env["LAPSE_TOKEN"];
const beatMs = 1000 * Number(process.env["BEAT_S"] ?? "30");

interface Message {
  id: string;
  from: string;
  content: string;
}

interface Claim {
  claim_id: string | null;
  data: Message[];
}

const authorization: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};

async function lapse<T>(method: string, path: string, body?: unknown): Promise<T> {
  const answer = await fetch(url + path, {
    method,
    headers: { ...authorization, ...(body ? { "Content-Type": "application/json" } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  const told = (await answer.json()) as T & { error?: { code: string; message: string } };
  if (!answer.ok) throw new Error(`${answer.status} ${told.error?.code}: ${told.error?.message}`);
  return told;
}

const inbox = (agent: string): string => `/v1/agents/${encodeURIComponent(agent)}`;

// An agent that is silent for 90 s is evicted: beat three times as often.
async function heartbeat(agent: string, cluster: string): Promise<void> {
  const goodbye = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => goodbye.abort());
  while (!goodbye.signal.aborted) {
    await lapse("POST", `${inbox(agent)}/heartbeat`, { cluster_id: cluster, capabilities: ["typescript"] }).catch(
      (why: unknown) => console.error(`no heartbeat, trying again: ${String(why)}`),
    );
    await sleep(beatMs, undefined, { signal: goodbye.signal }).catch(() => undefined);
  }
  await lapse("DELETE", inbox(agent));
}

// What is not marked read when its lease ends is offered again: do work that may be done twice.
async function work(agent: string): Promise<void> {
  for (;;) {
    const claim = await lapse<Claim>("POST", `${inbox(agent)}/messages/claim`, {
      limit: 1,
      visibility_ms: 30_000,
      wait_ms: 20_000,
    }).catch(async (why: unknown) => {
      console.error(`no claim, trying again: ${String(why)}`);
      await sleep(1000);
      return { claim_id: null, data: [] } satisfies Claim;
    });
    for (const message of claim.data) {
      console.log(`working on: ${message.content}`);
      await lapse("POST", `${inbox(agent)}/messages/${message.id}/read`, { claim_id: claim.claim_id }).catch(
        (why: unknown) => console.error(`another worker has it: ${String(why)}`),
      );
    }
  }
}

// Server-sent events: the last id says where to go on after a break.
async function follow(): Promise<void> {
  let last = "";
  let kind = "";
  const take = (line: string): void => {
    const [name, value] = [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)];
    if (name === "id") last = value;
    else if (name === "event") kind = value;
    else if (name === "data") console.log(`${last} ${kind} ${value}`);
  };
  for (;;) {
    try {
      const stream = await fetch(`${url}/v1/events`, {
        headers: { ...authorization, ...(last ? { "Last-Event-ID": last } : {}) },
      });
      const decoder = new TextDecoder();
      let rest = "";
      for await (const chunk of stream.body ?? []) {
        const lines = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        lines.forEach(take);
      }
    } catch (why) {
      console.error(`the stream broke, going on: ${String(why)}`);
    }
    await sleep(2000);
  }
}

interface Lease {
  fencing_token: number;
}

// Give the fencing token with every write: storage that refuses smaller ones is safe from a late holder.
async function lease(table: string, key: string, holder: string): Promise<void> {
  const path = `/v1/leases/${table}/${encodeURIComponent(key)}`;
  const goodbye = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => goodbye.abort());
  const take = (): Promise<Lease | undefined> =>
    lapse<Lease>("PUT", path, { holder, ttl_ms: 10_000 }).catch(() => undefined);
  const rest = (ms: number): Promise<unknown> => sleep(ms, undefined, { signal: goodbye.signal }).catch(() => undefined);

  let held = await take();
  while (!held && !goodbye.signal.aborted) {
    await rest(1000); // another holder has it
    held = await take();
  }
  if (!held) return;
  const token = held.fencing_token;
  console.log(`holding ${key} with fencing token ${token}`);
  while (held?.fencing_token === token && !goodbye.signal.aborted) {
    await rest(beatMs / 10);
    if (!goodbye.signal.aborted) held = await take();
  }
  if (!goodbye.signal.aborted) throw new Error("the lease is lost: stop writing");
  await lapse("DELETE", `${path}?holder=${encodeURIComponent(holder)}&fencing_token=${token}`);
}

const [command, first = "", second = "", third = ""] = process.argv.slice(2);
if (command === "heartbeat") await heartbeat(first, second);
else if (command === "work") await work(first);
else if (command === "follow") await follow();
else if (command === "lease") await lease(first, second, third);
else throw new Error("usage: quickstart.js heartbeat AGENT CLUSTER | work AGENT | follow | lease TABLE KEY HOLDER");
