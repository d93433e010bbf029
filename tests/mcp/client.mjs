// SPDX-License-Identifier: Apache-2.0
// Talks to lapse through a client of the Model Context Protocol and prints what it saw as one line of JSON.
//   node client.mjs v1|legacy|auto|modern URL [TOKEN]       over HTTP
//   node client.mjs v1-stdio|legacy-stdio|modern-stdio LAPSE URL    through 'lapse mcp'
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport as NewStdio } from "@modelcontextprotocol/client/stdio";

const [kind, target, extra] = process.argv.slice(2);
const info = { name: "lapse-test", version: "1" };
const stdio = kind.endsWith("-stdio");
const headers = !stdio && extra ? { requestInit: { headers: { Authorization: `Bearer ${extra}` } } } : {};

function open() {
  if (kind === "v1") return [new OldClient(info), new OldHttp(new URL(target), headers)];
  if (kind === "v1-stdio")
    return [new OldClient(info), new StdioClientTransport({ command: target, args: ["mcp"], env: { LAPSE_URL: extra } })];
  if (stdio) {
    const mode = kind === "modern-stdio" ? { pin: "2026-07-28" } : "legacy";
    const program = new NewStdio({ command: target, args: ["mcp"], env: { LAPSE_URL: extra } });
    return [new Client(info, { versionNegotiation: { mode } }), program];
  }
  const mode = kind === "modern" ? { pin: "2026-07-28" } : kind;
  return [new Client(info, { versionNegotiation: { mode } }), new StreamableHTTPClientTransport(new URL(target), headers)];
}

const [client, transport] = open();
await client.connect(transport);
const seen = { era: client.getProtocolEra?.() ?? "legacy" };
seen.tools = (await client.listTools()).tools.map((t) => t.name);
const call = async (name, args) => (await client.callTool({ name, arguments: args })) ;
seen.sent = (await call("send_message", { from_session_id: "ann", to_session_id: "böb", content: "hi" })).structuredContent;
seen.inbox = (await call("check_inbox", { session_id: "böb" })).structuredContent;
const wrong = await call("acknowledge_message", { session_id: "böb" });
seen.wrong = { isError: wrong.isError, text: wrong.content[0].text };
seen.acknowledged = (await call("acknowledge_message", { session_id: "böb", message_id: seen.sent.id })).structuredContent;
seen.unknown = await call("no_such_tool", {}).then(() => "answered", (e) => e.code ?? e.message);
if (kind === "v1" || kind === "legacy") seen.ping = await client.ping();
await client.close();
console.log(JSON.stringify(seen));
