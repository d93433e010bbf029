/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long bodies, fair to everybody else. libmicrohttpd reads from every connection that has something
 * before it returns. Hundreds of clients that send without a pause would so keep the loop busy for
 * many milliseconds at a time, and take the processor from everything else.
 *
 * A round is one run of libmicrohttpd. It has PACE_PLACES places; a body that goes on takes one of
 * them. When all are taken the connection is suspended, and gets a place in one of the next rounds,
 * in the order of waiting. The first part of a body needs no place: most bodies have no other.
 *
 * While any wait, new places come only after a pause that is PACE_PAUSES times as long as the round
 * that used the last ones. So long bodies together get a share of the loop's time, and senders that
 * are faster wait. As many senders as there are places never wait.
 *
 * One thread, the loop's. A connection that waits keeps its deadline.
 */
#ifndef LAPSE_HTTP_PACE_H
#define LAPSE_HTTP_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"

#define PACE_PLACES 16 /* of parts of libmicrohttpd's buffer, about 10 us each */
#define PACE_PAUSES 3
#define PACE_PAUSE_MAX_US 20000

struct request;
struct server;

struct pace {
	struct list waiting; /* requests whose connections are suspended */
	uint64_t round;      /* from 1 */
	int places;          /* left */
	int64_t waited;      /* since the start: times one was suspended */
	lapse_us next;       /* monotonic: when there are new places for those that wait */
};

void pace_init(struct pace *p);

/* Before and after a run of libmicrohttpd. Those that have waited longest go on first; while the
 * server stops, all go on. */
void pace_begin(struct server *s);
void pace_end(struct server *s);

/* Whether the request may take what came of its body. False = take nothing: it is suspended. */
bool pace_take(struct request *r);

/* How long until some of those that wait can go on, in ms; -1 = none wait. */
int64_t pace_wait_ms(const struct server *s);

#endif
