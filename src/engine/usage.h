/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What owners use of the limits that nearly every write counts towards: their inboxes, and the
 * bytes of what they have stored. The numbers of all owners are in memory, so a check is a look,
 * and a transaction writes one row of table_counts for each owner and limit it has changed, when it
 * commits.
 *
 * A row that counts carries what it was counted with in a column `bytes`, and gives just that back
 * when it goes. The sweep does so for bounds that name the column (bound_spec.bytes); rooms do it
 * for what they remove themselves.
 *
 * On a store with several lanes, transactions under way do not see each other's numbers, so a limit
 * can be passed by what they add together.
 *
 * One thread, the loop's.
 */
#ifndef LAPSE_ENGINE_USAGE_H
#define LAPSE_ENGINE_USAGE_H

#include "engine/quota.h"

#define USAGE_TOPIC "usage" /* news: the numbers of the owner with this name have changed */

struct pruned;

/* What a transaction adds to an owner's number, or takes off it. */
struct usage_delta {
	struct usage_delta *next;
	const char *owner;
	enum quota what;
	int64_t n;
	int64_t written;              /* of n, what the transaction has written already */
	int64_t step_n, step_written; /* what usage_step_undo() goes back to */
};

/* At the start, in the transaction that loads everything; and at the end. */
int usage_load(struct engine *e);
void usage_done(struct quotas *q);

/* The number as this transaction sees it. */
int64_t usage_of(const struct tx *tx, const char *owner, enum quota what);

/* LAPSE_ELIMIT when there is no room for `n` more. */
int usage_admit(const struct tx *tx, const char *owner, enum quota what, int64_t n,
		struct problem *p);

/* `n` more, whatever the limit is; and `n` fewer. */
void usage_add(struct tx *tx, const char *owner, enum quota what, int64_t n);
void usage_take_off(struct tx *tx, const char *owner, enum quota what, int64_t n);

/* What went with rows that a sweep removed. */
void usage_settle(struct tx *tx, const struct pruned *rows, size_t n);

/* For engine/tx.c: around a step; at the commit, before and after it. */
void usage_step_begin(struct tx *tx);
void usage_step_undo(struct tx *tx);
int usage_write(struct tx *tx);
void usage_apply(const struct tx *tx);

/* The rows of an owner were changed by statements: reads its numbers again. Outside a transaction,
 * after usage_write() and the statements have committed. */
void usage_refresh(struct engine *e, const char *owner);

#endif
