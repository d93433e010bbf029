/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request, as data. Commands fill one in and give it to client_call() or client_list().
 */
#ifndef LAPSE_CLI_REQUEST_H
#define LAPSE_CLI_REQUEST_H

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/outcome.h"

#define REQUEST_HEADERS_MAX 3
#define WAIT_STEP_MS 25000   /* a long poll; longer waits are several of them */
#define WAIT_MARGIN_MS 30000 /* what an answer may take beyond the wait */

/* What a long answer is given to as it comes. All return false to end it. */
struct stream {
	/* Before the first byte, with 200 or 206 and the value of Content-Range; may be NULL. */
	bool (*begin)(void *arg, long status, const char *range);
	bool (*take)(void *arg, const char *bytes, size_t n);
	bool (*tick)(void *arg); /* when it opens, and about every second */
	void *arg;
};

#define SOURCE_FAILED ((size_t)-1)

/* Where a long body comes from while it is sent. */
struct source {
	/* 0 bytes at the end; SOURCE_FAILED when it cannot go on, and has said why. */
	size_t (*give)(void *arg, char *room, size_t n);
	bool (*rewind)(void *arg);             /* to its beginning; false: it cannot */
	void (*tick)(void *arg, int64_t sent); /* often, and about every second */
	void *arg;
	int64_t size; /* -1: only the end tells */
};

struct request {
	const char *method;
	const char *path;            /* each % is the next of `segments`, percent-encoded */
	const char *segments[3];     /* an empty one is refused */
	struct buf query;            /* from request_query(); the caller's to release */
	const json_t *body;          /* NULL for none */
	const struct source *source; /* a body of any type instead; NULL for none */
	const char *accept;          /* type of the answer; NULL for JSON, which is parsed */
	struct {
		const char *name, *value;
	} headers[REQUEST_HEADERS_MAX]; /* further ones, up to the first without a name */
	bool creates;                   /* a POST that carries an Idempotency-Key */
	const char *key;                /* that key; NULL: a random one */
	bool repeatable;                /* a POST that may as well come twice */
	bool any_status;                /* an error status is an answer like any other */
	const struct stream *stream;    /* gets an answer of type `accept`; NULL: it is gathered */
	lapse_ms timeout_ms; /* of all, or of silence with `stream` or `source`; 0: usual */
};

/* Appends name=value, both percent-encoded. */
void request_query(struct request *request, const char *name, const char *value);
void request_query_int(struct request *request, const char *name, int64_t value);

/* Releases the query; not the body, which is borrowed. */
void request_done(struct request *request);

struct cli;

/* For the client: where it goes, and the headers, which are the caller's to free. */
enum outcome request_url(const struct cli *cli, const struct request *request, struct buf *out);
struct curl_slist *request_headers(const struct cli *cli, const struct request *request);

#endif
