/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/rpc.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"

#define META_VERSION "io.modelcontextprotocol/protocolVersion"
#define META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"

static const char *const LEGACY[] = { RPC_LEGACY_NEWEST, "2025-06-18", "2025-03-26", "2024-11-05" };

static bool is_legacy_version(const char *version)
{
	for (size_t i = 0; i < ARRAY_LEN(LEGACY); i++)
		if (strcmp(LEGACY[i], version) == 0)
			return true;
	return false;
}

const char *rpc_negotiate(const char *requested)
{
	return requested && is_legacy_version(requested) ? requested : RPC_LEGACY_NEWEST;
}

const char *rpc_param(const struct rpc *m, const char *name)
{
	return json_string_value(json_object_get(m->params, name));
}

int rpc_fault_set(struct rpc_fault *fault, int status, enum rpc_code code, const char *format, ...)
{
	va_list args;

	assert(status >= 200 && status < 600);
	*fault = (struct rpc_fault){ .status = status, .code = code };
	va_start(args, format);
	vsnprintf(fault->message, sizeof(fault->message), format, args);
	va_end(args);
	utf8_repair(
		fault->message); /* a header is no UTF-8, or a name was cut within a character */
	return LAPSE_EINVAL;
}

/* What every message must be, in either era. */
static int read_shape(const json_t *body, struct rpc *ret, struct rpc_fault *fault)
{
	const json_t *id = json_object_get(body, "id");
	const json_t *method = json_object_get(body, "method");
	const json_t *params = json_object_get(body, "params");
	const char *version = json_string_value(json_object_get(body, "jsonrpc"));

	if (json_is_string(id) || json_is_integer(id))
		ret->id = id;
	else if (id)
		return rpc_fault_set(fault, 400, RPC_INVALID_REQUEST,
				     "id must be a text or a whole number");
	if (!version || strcmp(version, "2.0") != 0)
		return rpc_fault_set(fault, 400, RPC_INVALID_REQUEST, "jsonrpc must be \"2.0\"");
	if (!method && id && (json_object_get(body, "result") || json_object_get(body, "error"))) {
		ret->kind = RPC_NOTIFICATION; /* an answer to a question we never ask */
		ret->method = "";
		return LAPSE_OK;
	}
	if (!json_is_string(method))
		return rpc_fault_set(fault, 400, RPC_INVALID_REQUEST, "method must be a text");
	if (params && !json_is_object(params))
		return rpc_fault_set(fault, 400, RPC_INVALID_REQUEST, "params must be an object");
	ret->kind = id ? RPC_REQUEST : RPC_NOTIFICATION;
	ret->method = json_string_value(method);
	ret->params = params;
	return LAPSE_OK;
}

static int check_legacy(const struct rpc *m, const struct rpc_head *head, struct rpc_fault *fault)
{
	bool opens = strcmp(m->method, "initialize") == 0;

	if (!head->version)
		return LAPSE_OK;
	if (strcmp(head->version, RPC_MODERN) >= 0)
		return opens ? rpc_fault_set(fault, 400, RPC_HEADER_DIFFERS,
					     "MCP-Protocol-Version %.40s has no initialize",
					     head->version)
			     : rpc_fault_set(fault, 400, RPC_INVALID_PARAMS,
					     "params._meta must hold " META_VERSION);
	if (!opens && !is_legacy_version(head->version))
		return rpc_fault_set(fault, 400, RPC_INVALID_REQUEST,
				     "MCP-Protocol-Version %.40s is not known", head->version);
	return LAPSE_OK;
}

/* A header may carry UTF-8 as =?base64?…?=. A fresh text; NULL = it is not properly encoded. */
static char *decode_header_name(const char *value)
{
	static const char opening[] = "=?base64?", closing[] = "?=";
	size_t n = strlen(value), edges = sizeof(opening) - 1 + sizeof(closing) - 1;

	if (n < edges || strncmp(value, opening, sizeof(opening) - 1) != 0 ||
	    strcmp(value + n - (sizeof(closing) - 1), closing) != 0)
		return mem_strdup(value);
	const char *packed = value + sizeof(opening) - 1;
	size_t length = n - edges;
	if (length % 4 != 0 || length > 4096)
		return NULL;
	char *out = mem_zalloc(length / 4 * 3 + 1, 1);
	int got = EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)packed, (int)length);
	if (got < 0) {
		free(out);
		return NULL;
	}
	return out; /* padding became NUL, which ends the text */
}

