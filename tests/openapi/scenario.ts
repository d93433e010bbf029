// SPDX-License-Identifier: Apache-2.0
// A scenario with the client that openapi-typescript and openapi-fetch make of /openapi.json. It compiles only
// when the document describes every body and answer that it uses; test_openapi.py compiles and runs it.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./lapse.js";

type Message = components["schemas"]["Message"];

const url = process.argv[2];
if (!url) throw new Error("usage: scenario.js URL");
const lapse = createClient<paths>({ baseUrl: url });

async function messages(): Promise<void> {
  const sent = await lapse.POST("/v1/agents/{agent}/messages", {
    params: { path: { agent: "bob" }, header: { "Idempotency-Key": "first" } },
    body: { from: "alice", content: "resize picture 7", metadata: { picture: 7, tags: ["urgent"] } },
  });
  assert.ok(sent.data, JSON.stringify(sent.error));
  const message: Message = sent.data;
  assert.equal(message.read, false);
  assert.equal(message.metadata["picture"], 7);

  const claim = await lapse.POST("/v1/agents/{agent}/messages/claim", {
    params: { path: { agent: "bob" } },
    body: { limit: 1, visibility_ms: 30_000 },
  });
  assert.ok(claim.data);
  const first = claim.data.data[0];
  assert.ok(first && claim.data.claim_id);
  assert.equal(first.id, message.id);

  const read = await lapse.POST("/v1/agents/{agent}/messages/{id}/read", {
    params: { path: { agent: "bob", id: first.id } },
    body: { claim_id: claim.data.claim_id },
  });
  assert.equal(read.data?.read, true);

  const page = await lapse.GET("/v1/agents/{agent}/messages", {
    params: { path: { agent: "bob" }, query: { limit: 5 } },
  });
  assert.equal(page.data?.data.length, 1);
  assert.equal(page.data?.pagination.has_more, false);
}

async function agents(): Promise<void> {
  const beat = await lapse.POST("/v1/agents/{agent}/heartbeat", {
    params: { path: { agent: "bob" } },
    body: { cluster_id: "eu-1", capabilities: ["resize"] },
  });
  assert.equal(beat.data?.status, "ok");
  const agent = await lapse.GET("/v1/agents/{agent}", { params: { path: { agent: "bob" } } });
  assert.equal(agent.data?.state, "live");
  assert.deepEqual(agent.data?.capabilities, ["resize"]);
}

async function mailboxes(): Promise<void> {
  const made = await lapse.POST("/v1/mailboxes", { body: { ttl_ms: 600_000 } });
  assert.ok(made.data, JSON.stringify(made.error));
  assert.equal(made.data.cleanup.state, "clean");
  const etag = made.response.headers.get("ETag");
  assert.ok(etag && made.response.headers.get("Sunset"));
  const renewed = await lapse.POST("/v1/mailboxes/{id}/renew", {
    params: { path: { id: made.data.id }, header: { "If-Match": etag } },
    body: { ttl_ms: 1_200_000 },
  });
  assert.ok(renewed.data);
  assert.ok(renewed.data.expires_at > made.data.expires_at);
}

async function attachments(): Promise<void> {
  const staged = await lapse.POST("/v1/attachments", {
    params: { query: { name: "hello.txt", ttl_ms: 600_000 } },
    body: "hello",
    bodySerializer: (body) => body,
    headers: { "Content-Type": "application/octet-stream" },
  });
  assert.ok(staged.data, JSON.stringify(staged.error));
  const content = await lapse.GET("/v1/attachments/{checksum}/content", {
    params: { path: { checksum: staged.data.checksum } },
    parseAs: "text",
  });
  assert.equal(content.data, "hello");
}

async function errors(): Promise<void> {
  const missing = await lapse.GET("/v1/agents/{agent}", { params: { path: { agent: "nobody" } } });
  assert.equal(missing.response.status, 404);
  assert.ok(missing.error && "error" in missing.error);
  assert.equal(missing.error.error.code, "not_found");
}

async function engine(): Promise<void> {
  const matrix = await lapse.GET("/v1/matrix");
  assert.ok(matrix.data && matrix.data.data.some((bound) => bound.table === "messages"));
  const sweep = await lapse.POST("/v1/sweep/{scheduler}", {
    params: { path: { scheduler: "messages" }, query: { dry_run: true } },
  });
  assert.equal(sweep.data?.tables["messages"], 0);
}

for (const step of [messages, agents, mailboxes, attachments, errors, engine]) {
  await step();
  console.log(`${step.name} ok`);
}
