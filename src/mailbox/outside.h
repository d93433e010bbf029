/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the provider outside: the begin, the wait, and what the asker finds afterwards.
 *
 * The asker makes an outside_call and starts it in its transaction. The provider is asked once that
 * transaction has committed; done() is called when the answer is there. A client that goes away
 * stops nothing: the request stays until it has finished.
 *
 * The failure of making an account is settled here as well: an account that was not made leaves no
 * row, an unknown outcome leaves a pending deletion. Only success is left to the asker, because
 * that row and the reply belong in one transaction.
 */
#ifndef LAPSE_MAILBOX_OUTSIDE_H
#define LAPSE_MAILBOX_OUTSIDE_H

#include "mailbox/mailbox.h"

#define OUTSIDE_MAGIC 0x4c4f5554u

struct outside_call {
	uint32_t magic;
	struct engine *engine;
	struct arena *arena;    /* the asker's; it outlives the answer */
	struct mailbox mailbox; /* texts in the arena */
	struct provider_op op;  /* the asker fills what its verb needs; gone when it is over */

	/* Takes from a good answer what is needed, into the arena. May be NULL. */
	void (*take)(struct outside_call *x);

	/* Called once, when there is an outcome. Nothing here is touched after it. */
	void (*done)(struct outside_call *x);
	void *arg; /* for the asker */

	/* The outcome; `answer` is what take() left, if anything. */
	const char *answer;
	int err;
	struct problem problem;

	struct list link;  /* CREATE: among those being made */
	struct buf secret; /* in the clear, while it is under way */
};

/* A fresh one in the arena. The asker sets `done`. */
struct outside_call *outside_new(struct engine *e, struct arena *arena, enum provider_verb verb,
				 const struct mailbox *m);

/* Asks once the transaction has committed. LAPSE_EUPSTREAM when the mailbox lives with a provider
 * that is not set up. */
int outside_start(struct outside_call *x, struct tx *tx, struct problem *p);

/* The outcome of what was asked: LAPSE_OK, or its error with its reason in `p`. */
int outside_result(const struct outside_call *x, struct problem *p);

/* A fresh password for a new account, sealed for the mailbox with this id; in the arena. */
int outside_make_secret(struct engine *e, int64_t mailbox, struct arena *arena, const char **ret,
			struct problem *p);

/* Reads the key for passwords, or makes it; once. */
int outside_open_key(struct engine *e, struct problem *p);

bool outside_is_provisioning(const struct engine *e, int64_t mailbox);
struct principal outside_principal(const struct mailbox *m, const char *secret);

#endif
