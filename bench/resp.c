/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESP2, the protocol of Redis: a command as an array of bulk strings, a reply of any type. Nested
 * arrays need no stack: `pending` counts the elements still to come, and an array adds its own.
 */
#include "protocol.h"

#include <stdlib.h>

#define RESP_ELEMENTS_MAX 1000000

enum resp_stage { RESP_LINE, RESP_BULK };

static void put_header(struct bytes *out, char kind, size_t number)
{
	bytes_put(out, &kind, 1);
	bytes_put_number(out, number, 0);
	bytes_put(out, "\r\n", 2);
}

static void resp_render(struct request *r, const struct numbers *from, struct draw draw,
			struct bytes *out)
{
	put_header(out, '*', r->arg_count);
	for (size_t i = 0; i < r->arg_count; i++) {
		bytes_reset(&r->scratch);
		template_put(&r->args[i], from, draw, &r->scratch);
		put_header(out, '$', r->scratch.len);
		bytes_put(out, r->scratch.data, r->scratch.len);
		bytes_put(out, "\r\n", 2);
	}
}

/* The first line of an element; its number is a length or a count where there is one. */
static enum reply_state resp_element(struct parser *p)
{
	const long long number = strtoll(p->line + 1, NULL, 10);

	p->pending--;
	switch (p->line[0]) {
	case '+':
	case ':':
		return REPLY_MORE;
	case '-':
		p->failed = true;
		return REPLY_MORE;
	case '$':
		if (number > (long long)REPLY_BYTES_MAX)
			return REPLY_BROKEN;
		if (number >= 0) { /* -1 is null */
			p->skip = (uint64_t)number + 2;
			p->stage = RESP_BULK;
		}
		return REPLY_MORE;
	case '*':
		if (number > RESP_ELEMENTS_MAX)
			return REPLY_BROKEN;
		p->pending += number > 0 ? (uint64_t)number : 0;
		return REPLY_MORE;
	default:
		return REPLY_BROKEN;
	}
}

static enum reply_state resp_step(struct parser *p, const char *data, size_t len, size_t *ret_used)
{
	if (p->bytes == 0)
		p->pending = 1;
	if (p->stage == RESP_BULK) {
		*ret_used = parser_skip(p, len);
		if (p->skip > 0)
			return REPLY_MORE;
		p->stage = RESP_LINE;
	} else {
		if (!parser_line(p, data, len, ret_used))
			return REPLY_MORE;
		p->line_len = 0;
		if (resp_element(p) == REPLY_BROKEN)
			return REPLY_BROKEN;
	}
	if (p->pending > 0 || p->stage == RESP_BULK)
		return REPLY_MORE;
	return p->failed ? REPLY_ERROR : REPLY_OK;
}

const struct protocol protocol_resp = { "resp", resp_render, resp_step, NULL };
