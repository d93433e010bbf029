/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads and downloads as the server sees them: how many there may be, and a round that looks at
 * those under way, because libmicrohttpd does not notice every client that left, and none that
 * takes nothing.
 */
#ifndef LAPSE_HTTP_TRANSFER_H
#define LAPSE_HTTP_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/list.h"

struct server;

/* One of transfers_max places, while a transfer has it. */
struct transfer_place {
	struct list link;
	const char *owner; /* borrowed */
};

struct transfers {
	int64_t count;   /* places that are taken */
	int64_t jobs;    /* of theirs, that workers have */
	int64_t writers; /* jobs of uploads that go on; at most writers_max */
	int64_t writers_max;
	struct list places;    /* struct transfer_place */
	struct list writes;    /* struct upload whose job waits for its turn */
	struct list uploads;   /* struct upload whose body is not complete */
	struct list flying;    /* struct upload whose bytes are in no row yet, or only just */
	struct list downloads; /* struct download */
	uv_timer_t timer;      /* the round, while there is something to look at */
};

void transfers_init(struct server *s);
void transfers_done(struct server *s);

/* Whether there is a place for this owner. The last quarter of them is for owners who have none, so
 * that one who takes all he can get leaves some to others. */
bool transfers_have_place(const struct server *s, const char *owner);

bool transfers_take_place(struct server *s, struct transfer_place *p, const char *owner);
void transfers_give_back(struct server *s, struct transfer_place *p);

/* Something was added to one of the lists. */
void transfers_watch(struct server *s);

#endif
