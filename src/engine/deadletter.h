/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead letters: deletions outside that gave up (engine/cleanup.h). They stay until a person has
 * them tried again or lets them go; both are told to the room whose thing it is.
 */
#ifndef LAPSE_ENGINE_DEADLETTER_H
#define LAPSE_ENGINE_DEADLETTER_H

#include "base/clock.h"
#include "base/err.h"
#include "engine/cleanup.h"

struct arena;

struct dead_letter {
	int64_t id;
	const char *owner, *kind, *target, *error;
	enum cleanup_state state;
	int64_t attempts;
	lapse_ms created_at; /* when the deletion was first wanted */
};

/* Newest first, those with ids below `before`. What fn() is given lives until it returns. */
int dead_letter_list(struct tx *tx, int64_t before, int64_t limit,
		     void (*fn)(void *arg, const struct dead_letter *d), void *arg);

/* Tries it again now, with all its attempts; LAPSE_ENOTFOUND when there is no such dead letter. */
int dead_letter_retry(struct tx *tx, int64_t id, struct arena *arena, struct dead_letter *ret);

/* Which dead letters a retry of many is about. */
struct dead_letter_filter {
	const char *kind; /* NULL = of every kind */
	lapse_ms before;  /* first wanted before this; LAPSE_NEVER = at any time */
};

/* Retries up to `limit` of them with ids above *after, oldest first, and moves *after to the last.
 * *ret_n = how many. */
int dead_letter_retry_many(struct tx *tx, const struct dead_letter_filter *filter, int64_t limit,
			   int64_t *after, int64_t *ret_n);

/* Forgets it: what it was about stays where it is, outside. */
int dead_letter_drop(struct tx *tx, int64_t id, struct arena *arena);

#endif
