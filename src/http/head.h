/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a request: every header the server looks at, found in one walk over them all.
 *
 * libmicrohttpd keeps headers in a list and walks it for each lookup; with ten names to look for,
 * that was a sixth of the time of a heartbeat. A header that only one route asks for is better
 * looked up there.
 */
#ifndef LAPSE_HTTP_HEAD_H
#define LAPSE_HTTP_HEAD_H

#include <microhttpd.h>
#include <stdbool.h>

/* Values are libmicrohttpd's and live as long as the request; the first counts where there are
 * many, NULL = it is not there. */
struct head {
	const char *accept, *authorization, *content_length, *content_type, *fetch_site, *host;
	const char *idempotency_key, *if_match, *origin, *owner;
	int framings; /* Content-Length and Transfer-Encoding, together */
	int hosts;
	bool forwarded; /* any Forwarded or X-Forwarded-… */
	bool has_query;
};

void head_read(struct MHD_Connection *mhd, struct head *ret);

#endif