static int check_name(const struct rpc *m, const struct rpc_head *head, struct rpc_fault *fault)
{
	const char *wanted = rpc_param(m, "name");

	if (strcmp(m->method, "tools/call") != 0 || !wanted)
		return LAPSE_OK;
	char *CLEANUP(mem_freep) given = head->name ? decode_header_name(head->name) : NULL;
	if (!given || strcmp(given, wanted) != 0)
		return rpc_fault_set(fault, 400, RPC_HEADER_DIFFERS,
				     "Mcp-Name must be there and equal params.name");
	return LAPSE_OK;
}

static int check_modern(const struct rpc *m, const struct rpc_head *head, struct rpc_fault *fault)
{
	assert(m->modern && m->method);
	const json_t *meta = json_object_get(m->params, "_meta");
	const char *version = json_string_value(json_object_get(meta, META_VERSION));

	if (m->kind == RPC_NOTIFICATION)
		return LAPSE_OK;
	if (!version || !json_is_object(json_object_get(meta, META_CAPABILITIES)))
		return rpc_fault_set(fault, 400, RPC_INVALID_PARAMS,
				     "params._meta must hold " META_VERSION
				     " and " META_CAPABILITIES);
	if (head->version && strcmp(head->version, version) != 0)
		return rpc_fault_set(fault, 400, RPC_HEADER_DIFFERS,
				     "MCP-Protocol-Version differs from params._meta");
	if (strcmp(version, RPC_MODERN) != 0) {
		rpc_fault_set(fault, 400, RPC_VERSION, "Unsupported protocol version");
		fault->requested = version;
		return LAPSE_EINVAL;
	}
	if (!head->version)
		return rpc_fault_set(fault, 400, RPC_HEADER_DIFFERS,
				     "MCP-Protocol-Version is missing");
	if (!head->method || strcmp(head->method, m->method) != 0)
		return rpc_fault_set(fault, 400, RPC_HEADER_DIFFERS,
				     "Mcp-Method must be there and equal method");
	return check_name(m, head, fault);
}

int rpc_read(const json_t *body, const struct rpc_head *head, struct rpc *ret,
	     struct rpc_fault *fault)
{
	*ret = (struct rpc){ 0 };
	int r = read_shape(body, ret, fault);
	if (r < 0)
		return r;
	const json_t *meta = json_object_get(ret->params, "_meta");
	ret->modern = json_object_get(meta, META_VERSION) != NULL;
	return ret->modern ? check_modern(ret, head, fault) : check_legacy(ret, head, fault);
}

static void write_id(struct buf *out, const json_t *id)
{
	if (!id)
		return;
	assert(json_is_string(id) || json_is_integer(id));
	if (json_is_string(id))
		json_put_text(out, "id", json_string_value(id));
	else
		json_put_int(out, "id", json_integer_value(id));
}

void rpc_write_fault(struct buf *out, const json_t *id, const struct rpc_fault *fault)
{
	assert(fault->status != 0 && (fault->code != RPC_VERSION || fault->requested));
	json_begin(out, '{');
	json_put_text(out, "jsonrpc", "2.0");
	write_id(out, id);
	json_key(out, "error");
	json_begin(out, '{');
	json_put_int(out, "code", fault->code);
	json_put_text(out, "message", fault->message);
	if (fault->code == RPC_VERSION) {
		json_key(out, "data");
		json_begin(out, '{');
		json_put_raw(out, "supported", "[\"" RPC_MODERN "\"]");
		json_put_text(out, "requested", fault->requested);
		json_end(out, '}');
	}
	json_end(out, '}');
	json_end(out, '}');
}

void rpc_begin_result(struct buf *out, const struct rpc *m)
{
	assert(m->kind == RPC_REQUEST && m->id);
	json_begin(out, '{');
	json_put_text(out, "jsonrpc", "2.0");
	write_id(out, m->id);
	json_key(out, "result");
	json_begin(out, '{');
	if (m->modern)
		json_put_text(out, "resultType", "complete");
}

void rpc_end_result(struct buf *out)
{
	json_end(out, '}');
	json_end(out, '}');
}
