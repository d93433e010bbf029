/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door for agents: POST /mcp.
 *
 * A message that calls a tool becomes a request of that tool's route: mcp_take() exchanges the
 * route once the body is there, so the call runs, waits and commits like any other, and mcp_frame()
 * puts its answer into the frame of JSON-RPC. Every other message is answered by mcp_api_post(),
 * which needs neither the store nor a room.
 */
#ifndef LAPSE_MCP_DOOR_H
#define LAPSE_MCP_DOOR_H

#include "api/call.h"

struct request;

call_fn mcp_api_post;

/* The body of a request for /mcp is parsed: reads the message. */
void mcp_take(struct request *r);

/* Before a request is answered: puts a tool's answer, or its error, and what is wrong with a body
 * for /mcp into JSON-RPC's frame. Leaves every other request alone. */
void mcp_frame(struct request *r);

/* Before a request is freed. */
void mcp_release(struct request *r);

#endif
