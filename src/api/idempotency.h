/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idempotency keys: the first answer to a request, kept for a while, so that a client may send it
 * again. The row is written in the transaction of the operation itself. An operation that fails
 * leaves no row, so its retry really runs.
 *
 * A request of several steps has its key under way from the first commit to the last; this process
 * knows those keys in memory too. A door calls idempotency_claim() in the first step,
 * idempotency_end() or idempotency_drop() in the last, and idempotency_release() once the request
 * is answered, however that went.
 */
#ifndef LAPSE_API_IDEMPOTENCY_H
#define LAPSE_API_IDEMPOTENCY_H

#include "base/list.h"
#include "engine/matrix.h"

struct tx;
struct arena;

struct idempotency {
	const char *owner, *key;
	char request[65]; /* SHA-256 of method, path and body, hex */
	struct list link; /* among the keys under way in this process; initialized by the owner */
};

/* The fingerprint of a request, into i->request. */
void idempotency_hash(struct idempotency *i, const char *method, const char *path, const char *body,
		      size_t body_len);

/* 0: the key is new and now under way in this transaction. 1: the first answer is in *ret_status
 * and *ret_answer (in the arena). LAPSE_EUNPROCESSABLE: the key was used for another request.
 * LAPSE_ECONFLICT: the first request is still under way. */
int idempotency_begin(struct tx *tx, const struct idempotency *i, struct arena *arena,
		      int *ret_status, const char **ret_answer);

/* The same, for a request that may take several steps: a new key is known as under way in this
 * process until idempotency_release(). A row under way that this process does not know is of a
 * request whose last step could not be committed: its client got an error, this is its retry, and
 * the key is new again. May be run again when its transaction was rolled back. */
int idempotency_claim(struct tx *tx, struct idempotency *i, struct arena *arena, int *ret_status,
		      const char **ret_answer);
void idempotency_release(struct idempotency *i); /* harmless when it was not claimed */

/* What to tell a client whose claim failed. */
const char *idempotency_refusal(int err);

/* Keeps the answer. */
int idempotency_end(struct tx *tx, const struct idempotency *i, int status, const char *answer);

/* Forgets the key of a request that failed after its first step. */
int idempotency_drop(struct tx *tx, const struct idempotency *i);

/* Forgets the keys that were under way when the process ended: their requests have no answer. */
int idempotency_recover(struct tx *tx);
int idempotency_replica_gone(struct tx *tx, int64_t number); /* see engine/room.h */

extern const struct bound_spec IDEMPOTENCY_BOUND;

#endif
