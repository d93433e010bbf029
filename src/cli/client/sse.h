/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events, as bytes that come in pieces of any size: text/event-stream of the HTML
 * standard. Pure: no I/O, no clock.
 *
 *	struct sse CLEANUP(sse_done) sse = { .take = print, .arg = out };
 *	while (… bytes come …)
 *		if (!sse_feed(&sse, bytes, n))
 *			break; // `take` has had enough, or the event is larger than SSE_MAX_BYTES
 *
 * What is not finished when the stream ends is not an event. For the next connection call
 * sse_reset(), which keeps the id to resume after.
 */
#ifndef LAPSE_CLI_SSE_H
#define LAPSE_CLI_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define SSE_MAX_BYTES (16u << 20) /* a line or an event; no event of a daemon comes near it */

/* Borrowed, for the time of the call. */
struct sse_event {
	const char *id;   /* the last one that was given, maybe by an earlier event; "" for none */
	const char *kind; /* "message" where the stream names none */
	const char *data; /* lines joined by \n */
	size_t data_len;
};

/* A zeroed struct with `take` set is ready for the first byte. */
struct sse {
	bool (*take)(void *arg, const struct sse_event *event); /* false ends the feeding */
	bool (*comment)(void *arg, const char *text); /* the same for a comment; may be NULL */
	void *arg;

	struct buf line;    /* what came of the line so far */
	struct buf data;    /* of the event so far */
	struct buf kind;    /* of the event so far; empty for the usual one */
	struct buf next_id; /* of the event so far */
	struct buf last_id; /* to resume after */
	bool after_cr;      /* a \n now belongs to the \r before it */
	bool after_start;   /* a byte order mark is over */
	bool has_data;
	int64_t retry_ms; /* what the stream asks for before another try; 0 for nothing */
};

bool sse_feed(struct sse *s, const char *bytes, size_t n);
void sse_reset(struct sse *s);
void sse_done(struct sse *s);

#endif
