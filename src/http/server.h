/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server: libmicrohttpd driven by libuv's loop, one thread.
 *
 * Start: server_start() with a listening socket. Each time libmicrohttpd's epoll descriptor is
 * readable the server is pumped: libmicrohttpd parses what came and hands over complete requests,
 * which are suspended, or held, and queued; a turn runs them; libmicrohttpd sends the answers.
 *
 * Shutdown, in three steps because libmicrohttpd must not be stopped while a connection is
 * suspended: server_quiesce() stops listening and wakes every request that waits; the loop runs
 * until server_is_idle(); server_stop() closes what is left.
 *
 * Slow, idle and surplus clients: http/connection.h.
 */
#ifndef LAPSE_HTTP_SERVER_H
#define LAPSE_HTTP_SERVER_H

#include <gnutls/abstract.h>
#include <microhttpd.h>
#include <uv.h>

#include "base/list.h"
#include "engine/engine.h"
#include "http/aside.h"
#include "http/connection.h"
#include "http/fairness.h"
#include "http/pace.h"
#include "http/route.h"
#include "http/transfer.h"

/* Beyond connections_max, so that a client too many gets 503 and not silence. */
#define SERVER_SPARE_CONNECTIONS 1024
#define STATUS_MAX 24 /* different statuses a route can have answered */

struct route_stats {
	struct {
		int status;
		int64_t count;
	} replies[STATUS_MAX];
	struct histogram seconds;
};

#define SERVER_MAGIC 0x4c535256u

struct server {
	uint32_t magic; /* from server_start() to server_stop() */
	struct engine *engine;
	uv_loop_t *loop;
	struct MHD_Daemon *mhd;
	uv_poll_t poll;
	uv_timer_t timer; /* libmicrohttpd's next timeout, late connections */
	uv_idle_t again;  /* active = pump once more in the loop's next turn */
	bool pumping, stopping, tls;
	/* Of libmicrohttpd's last run: held requests it asked about, and whether it did more. */
	int64_t asked;
	bool moved;
	lapse_us pumped; /* monotonic: when it was last pumped, exact enough for idle clients */
	int64_t second;  /* and by the wall clock, in seconds, for the Date of an answer */

	struct turn *turns; /* one per lane of the store */
	int turns_count;
	struct turn *syncing; /* it is committed and being synced; NULL = none */
	uv_async_t synced;

	struct fair_queue queue; /* requests for the next turn */
	struct aside aside;      /* requests that wait for a locked row */
	struct pace pace;        /* long bodies */
	struct connections connections;
	lapse_us last_turn; /* monotonic: when requests last used the store */
	int64_t busy;       /* requests complete and not answered to the end */

	struct transfers transfers;
	int64_t parsing; /* bodies that workers parse, or let go of */
	struct streams *streams;
	struct list spare; /* requests to be used again */
	int spare_count;

	/* CALL_OK_TEXT, shared by all who answer it within a second; NULL = not yet made. */
	struct MHD_Response *ok;
	int64_t ok_second; /* of its Date */

	struct histogram commit_batch;
	struct histogram loop_stall; /* how long the loop worked without looking for anything new */
	lapse_us loop_stall_max_us;
	struct route_stats stats[ROUTES_MAX + 1]; /* the last row: requests without a route */
};

struct server_config {
	struct engine *engine;
	uv_loop_t *loop;
	int fd;                                              /* listening; taken */
	gnutls_certificate_retrieve_function2 *tls_retrieve; /* NULL = no TLS */
	const char *tls_priorities;
};

int server_start(struct server *s, const struct server_config *config, struct problem *p);
void server_quiesce(struct server *s);
bool server_is_idle(const struct server *s);

/* Whether requests want the store now, or did a moment ago. One that only waits does not. */
bool server_is_crowded(const struct server *s);

void server_stop(struct server *s);

/* The loop has worked for so long before it looks for new events. */
void server_note_loop(struct server *s, lapse_us busy);

/* For http/turn.c and http/request.c. */
struct request;
struct turn;
void server_kick(struct server *s);
void server_pump(struct server *s);
void server_forget(struct request *r);    /* frees it: it was answered, or its client has left */
void server_suspend(struct request *r);   /* its body: no more of it, and no deadline, until */
void server_resume(struct request *r);    /* there is room again */
void server_progress(struct request *r);  /* its body comes on: the deadline begins anew */
void server_say_error(struct request *r); /* the error, to one that does not stop sending */
void server_count_reply(struct server *s, const struct request *r, int status);
void server_log_failed_turn(struct server *s, int err);
void server_write_metrics(const struct server *s, struct buf *out);

#endif
