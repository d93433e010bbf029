/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the Model Context Protocol: JSON-RPC 2.0 in two eras that share one endpoint.
 *
 * Legacy (2024-11-05 to 2025-11-25) begins with `initialize`. Modern (2026-07-28) has no handshake:
 * each request says in `params._meta` which version it speaks, and repeats the facts that proxies
 * need in headers. rpc_read() decides which era a message belongs to and checks everything that
 * does not depend on its method. Pure: no clock, no store, no socket.
 */
#ifndef LAPSE_MCP_RPC_H
#define LAPSE_MCP_RPC_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define RPC_MODERN "2026-07-28"
#define RPC_LEGACY_NEWEST "2025-11-25"

/* The error codes of JSON-RPC and of MCP that we answer. */
enum rpc_code {
	RPC_PARSE = -32700,
	RPC_INVALID_REQUEST = -32600,
	RPC_NO_METHOD = -32601,
	RPC_INVALID_PARAMS = -32602,
	RPC_INTERNAL = -32603,
	RPC_HEADER_DIFFERS = -32020,
	RPC_VERSION = -32022,
};

/* The headers that belong to a message, trimmed; NULL = not sent. */
struct rpc_head {
	const char *version, *method, *name;
};

enum rpc_kind {
	RPC_REQUEST,
	RPC_NOTIFICATION, /* or a posted response: nothing is answered */
};

/* Borrows from the body it was read from. */
struct rpc {
	enum rpc_kind kind;
	bool modern;
	const json_t *id; /* a text or a whole number; NULL = none, or unreadable */
	const char *method;
	const json_t *params; /* an object, or NULL */
};

struct rpc_fault {
	int status; /* of HTTP */
	enum rpc_code code;
	char message[200];
	const char *requested; /* the version asked for, of RPC_VERSION */
};

/* On failure `fault` is what to answer, and ret->id the id to echo. */
int rpc_read(const json_t *body, const struct rpc_head *head, struct rpc *ret,
	     struct rpc_fault *fault);

/* The version that `initialize` answers: the one asked for if we know it, else our newest. */
const char *rpc_negotiate(const char *requested);

/* The text of a parameter, or NULL. */
const char *rpc_param(const struct rpc *m, const char *name);

/* A whole error reply. `id` may be NULL: then the reply has none. */
void rpc_write_fault(struct buf *out, const json_t *id, const struct rpc_fault *fault);
int rpc_fault_set(struct rpc_fault *fault, int status, enum rpc_code code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The frame of a result; what stands between the two is its members. */
void rpc_begin_result(struct buf *out, const struct rpc *m);
void rpc_end_result(struct buf *out);

#endif
