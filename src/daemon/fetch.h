/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fetcher of provider/fetch.h that really talks: libcurl's multi interface, driven by the
 * daemon's loop.
 *
 * At most `connections_max` fetches are with libcurl; the others wait here, in order, and their
 * time runs while they wait. A fetch is never repeated behind the asker's back, except a GET or a
 * DELETE on a kept connection that turned out to be closed.
 *
 * Legal order: fetches_init, then start and cancel; fetches_stop (everything under way ends with
 * LAPSE_EUNAVAILABLE, and so does whatever is started afterwards, a moment later); fetches_close,
 * after which the loop must run once more.
 */
#ifndef LAPSE_DAEMON_FETCH_H
#define LAPSE_DAEMON_FETCH_H

#include <curl/curl.h>
#include <uv.h>

#include "base/err.h"
#include "base/list.h"
#include "daemon/sockets.h"
#include "provider/fetch.h"

#define FETCHES_WAITING_MAX 100000 /* each is a few hundred bytes; a sweep starts far fewer */

struct fetches {
	struct fetcher fetcher; /* what providers are given */
	const struct clock *clock;
	uv_loop_t *loop;
	CURLM *multi;
	struct sockets sockets; /* libcurl's */
	uv_timer_t timer;       /* libcurl's */
	uv_timer_t queue_timer; /* looks after those that wait */
	struct list running;    /* with libcurl */
	struct list waiting;    /* for a connection, in order */
	struct list refused;    /* over already; told from the loop, not from within start() */
	int64_t running_count, running_max;
	bool public_only; /* addresses of this machine and of private networks are refused */
	int64_t waiting_count;
	bool stopping;
};

int fetches_init(struct fetches *s, uv_loop_t *loop, const struct clock *clock,
		 int64_t connections_max, struct problem *p);
/* For targets that strangers choose: so many connections to one host at once, and, with
 * `public_only`, none to an address that is not public. The address is looked at when the
 * connection is made, whatever name it was found under. Before the first start. */
void fetches_restrict(struct fetches *s, int64_t per_host, bool public_only);
void fetches_stop(struct fetches *s);
void fetches_close(struct fetches *s);

#endif
