/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds: a held row is never removed. Sweeps check them in the statement that deletes.
 */
#ifndef LAPSE_ENGINE_HOLD_H
#define LAPSE_ENGINE_HOLD_H

#include "engine/matrix.h"

#define HOLD_REASON_MAX 1000 /* bytes */

struct arena;
struct tx;

struct hold {
	int64_t id;
	const char *owner, *table, *key, *reason;
	lapse_ms until; /* LAPSE_NEVER = until it is released */
	lapse_ms placed_at;
};

/* Places a hold, or replaces reason and end of the one there is. LAPSE_ENOTFOUND when there is no
 * such table or row, LAPSE_EINVAL when the table's rows cannot be held. */
int hold_place(struct tx *tx, struct hold *h, struct problem *p);
int hold_release(struct tx *tx, const char *owner, const char *table, const char *key);

/* The one form of a key that holds of a table are stored under: the key itself, or for rows of a
 * contract with several key columns the array as the sweep writes it. */
int hold_key(const struct engine *e, struct arena *arena, const char *table, const char *key,
	     const char **ret, struct problem *p);

/* The texts live in the arena. A hold whose end has passed is not found. */
int hold_get(struct tx *tx, struct arena *arena, const char *owner, const char *table,
	     const char *key, struct hold *ret);

/* Newest first, at most `limit`, with an id below `before`. */
typedef void hold_fn(void *arg, const struct hold *h);
int hold_list(struct tx *tx, const char *owner, int64_t before, int64_t limit, hold_fn *fn,
	      void *arg);

extern const struct bound_spec HOLD_BOUND;

#endif
