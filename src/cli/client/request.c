/* SPDX-License-Identifier: Apache-2.0 */
/* A request as text: its URL, its query, its headers. */
#include "cli/client/request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "cli/cli.h"

static void percent_encode(struct buf *out, const char *s)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    strchr("-._~", c))
			buf_putc(out, *s);
		else
			buf_printf(out, "%%%02X", c);
	}
}

void request_query(struct request *request, const char *name, const char *value)
{
	assert(!strchr(request->path, '?')); /* the query is built here alone */
	if (request->query.len > 0)
		buf_putc(&request->query, '&');
	percent_encode(&request->query, name);
	buf_putc(&request->query, '=');
	percent_encode(&request->query, value);
}

void request_query_int(struct request *request, const char *name, int64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)value);
	request_query(request, name, text);
}

void request_done(struct request *request)
{
	buf_done(&request->query);
}

enum outcome request_url(const struct cli *cli, const struct request *request, struct buf *out)
{
	size_t next = 0;

	buf_puts(out, cli->client.base);
	for (const char *c = request->path; *c; c++) {
		if (*c != '%') {
			buf_putc(out, *c);
			continue;
		}
		if (request->segments[next][0] == '\0')
			return cli_usage(cli, "a name must not be empty");
		assert(next < ARRAY_LEN(request->segments));
		percent_encode(out, request->segments[next++]);
	}
	if (request->query.len > 0)
		buf_printf(out, "?%s", buf_text(&request->query));
	return OUTCOME_OK;
}

static void add_header(struct curl_slist **headers, const char *name, const char *value)
{
	struct buf CLEANUP(buf_done) line = { 0 };

	buf_printf(&line, "%s:%s%s", name, value[0] ? " " : "", value);
	struct curl_slist *more = curl_slist_append(*headers, buf_text(&line));
	if (!more)
		abort();
	*headers = more;
}

static void add_key(struct curl_slist **headers, const char *own)
{
	char key[33];
	unsigned char random[16];

	random_bytes(random, sizeof(random));
	hex_encode(random, sizeof(random), key);
	add_header(headers, "Idempotency-Key", own ? own : key);
}

struct curl_slist *request_headers(const struct cli *cli, const struct request *request)
{
	struct curl_slist *headers = NULL;

	assert(!request->key || request->creates);
	add_header(&headers, "Accept", request->accept ? request->accept : "application/json");
	for (size_t i = 0; i < REQUEST_HEADERS_MAX && request->headers[i].name; i++)
		add_header(&headers, request->headers[i].name, request->headers[i].value);
	/* Before a long body it is worth to ask: the daemon may refuse it. */
	if (!request->source)
		add_header(&headers, "Expect", "");
	if (request->source && request->source->size < 0)
		add_header(&headers, "Transfer-Encoding", "chunked");
	add_header(&headers, "Content-Type",
		   request->body     ? "application/json"
		   : request->source ? "application/octet-stream"
				     : "");
	if (cli->client.token) {
		struct buf CLEANUP(buf_done) value = { 0 };
		buf_printf(&value, "Bearer %s", cli->client.token);
		add_header(&headers, "Authorization", buf_text(&value));
	}
	if (args_has(&cli->args, OPT_OWNER))
		add_header(&headers, "X-Lapse-Owner", cli->args.text[OPT_OWNER]);
	if (request->creates)
		add_key(&headers, request->key);
	return headers;
}
