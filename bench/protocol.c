/* SPDX-License-Identifier: Apache-2.0 */
/* What the reply parsers share; see protocol.h. */
#include "protocol.h"

#include <string.h>

enum reply_state protocol_feed(const struct protocol *protocol, struct parser *p, const char *data,
			       size_t len, size_t *ret_used)
{
	enum reply_state state = REPLY_MORE;
	size_t at = 0, used;

	while (state == REPLY_MORE && at < len) {
		state = protocol->step(p, data + at, len - at, &used);
		at += used;
		p->bytes += used;
		if (p->bytes > REPLY_BYTES_MAX)
			state = REPLY_BROKEN;
	}
	*ret_used = at;
	return state;
}

bool parser_line(struct parser *p, const char *data, size_t len, size_t *ret_used)
{
	const char *newline = memchr(data, '\n', len);
	const size_t taken = newline ? (size_t)(newline - data) + 1 : len;
	const size_t room = sizeof(p->line) - 1 - p->line_len;
	const size_t kept = taken < room ? taken : room;

	memcpy(p->line + p->line_len, data, kept);
	p->line_len += kept;
	*ret_used = taken;
	if (!newline)
		return false;
	while (p->line_len > 0 && strchr("\r\n", p->line[p->line_len - 1]))
		p->line_len--;
	p->line[p->line_len] = '\0';
	return true;
}

size_t parser_skip(struct parser *p, size_t len)
{
	const size_t taken = p->skip < len ? (size_t)p->skip : len;

	p->skip -= taken;
	return taken;
}
