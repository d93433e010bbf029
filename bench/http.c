/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 with keep-alive, as much as a load needs: requests with Content-Length, replies with
 * Content-Length or chunks. A reply that ends with the connection is refused as broken.
 */
#include "protocol.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum http_stage {
	HTTP_STATUS_LINE,
	HTTP_HEADER,
	HTTP_BODY,
	HTTP_CHUNK_SIZE,
	HTTP_CHUNK_DATA,
	HTTP_TRAILER,
};

static void http_render(struct request *r, const struct numbers *from, struct draw draw,
			struct bytes *out)
{
	bytes_puts(out, r->method);
	bytes_put(out, " ", 1);
	template_put(&r->path, from, draw, out);
	bytes_puts(out, " HTTP/1.1\r\nHost: ");
	bytes_puts(out, r->host);
	for (size_t i = 0; i < r->header_count; i++) {
		bytes_put(out, "\r\n", 2);
		bytes_puts(out, r->headers[i]);
	}
	if (r->has_body) {
		bytes_reset(&r->scratch);
		template_put(&r->body, from, draw, &r->scratch);
		bytes_puts(out, "\r\nContent-Type: ");
		bytes_puts(out, r->type);
		bytes_puts(out, "\r\nContent-Length: ");
		bytes_put_number(out, r->scratch.len, 0);
	}
	bytes_put(out, "\r\n\r\n", 4);
	if (r->has_body)
		bytes_put(out, r->scratch.data, r->scratch.len);
}

static enum reply_state http_end(const struct parser *p)
{
	return p->failed ? REPLY_ERROR : REPLY_OK;
}

static enum reply_state status_line(struct parser *p)
{
	if (strncmp(p->line, "HTTP/1.", 7) != 0 || p->line_len < 12)
		return REPLY_BROKEN;
	p->status = (unsigned)strtoul(p->line + 9, NULL, 10);
	p->failed = p->status < 200 || p->status > 299;
	p->stage = HTTP_HEADER;
	return REPLY_MORE;
}

static bool header_is(const struct parser *p, const char *name, const char **ret_value)
{
	const size_t len = strlen(name);

	if (p->line_len <= len || p->line[len] != ':' || strncasecmp(p->line, name, len) != 0)
		return false;
	*ret_value = p->line + len + 1 + strspn(p->line + len + 1, " \t");
	return true;
}

/* An empty line ended the headers: what comes next? */
static enum reply_state headers_end(struct parser *p)
{
	if (p->status < 200) { /* 100 Continue and its like: the real answer follows */
		*p = (struct parser){ .bytes = p->bytes, .turn = p->turn };
		return REPLY_MORE;
	}
	if (p->status == 204 || p->status == 304)
		return http_end(p);
	if (p->chunked) {
		p->stage = HTTP_CHUNK_SIZE;
		return REPLY_MORE;
	}
	if (!p->has_length || p->length > REPLY_BYTES_MAX)
		return REPLY_BROKEN;
	p->stage = HTTP_BODY;
	p->skip = p->length;
	return p->skip ? REPLY_MORE : http_end(p);
}

static enum reply_state header_line(struct parser *p)
{
	const char *value;

	if (p->line_len == 0)
		return headers_end(p);
	if (header_is(p, "Content-Length", &value)) {
		p->has_length = true;
		p->length = strtoull(value, NULL, 10);
	} else if (header_is(p, "Transfer-Encoding", &value)) {
		p->chunked = strcasecmp(value, "chunked") == 0;
	}
	return REPLY_MORE;
}

static enum reply_state chunk_size_line(struct parser *p)
{
	char *end;
	const uint64_t size = strtoull(p->line, &end, 16);

	if (end == p->line || size > REPLY_BYTES_MAX)
		return REPLY_BROKEN;
	p->stage = size ? HTTP_CHUNK_DATA : HTTP_TRAILER;
	p->skip = size ? size + 2 : 0; /* with the line end behind it */
	return REPLY_MORE;
}

static enum reply_state trailer_line(struct parser *p)
{
	return p->line_len ? REPLY_MORE : http_end(p);
}

/* What a complete line means in each stage that reads lines. */
static enum reply_state (*const ON_LINE[])(struct parser *) = {
	[HTTP_STATUS_LINE] = status_line,
	[HTTP_HEADER] = header_line,
	[HTTP_CHUNK_SIZE] = chunk_size_line,
	[HTTP_TRAILER] = trailer_line,
};

/* One step: a line or a piece of a body. */
static enum reply_state http_step(struct parser *p, const char *data, size_t len, size_t *ret_used)
{
	if (p->stage == HTTP_BODY || p->stage == HTTP_CHUNK_DATA) {
		*ret_used = parser_skip(p, len);
		if (p->skip > 0)
			return REPLY_MORE;
		if (p->stage == HTTP_BODY)
			return http_end(p);
		p->stage = HTTP_CHUNK_SIZE;
		return REPLY_MORE;
	}
	if (!parser_line(p, data, len, ret_used))
		return REPLY_MORE;
	const enum reply_state state = ON_LINE[p->stage](p);
	p->line_len = 0;
	return state;
}

const struct protocol protocol_http = { "http", http_render, http_step, NULL };
