/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that wait for a turn, fair to owners. Each request gets a tag: one more than the
 * last of its owner, or that of the request which ran last, whichever is larger. So an owner with a
 * thousand requests in the queue waits for itself, and the only request of another comes before
 * nearly all of them. Requests of one owner keep their order.
 *
 * One thread, the loop's.
 */
#ifndef LAPSE_HTTP_FAIRNESS_H
#define LAPSE_HTTP_FAIRNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#define FAIR_OWNERS 256 /* places for owners; some share one */

struct request;

struct fair_queue {
	struct list requests; /* by tag */
	size_t count;
	uint64_t served;            /* the tag of the last one that has run */
	uint64_t tags[FAIR_OWNERS]; /* the last tag of the owners with this hash */
};

void fair_init(struct fair_queue *q);

/* A request of this owner, behind all whose tags are not larger. `owner` may be NULL. */
void fair_add(struct fair_queue *q, struct request *r, const char *owner);

/* One that was taken and has not run, to its place: others may have come meanwhile. */
void fair_put_back(struct fair_queue *q, struct request *r);

void fair_remove(struct fair_queue *q, struct request *r);

/* The first one, and the one after it; NULL = there is none. */
struct request *fair_first(const struct fair_queue *q);
struct request *fair_after(const struct fair_queue *q, const struct request *r);

/* It has run: those that come from now on are not put before it. */
void fair_served(struct fair_queue *q, const struct request *r);

static inline bool fair_is_empty(const struct fair_queue *q)
{
	return list_empty(&q->requests);
}

#endif
