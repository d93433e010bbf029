/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following deletions outside until they have settled: for somebody who asked for a sweep and waits
 * for what it started. What one attempt brought is what counts; a later one is not waited for.
 *
 * Legal order: follower_init, then follow_target in transactions, then follower_done. All on the
 * engine's thread; the follower must not move.
 */
#ifndef LAPSE_ENGINE_FOLLOW_H
#define LAPSE_ENGINE_FOLLOW_H

#include "base/list.h"
#include "base/map.h"
#include "engine/cleanup.h"

struct cleanup_follower {
	struct list link;   /* among the cleaner's */
	struct map targets; /* those that have not settled */
	int64_t cleaned, failed, dead;
	void (*settled)(struct cleanup_follower *f); /* after each; more may be under way */
};

void follower_init(struct engine *e, struct cleanup_follower *f);
void follower_done(struct cleanup_follower *f);

/* Follows the cleanup of this target once the transaction has committed. `f` may be NULL. */
void follow_target(struct tx *tx, struct cleanup_follower *f, const char *target);

/* For engine/cleanup.c: tells those who follow the target, once the transaction has committed. */
void follow_settled(struct tx *tx, const char *target, enum cleanup_state state);

#endif
