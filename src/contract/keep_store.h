/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeping a contract writes to lapse's own store: intents before slices, approvals, and which
 * rule of a bound was last swept. Holds are read from there.
 */
#ifndef LAPSE_CONTRACT_KEEP_STORE_H
#define LAPSE_CONTRACT_KEEP_STORE_H

#include "base/map.h"
#include "engine/bound.h"
#include "engine/tx.h"

/* How a bound was left by earlier runs. */
struct kept_bound {
	bool known; /* it was swept before, by the rule of this hash: */
	int64_t hash;
	int64_t intent_rows; /* a run ended in a slice of up to so many rows; 0 = none did */
	int64_t untold;      /* rows that were removed and are in no event */
};

int kept_bound_get(struct tx *tx, const char *name, struct kept_bound *ret);

/* The last slice removed `removed` rows; the next one may remove up to `rows`, 0 = there is none.
 */
int kept_bound_intend(struct tx *tx, const char *name, int64_t rows, int64_t removed);

/* Everything that was removed is in an event of this transaction. */
int kept_bound_told(struct tx *tx, const char *name);
int kept_bound_swept(struct tx *tx, const char *name, int64_t hash);

/* In a cluster, before a slice: this replica is about to remove rows of the bound, by the holds
 * that the transaction sees. And after it. A hold that another replica is asked for waits for it.
 *
 * A replica may die, or be stopped, in a slice. So nothing commits later than SLICE_TRUST_MS after
 * its holds were read, and the server ends a transaction that is idle for FOREIGN_TRANSACTION_MS:
 * after SLICE_OVER_MS a slice is over, whatever became of its replica. */
#define SLICE_TRUST_MS 20000
#define SLICE_OVER_MS 40000
int slice_note_begun(struct tx *tx, const char *bound);
int slice_note_ended(struct tx *tx, const char *bound);
int slices_under_way(struct tx *tx, const char *bound, struct bound_slices *ret);

struct approval {
	const char *bound;
	int64_t due_rows, table_rows; /* table_rows -1 = not known */
	lapse_ms wanted_at;
	lapse_ms given_at; /* 0 = not yet */
};

int approval_want(struct tx *tx, const char *bound, int64_t due_rows, int64_t table_rows);
int approval_get(struct tx *tx, struct arena *arena, const char *bound, struct approval *ret);

/* Gives it and tells so. LAPSE_ENOTFOUND: none is wanted. */
int approval_give(struct tx *tx, struct arena *arena, const char *bound, struct approval *ret);
int approval_done(struct tx *tx, const char *bound);

typedef void approval_fn(void *arg, const struct approval *a);
int approval_list(struct tx *tx, approval_fn *fn, void *arg);

/* The keys of all holds on a bound's rows, of every owner. */
struct held_keys {
	struct map map;
	struct arena arena;
	bool loaded;
};
int held_keys_load(struct tx *tx, const char *bound, struct held_keys *ret);
void held_keys_done(struct held_keys *h);
bool held_keys_any(const struct held_keys *h);
bool held_keys_have(const struct held_keys *h, const char *key);

#endif
