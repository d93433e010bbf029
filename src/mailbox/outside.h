/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request that needs the provider outside: its begin, the wait, and what its finish finds.
 *
 * A handler puts an outside_call into its call's arena and starts it in its transaction; the
 * provider is asked once that has committed, and the call woken when the answer is there. A client
 * that goes away stops nothing: the request stays until it has finished.
 *
 * Making an account is settled here as well: one that failed leaves no row, one that nobody can
 * tell leaves a pending deletion, whoever waits. Only success is left to the handler, because that
 * row and the answer belong into one transaction.
 */
#ifndef LAPSE_MAILBOX_OUTSIDE_H
#define LAPSE_MAILBOX_OUTSIDE_H

#include "engine/call.h"
#include "mailbox/mailbox.h"

struct outside_call {
	struct call *call;
	struct mailbox mailbox; /* texts in the call's arena */
	struct provider_op op;  /* the asker fills what its verb needs; gone when it is over */

	/* Takes from a good answer what is needed, into the call's arena. May be NULL. */
	void (*take)(struct outside_call *x);

	/* For finish; `answer` is for whoever takes one. */
	const char *answer;
	int err;
	struct problem problem;

	struct list link;  /* CREATE: among those being made */
	struct buf secret; /* in the clear, while it is under way */
};

/* A fresh one in the call's arena; it becomes the call's state. */
struct outside_call *outside_new(struct call *c, enum provider_verb verb, const struct mailbox *m);

/* Asks after the commit; the handler then returns call_await(). LAPSE_EUPSTREAM when the mailbox
 * lives with a provider that is not set up. */
int outside_start(struct outside_call *x);

/* The outcome of what was asked, as a handler returns it. */
int outside_result(const struct outside_call *x);

/* A fresh password for a new account, sealed for the mailbox with this id; in the arena. */
int outside_make_secret(struct engine *e, int64_t mailbox, struct arena *arena, const char **ret,
			struct problem *p);

/* Reads the key for passwords, or makes it; once. */
int outside_open_key(struct engine *e, struct problem *p);

bool outside_is_provisioning(const struct engine *e, int64_t mailbox);
struct principal outside_principal(const struct mailbox *m, const char *secret);

#endif
