/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idempotency keys of the library (api/idempotency.h). A call that creates something says what it
 * was given (key_say), asks in its write transaction whether it has run before (key_begin), leaves
 * its answer there (key_end), and uses the key up however it ends (key_done). Without a key all of
 * them do nothing.
 */
#ifndef LAPSE_LIB_KEY_H
#define LAPSE_LIB_KEY_H

#include "lib/store.h"

/* Adds an argument to `said`. NULL and "" are different arguments. */
void key_say(struct buf *said, const char *text);

/* 0 = run the operation; 1 = it has run, and *ret_answer is what key_end() was given then, in the
 * arena. LAPSE_EUNPROCESSABLE when the key belongs to a call with other arguments. `call` is the
 * function's name. */
int key_begin(struct lapse_store *s, const char *call, const struct buf *said, struct arena *arena,
	      const char **ret_answer);

/* Keeps what the call gives back, in the transaction of the call. */
int key_end(struct lapse_store *s, const char *answer);

/* Takes key_begin() back, for an operation that needs another transaction first. */
int key_undo(struct lapse_store *s);

void key_done(struct lapse_store *s);

#endif
