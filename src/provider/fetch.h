/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP exchange with a server outside, as a provider sees it. The daemon brings the one that
 * really talks (libcurl's multi interface in its loop, daemon/fetch.c); tests bring their own.
 *
 * A fetch belongs to its asker until done(). The fetcher follows no redirect, keeps credentials
 * out of logs and errors, checks certificates, and ends in time whatever the server does.
 */
#ifndef LAPSE_PROVIDER_FETCH_H
#define LAPSE_PROVIDER_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"

struct fetch {
	/* The question; borrowed until done(). */
	const char *method;         /* "GET", "POST", "DELETE" */
	const char *url;            /* whole */
	const char *authorization;  /* value of the header; NULL = none */
	const char *authorities;    /* PEM: the only authorities to trust; NULL = the system's */
	const char *const *headers; /* further lines, "Name: value", Content-Type among them; ends
				     * with NULL; NULL = none */
	const char *body;           /* JSON, unless `headers` says otherwise; NULL = none */
	size_t body_len;
	lapse_ms timeout_ms;
	size_t answer_max_bytes; /* a longer answer is LAPSE_EUPSTREAM */

	/* The answer. LAPSE_OK = the server answered, with whatever status; LAPSE_ETIMEOUT = not in
	 * time; LAPSE_EUPSTREAM with `why` = it could not be reached, broke off, or talked too
	 * much. */
	int err;
	bool sent;      /* the question may have reached the server: it may have been acted upon */
	bool untrusted; /* its certificate was refused, for the reason `why`: it was told nothing */
	int status;
	struct buf answer;   /* the asker frees it with buf_done() */
	char location[1024]; /* of a redirect, as a whole URL; empty otherwise */
	char why[128];

	void (*done)(struct fetch *f); /* once, on the loop's thread, never from within start() */
	void *arg;
	void *state; /* the fetcher's own */
};

struct fetcher {
	void (*start)(struct fetcher *fetcher, struct fetch *f);
	/* The fetch is over at once with LAPSE_EUNAVAILABLE: done() runs before it returns. */
	void (*cancel)(struct fetcher *fetcher, struct fetch *f);
};

#endif
