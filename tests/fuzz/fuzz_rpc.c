/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message for /mcp. The first line of the input is the three headers, separated by tabs; the rest
 * is the body. What is refused has an error that can be sent; what is taken has what its kind
 * needs.
 */
#include <assert.h>
#include <string.h>

#include "fuzz.h"
#include "mcp/rpc.h"

#define INPUT_MAX 8192

static void check_read(const struct rpc *m, const json_t *body)
{
	struct buf out = { 0 };

	assert(json_is_object(body));
	if (m->kind == RPC_REQUEST) {
		assert(m->method && (json_is_string(m->id) || json_is_integer(m->id)));
		assert(!m->params || json_is_object(m->params));
		rpc_begin_result(&out, m);
		rpc_end_result(&out);
		json_t *answer = json_loads(buf_text(&out), 0, NULL);
		assert(answer && json_equal(json_object_get(answer, "id"), m->id));
		json_decref(answer);
	}
	buf_done(&out);
}

static void check_fault(const struct rpc *m, const struct rpc_fault *fault)
{
	struct buf out = { 0 };

	assert(fault->status >= 200 && fault->status < 500 && fault->message[0]);
	rpc_write_fault(&out, m->id, fault);
	json_t *answer = json_loads(buf_text(&out), 0, NULL);
	assert(answer &&
	       json_is_integer(json_object_get(json_object_get(answer, "error"), "code")));
	json_decref(answer);
	buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[INPUT_MAX + 1];
	struct rpc_head head = { 0 };
	struct rpc m = { 0 };
	struct rpc_fault fault = { 0 };

	if (size > INPUT_MAX || memchr(data, '\0', size))
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	char *rest = text, *line = strsep(&rest, "\n");
	if (!rest)
		return 0;
	head.version = strsep(&line, "\t");
	head.method = strsep(&line, "\t");
	head.name = strsep(&line, "\t");
	json_t *body = json_loads(rest, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(body)) {
		if (rpc_read(body, &head, &m, &fault) == LAPSE_OK)
			check_read(&m, body);
		else
			check_fault(&m, &fault);
	}
	json_decref(body);
	return 0;
}
