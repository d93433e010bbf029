/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Webhooks: an owner's events as signed HTTP posts. The rows and the operations on them; who posts
 * is webhook/post.c.
 *
 * A hook is a cursor into the table of events, and what became of the last attempt. It posts one
 * event at a time, in order; an event that was not taken within webhook_give_up_ms becomes a
 * dead letter, and a hook that has delivered nothing for webhook_disable_after_ms is disabled. The
 * cursor is written down soon after a delivery, not with it: after a crash the last events come
 * again, with the same ids.
 *
 * `generation` grows with every change that a person makes, so that what an attempt under way
 * writes down later does not undo it.
 */
#ifndef LAPSE_WEBHOOK_WEBHOOK_H
#define LAPSE_WEBHOOK_WEBHOOK_H

#include "base/id.h"
#include "engine/bound.h"
#include "engine/tx.h"

/* How the delivery stands. Written by webhook/post.c. */
struct webhook_progress {
	int64_t after; /* events up to this one are delivered, or given up */
	int64_t attempts;
	lapse_ms next_at, event_since, failing_since; /* 0 = not failing */
	lapse_ms last_at;                             /* 0 = never tried */
	int64_t last_status;                          /* 0 = no answer */
	const char *last_error;                       /* "" = none */
};

struct webhook {
	int64_t id, generation;
	const char *owner, *url, *types, *secret; /* types: a JSON array; secret: sealed */
	bool enabled;
	lapse_ms created_at, disabled_at;
	struct webhook_progress progress;
};

#define WEBHOOK_ID_LEN (4 + ID_TEXT_LEN) /* "whk_" and 16 hex digits */
void webhook_id_format(int64_t id, char out[WEBHOOK_ID_LEN + 1]);
bool webhook_id_parse(const char *text, int64_t *ret);

/* Texts of what is found live in the arena. 1 = found, 0 = there is none. */
int webhook_read(struct db *db, int64_t id, struct arena *arena, struct webhook *ret);

typedef void webhook_fn(void *arg, const struct webhook *w);
int webhook_each(struct db *db, struct arena *arena, webhook_fn *fn, void *arg); /* all there are */

/* Operations of the owner. `w` has the id, url, types and the sealed secret. LAPSE_ELIMIT. */
int webhook_create(struct tx *tx, struct webhook *w, struct problem *p);
int webhook_find(struct tx *tx, const char *owner, const char *id, struct arena *arena,
		 struct webhook *ret, struct problem *p); /* LAPSE_ENOTFOUND */
int webhook_list(struct tx *tx, const char *owner, int64_t before, int64_t limit, webhook_fn *fn,
		 void *arg);
int webhook_change(struct tx *tx, const struct webhook *w); /* writes all of it */
int webhook_delete(struct tx *tx, const struct webhook *w);
int webhook_count_dead(struct tx *tx, int64_t id, int64_t *ret);

/* For webhook/post.c. Nothing happens when the row has another generation. */
int webhook_save(struct tx *tx, const struct webhook *w);
int webhook_bury(struct tx *tx, const struct webhook *w, int64_t event, const char *kind);
int webhook_disable(struct tx *tx, struct webhook *w, const char *why);

extern const struct bound_spec WEBHOOK_BOUND;
extern const struct bound_spec WEBHOOK_DEAD_BOUND;

#endif
