/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where mailboxes live. A provider creates and deletes the account behind an address (its
 * principal), reads its mail and sends from it.
 *
 * There are two kinds. One whose mail lives in lapse's own store works inside the caller's
 * transaction: run(). One that asks a server answers later: start(), which must come after the
 * commit of what it relies on (as an effect), never calls done() from within, and calls it exactly
 * once, on the engine's thread, in bounded time. A provider has one of the two.
 *
 * What an operation is given is borrowed until done(); what it answers is in its arena.
 */
#ifndef LAPSE_PROVIDER_PROVIDER_H
#define LAPSE_PROVIDER_PROVIDER_H

#include "base/err.h"
#include "base/mem.h"
#include "provider/mail.h"

struct engine;
struct tx;

enum provider_verb {
	PROVIDER_CREATE, /* the account; one that is there already is LAPSE_ECONFLICT */
	PROVIDER_DELETE, /* the account; one that is certainly gone already is LAPSE_OK */
	PROVIDER_LIST,   /* its mail, newest first */
	PROVIDER_GET,    /* one mail with its bodies; it stays unread */
	PROVIDER_READ,   /* the same, and marks it read */
	PROVIDER_SEND,   /* a mail from its address */
};

/* What a mailbox keeps about its account. */
struct principal {
	int64_t mailbox;     /* id of the row */
	const char *owner;   /* whose it is */
	const char *address; /* the whole address */
	const char *name;    /* what the server calls it: the address, as it was at creation */
	const char *account; /* the server's own id for it; "" = none or not known */
	const char *secret;  /* its password, in the clear; "" where the provider needs none */
};

struct provider_op {
	enum provider_verb verb;
	struct principal who;
	struct mail_query query;        /* LIST */
	const char *mail_id;            /* GET, READ */
	const struct mail_draft *draft; /* SEND */

	/* Called when it is over; `arg` is the caller's. */
	void (*done)(struct provider_op *op);
	void *arg;

	/* The answer. LAPSE_OK, or: LAPSE_ECONFLICT (CREATE: taken), LAPSE_ENOTFOUND (GET, READ),
	 * LAPSE_EINVAL (the caller's input; the problem names the field), LAPSE_EUPSTREAM (the
	 * server failed, said nonsense or did not answer; the problem says what, without any
	 * secret). */
	int err;
	struct problem problem;
	bool unknown;            /* CREATE failed and the account may exist all the same */
	const char *account;     /* CREATE */
	struct mail *mails;      /* LIST: an array; GET, READ: one */
	size_t mails_count;      /* LIST */
	const char *next_cursor; /* LIST: NULL = there is no further page */
	const char *sent_id;     /* SEND: the message's id */
	struct arena arena;      /* init by provider_op_init, gone with provider_op_done */

	void *state; /* the provider's own, while it is under way */
};

struct provider {
	const char *name;
	bool needs_secret; /* CREATE wants a password in who.secret */

	/* LAPSE_OK = it is over, well or not: see op->err; negative = the store failed; in a read
	 * transaction also TX_NEEDS_WRITE. */
	int (*run)(struct provider *p, struct tx *tx, struct provider_op *op);
	void (*start)(struct provider *p, struct provider_op *op);

	/* The engine ends: operations under way are done() with LAPSE_EUNAVAILABLE before it
	 * returns. May be NULL. */
	void (*stop)(struct provider *p);
};

static inline void provider_op_init(struct provider_op *op, enum provider_verb verb)
{
	op->verb = verb;
	arena_init(&op->arena);
}

static inline void provider_op_done(struct provider_op *op)
{
	arena_done(&op->arena);
}

#endif
