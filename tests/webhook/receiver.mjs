// SPDX-License-Identifier: Apache-2.0
// Receives webhooks at a port of its own, which it prints, checks each with the library of Standard Webhooks, and prints
// one line for each: the event's type, or what the library did not like.
import http from "node:http";
import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.argv[2]);
const server = http.createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const body = Buffer.concat(pieces).toString("utf8");
    let line;
    try {
      line = webhook.verify(body, request.headers).type;
    } catch (error) {
      line = `refused: ${error.message}`;
    }
    response.writeHead(line.startsWith("refused") ? 401 : 204);
    response.end();
    console.log(line);
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
