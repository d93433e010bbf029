/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that need a row which another client of the database has locked. They are set aside, so
 * that all others go on. Now and then one of them is tried again, alone; once it gets its row, all
 * of them are queued as before. A request that waits for too long is 503.
 *
 * While there are any, every turn waits for a locked row only briefly (ASIDE_LOCK_MS), because each
 * further request that needs the row must be found out by waiting for it.
 *
 * For http/turn.c, on the loop's thread.
 */
#ifndef LAPSE_HTTP_ASIDE_H
#define LAPSE_HTTP_ASIDE_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/list.h"

#define ASIDE_LOCK_MS 10

struct server;
struct request;

struct aside {
	struct list requests; /* in the order of their next tries */
	lapse_us next;        /* monotonic: when one of them may be tried */
};

void aside_init(struct aside *a);

/* A request whose row is locked, taken from the queue: it is set aside, or answered. */
void aside_add(struct server *s, struct request *r);

/* Answers those who have waited for too long, and queues the next one to try when it is time. True
 * = it did something. */
bool aside_run(struct server *s);

/* The request got its row: all that were set aside are queued again. */
void aside_release(struct server *s);

#endif
