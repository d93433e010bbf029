/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine needs to know of a protocol: how to write a request and how to find the end of
 * its reply. Three rows, http.c, resp.c and amqp.c; the engine treats all alike, so both peers of a
 * comparison pay for the same client.
 */
#ifndef BENCH_PROTOCOL_H
#define BENCH_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bytes.h"
#include "template.h"

#define REQUEST_ARGS_MAX 32
#define REQUEST_HEADERS_MAX 8
/* A longer line of a reply is cut: nothing we look for is beyond it. */
#define REPLY_LINE_MAX 256
/* Larger replies, lines and nesting than these are a broken server, not a benchmark. */
#define REPLY_BYTES_MAX ((uint64_t)64 << 20)

/* What to send, as templates. HTTP uses the first group, RESP the second, AMQP path and body. */
struct request {
	const char *method;
	const char *host;
	const char *headers[REQUEST_HEADERS_MAX];
	size_t header_count;
	struct template path; /* AMQP: the name of the queue */
	struct template body;
	bool has_body;
	const char *type; /* of the body */

	struct template args[REQUEST_ARGS_MAX];
	size_t arg_count;

	struct bytes scratch; /* one rendered body or argument, to know its length */
};

enum reply_state {
	REPLY_MORE,   /* the reply goes on */
	REPLY_OK,     /* complete: 2xx, not a RESP error, or an AMQP ack */
	REPLY_ERROR,  /* complete: any other status, a RESP error, an AMQP nack or return */
	REPLY_BROKEN, /* not this protocol; the connection is useless */
};

/* Where a parser stands inside a reply. Zeroed before each one, but for `turn`. */
struct parser {
	uint64_t turn;  /* the request's place on its connection, from 1 */
	uint64_t bytes; /* of the reply so far */
	uint64_t skip;  /* of a body still to come */
	char line[REPLY_LINE_MAX];
	size_t line_len;
	unsigned stage; /* a private enum of the protocol */
	bool failed;    /* an error status, a RESP error somewhere inside, an AMQP return */

	unsigned status; /* HTTP */
	bool chunked;
	bool has_length;
	uint64_t length;

	uint64_t pending; /* RESP: elements still to come */
};

struct protocol {
	const char *name;
	void (*render)(struct request *request, const struct numbers *from, struct draw draw,
		       struct bytes *out);
	/* Reads one line or one piece of a body from the front of `data`. */
	enum reply_state (*step)(struct parser *p, const char *data, size_t len, size_t *ret_used);
	/* NULL, or what is said on a new connection before its first request. Blocks. */
	void (*greet)(int fd);
};

/* Feeds bytes to the parser. Says in ret_used how many it took: less than `len` only when the reply
 * has ended. */
enum reply_state protocol_feed(const struct protocol *protocol, struct parser *p, const char *data,
			       size_t len, size_t *ret_used);

extern const struct protocol protocol_http;
extern const struct protocol protocol_resp;
extern const struct protocol protocol_amqp;

/* For the parsers of text: gathers bytes until a newline; true when p->line holds a whole line,
 * ended with a zero and without its line end. The caller sets line_len to 0 when it is done with
 * it. */
bool parser_line(struct parser *p, const char *data, size_t len, size_t *ret_used);
/* Passes over at most p->skip bytes. */
size_t parser_skip(struct parser *p, size_t len);

#endif
