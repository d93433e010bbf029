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
 * or one of them ends it; it is never repeated. One with `source` takes the body from it as it is
 * sent, and waits for the daemon's consent before a long one. Neither has a limit of time as a
 *whole; what ends them is silence.
 */
#ifndef LAPSE_CLI_CLIENT_H
#define LAPSE_CLI_CLIENT_H

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/client/request.h"
#include "cli/outcome.h"

struct client {
	CURL *curl;         /* NULL until the first call */
	const char *url;    /* as the user wrote it, for messages */
	const char *base;   /* what paths are appended to */
	const char *socket; /* path of the Unix socket; NULL over TCP */
	char *token;        /* owned; NULL without one */
	char reason[CURL_ERROR_SIZE];
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

/* Gives a list's pages to `take`, which may keep what it takes out of the answer and returns false
 * to end; at most `limit` rows. */
typedef bool client_page(void *arg, struct answer *page);
enum outcome client_pages(struct cli *cli, const struct request *request, size_t limit,
			  client_page *take, void *arg);

/* Calls a list page by page, up to --limit. The answer is one list with all rows; its pagination
 * is that of the last page. */
enum outcome client_list(struct cli *cli, const struct request *request, struct answer *ret);

void answer_done(struct answer *answer);
void client_done(struct client *client);

#endif
