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

/* What a long answer is given to as it comes. Both return false to end it. */
struct stream {
	bool (*take)(void *arg, const char *bytes, size_t n);
	bool (*tick)(void *arg); /* when it opens, and about every second */
	void *arg;
};

struct request {
	const char *method;
	const char *path;        /* each % is the next of `segments`, percent-encoded */
	const char *segments[3]; /* an empty one is refused */
	struct buf query;        /* from request_query(); the caller's to release */
	const json_t *body;      /* NULL for none */
	const char *accept;      /* type of the answer; NULL for JSON, which is parsed */
	struct {
		const char *name, *value;
	} headers[REQUEST_HEADERS_MAX]; /* further ones, up to the first without a name */
	bool creates;                   /* a POST that carries an Idempotency-Key */
	bool repeatable;                /* a POST that may as well come twice */
	bool any_status;                /* an error status is an answer like any other */
	const struct stream *stream;    /* what gets an answer of type `accept`; NULL: gathered */
	lapse_ms timeout_ms;            /* of the whole; with `stream` of silence. 0: usual */
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
