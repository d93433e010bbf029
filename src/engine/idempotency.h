/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idempotency keys: the first answer to a request, kept for a while, so that a client may send it
 * again. The row is written in the transaction of the operation itself; one that fails leaves no
 * row, so its retry really runs.
 */
#ifndef LAPSE_ENGINE_IDEMPOTENCY_H
#define LAPSE_ENGINE_IDEMPOTENCY_H

#include "engine/matrix.h"

struct tx;
struct arena;

struct idempotency {
	const char *owner, *key;
	char request[65]; /* SHA-256 of method, path and body, hex */
};

/* The fingerprint of a request, into i->request. */
void idempotency_hash(struct idempotency *i, const char *method, const char *path, const char *body,
		      size_t body_len);

/* 0: the key is new and now under way in this transaction. 1: the first answer is in *ret_status
 * and *ret_answer (in the arena). LAPSE_EUNPROCESSABLE: the key was used for another request.
 * LAPSE_ECONFLICT: the first request is still under way. */
int idempotency_begin(struct tx *tx, const struct idempotency *i, struct arena *arena,
		      int *ret_status, const char **ret_answer);

/* Keeps the answer. */
int idempotency_end(struct tx *tx, const struct idempotency *i, int status, const char *answer);

/* Forgets the key of a request that failed after its first step. */
int idempotency_drop(struct tx *tx, const struct idempotency *i);

/* Forgets the keys that were under way when the process ended: nobody will answer them. */
int idempotency_recover(struct tx *tx);

extern const struct bound IDEMPOTENCY_BOUND;

#endif
