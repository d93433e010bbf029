/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the daemon, one at a time over one connection.
 *
 *	struct request request = { .method = "GET", .path = "/v1/agents/%", .segments = { agent } };
 *	struct answer CLEANUP(answer_done) answer = { 0 };
 *	enum outcome r = client_call(cli, &request, &answer);
 *	if (r != OUTCOME_OK)
 *		return r; // the reason is already printed
 *
 * The connection opens with the first request. Where repeating is harmless (GET, PUT, and POSTs
 * that create, which carry an Idempotency-Key) a connection that broke is tried once more.
 *
 * A request with `stream` gives the body to its functions as it comes and returns when the daemon
 * or one of them ends it; it is never repeated.
 */
#ifndef LAPSE_CLI_CLIENT_H
#define LAPSE_CLI_CLIENT_H

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/outcome.h"

struct client {
	CURL *curl;         /* NULL until the first call */
	const char *url;    /* as the user wrote it, for messages */
	const char *base;   /* what paths are appended to */
	const char *socket; /* path of the Unix socket; NULL over TCP */
	char *token;        /* owned; NULL without one */
	char reason[CURL_ERROR_SIZE];
};

/* What an endless answer is given to. Both return false to end it. */
struct stream {
	bool (*take)(void *arg, const char *bytes, size_t n);
	bool (*tick)(void *arg); /* when it opens, and about every second */
	void *arg;
	const char *last_event_id; /* to resume after; NULL for none */
};

struct request {
	const char *method;
	const char *path;            /* each % is the next of `segments`, percent-encoded */
	const char *segments[3];     /* an empty one is refused */
	struct buf query;            /* from request_query(); the caller's to release */
	const json_t *body;          /* NULL for none */
	bool creates;                /* a POST that carries an Idempotency-Key */
	bool repeatable;             /* a POST that may as well come twice */
	bool any_status;             /* an error status is an answer like any other */
	bool plain;                  /* the answer is text, not JSON */
	const struct stream *stream; /* the answer is a stream of events; NULL: it is not */
	lapse_ms timeout_ms;         /* 0 for the usual one */
};

struct answer {
	long status;
	struct buf text; /* as it came; what --json prints */
	json_t *json;
};

struct cli;

enum outcome client_call(struct cli *cli, const struct request *request, struct answer *ret);

/* Prints what the daemon says about a request it did not do. */
enum outcome client_refused(const struct cli *cli, const struct answer *answer);

/* Calls a list page by page, up to --limit. The answer is one list with all rows; its pagination
 * is that of the last page. */
enum outcome client_list(struct cli *cli, const struct request *request, struct answer *ret);

/* Appends name=value, both percent-encoded. */
void request_query(struct request *request, const char *name, const char *value);
void request_query_int(struct request *request, const char *name, int64_t value);

void request_done(
	struct request *request); /* releases the query; not the body, which is borrowed */
void answer_done(struct answer *answer);
void client_done(struct client *client);

#endif
