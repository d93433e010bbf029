/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletions outside the store (a file, a mail account): first a durable intent, then the call, then
 * the settled state. A cleanup ends done, and its row goes, or as a dead letter that a person can
 * see; it is never forgotten, and repeating it is harmless.
 *
 * Hand-over: cleaner_tick() takes what is due by pushing its next attempt out in a transaction,
 * then gives it to the runner of its kind, which works off the loop and reports with
 * cleanup_settle() on the loop. A crash in between costs one pause, not the deletion. Shutdown: the
 * runner reports or it does not; the intent is still there.
 */
#ifndef LAPSE_ENGINE_CLEANUP_H
#define LAPSE_ENGINE_CLEANUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

struct engine;
struct tx;

enum cleanup_state { CLEANUP_PENDING = 1, CLEANUP_DEAD = -1 };

struct cleanup {
	int64_t id;
	int64_t attempts; /* made before this one */
	char *owner, *kind, *target;
};

/* Takes the cleanup and calls cleanup_settle() exactly once, later, on the engine's thread. */
typedef void cleanup_runner(void *ctx, struct cleanup *c);

struct cleaner {
	cleanup_runner *runner; /* NULL: nothing is started, intents wait */
	void *runner_ctx;
	int running;         /* handed to the runner and not settled */
	lapse_us look_again; /* monotonic: when pending ones are looked for next */
	int64_t dead;        /* dead letters */
};

void cleaner_init(struct cleaner *c);
int cleaner_load(struct engine *e);
void cleaner_tick(struct engine *e);
lapse_us cleaner_next_us(const struct engine *e);

/* Notes the intent in the transaction. The same target twice is one cleanup; a dead letter is
 * pending again. */
int cleanup_add(struct tx *tx, const char *owner, const char *kind, const char *target);

/* Deletes the target of kind "file", a path below the data directory; one that is gone already is
 * fine. Blocks; safe off the loop. On failure `why` is filled. */
int cleanup_delete(const struct cleanup *c, const char *data_dir, char *why, size_t size);

/* The outcome: LAPSE_OK removes the row; an error counts an attempt and plans the next one, or
 * makes it a dead letter. Frees `c`. */
void cleanup_settle(struct engine *e, struct cleanup *c, int err, const char *why);

#endif
