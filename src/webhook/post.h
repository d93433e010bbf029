/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting events: the room's memory, and what it does at its ticks.
 *
 *	events behind the cursors  →  a worker reads a stretch of the table for all hooks at once
 *	a hook has an event        →  one post is under way, no other of this hook
 *	2xx                        →  the cursor moves on; written down within SAVE_EVERY_US
 *	anything else              →  a pause that doubles; a dead letter after webhook_give_up_ms
 *	410, or failing too long   →  disabled, with an event
 *
 * Start: webhooks_give() brings a fetcher; without one (the library) nothing is posted. Shutdown:
 * posts under way end as not answered, and come again after the next start.
 */
#ifndef LAPSE_WEBHOOK_POST_H
#define LAPSE_WEBHOOK_POST_H

#include <assert.h>

#include "base/list.h"
#include "base/seal.h"
#include "engine/engine.h"
#include "engine/replay.h"
#include "provider/fetch.h"
#include "webhook/webhook.h"

#define WEBHOOKS_MAGIC 0x4c574853u
#define WEBHOOK_HEAD_LINES 5 /* of a post, with the NULL at the end */

struct webhooks {
	uint32_t magic;
	struct list hooks;       /* struct hook */
	struct fetcher *fetcher; /* NULL = nothing is posted */
	struct seal key;
	bool has_key, stopped, reading;
	bool leads; /* this process posts; else another replica does */
	struct replay replay;
	struct offload offload;
	int64_t low;      /* the smallest cursor of hooks that want events; INT64_MAX = none does */
	lapse_us next;    /* monotonic: when a hook, or the writing down, is due */
	lapse_us save_at; /* LAPSE_NEVER = nothing to write down */
	int64_t delivered, failed, buried;
};

static inline struct webhooks *webhooks_of(const struct engine *e)
{
	struct webhooks *w = engine_room(e, ROOM_WEBHOOK);

	assert(w && w->magic == WEBHOOKS_MAGIC);
	return w;
}

/* From now on hooks are posted with this; borrowed until the engine stops. */
void webhooks_give(struct engine *e, struct fetcher *fetcher);

/* The row with this id was made, changed or deleted: the memory follows once it is durable. */
void webhooks_refresh(struct tx *tx, int64_t id);

/* Seals a secret for the hook with this id; the text lives in the arena. */
int webhooks_seal(struct engine *e, int64_t id, const char *secret, struct arena *arena,
		  const char **ret, struct problem *p);

/* The head of a post by Standard Webhooks: the id stays the same for every attempt. */
int webhook_head(struct engine *e, const struct webhook *w, int64_t seq, const struct buf *body,
		 struct buf headers[3], const char *lines[WEBHOOK_HEAD_LINES], struct problem *p);

/* One post of an event that is none, by and for its owner. The caller fills `arg` and `done`, and
 * reads the outcome from `fetch`; everything lives in the arena, which outlives done(). */
struct webhook_trial {
	struct fetch fetch;
	void (*done)(struct webhook_trial *t);
	void *arg;
	struct buf body;
	struct buf headers[3];
	const char *lines[WEBHOOK_HEAD_LINES];
};
int webhook_trial_start(struct engine *e, const struct webhook *w, struct webhook_trial *t,
			struct problem *p);

extern const struct room WEBHOOK_ROOM;

#endif
