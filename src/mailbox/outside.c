/* SPDX-License-Identifier: Apache-2.0 */
#include "mailbox/outside.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <string.h>

#include "base/secret.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/sealed.h"

#define PASSWORD_BYTES 24 /* 48 hex digits: no server takes them for a hash */

struct principal outside_principal(const struct mailbox *m, const char *secret)
{
	return (struct principal){ .mailbox = m->id,
				   .owner = m->owner,
				   .address = m->address,
				   .name = m->stalwart_name,
				   .account = m->stalwart_account,
				   .secret = secret };
}

bool outside_is_provisioning(const struct engine *e, int64_t mailbox)
{
	const struct list *all = &mailboxes_of(e)->provisioned;

	for (const struct list *l = all->next; l != all; l = l->next)
		if (CONTAINER_OF(l, struct outside_call, link)->mailbox.id == mailbox)
			return true;
	return false;
}

/* Passwords */

int outside_open_key(struct engine *e, struct problem *p)
{
	struct mailboxes *m = mailboxes_of(e);

	if (m->has_key)
		return LAPSE_OK;
	int r = sealed_key(e, &m->key, p);
	if (r == LAPSE_ENOTFOUND)
		r = problem_set(p, LAPSE_EUNAVAILABLE, NULL,
				SEAL_KEY_NAME " is missing, and mailboxes have passwords that only "
					      "it opens: put it back, or make a new one "
					      "(docs/stalwart.md) and give their mail up");
	m->has_key = r == LAPSE_OK;
	return r;
}

int outside_make_secret(struct engine *e, int64_t mailbox, struct arena *arena, const char **ret,
			struct problem *p)
{
	unsigned char bytes[PASSWORD_BYTES];
	char id[MAILBOX_ID_LEN + 1], password[2 * PASSWORD_BYTES + 1];
	struct buf CLEANUP(buf_done) sealed = { 0 };
	int r = outside_open_key(e, p);

	if (r < 0)
		return r;
	random_bytes(bytes, sizeof(bytes));
	hex_encode(bytes, sizeof(bytes), password);
	mailbox_id_format(mailbox, id);
	r = seal_close(&mailboxes_of(e)->key, id, password, &sealed);
	OPENSSL_cleanse(bytes, sizeof(bytes));
	OPENSSL_cleanse(password, sizeof(password));
	if (r == LAPSE_OK)
		*ret = arena_strdup(arena, buf_text(&sealed));
	return r;
}

static int open_secret(struct engine *e, struct outside_call *x)
{
	char id[MAILBOX_ID_LEN + 1];

	assert(x->magic == OUTSIDE_MAGIC);
	if (x->mailbox.secret[0] == '\0')
		return LAPSE_OK;
	int r = outside_open_key(e, &x->problem);
	if (r < 0)
		return r;
	mailbox_id_format(x->mailbox.id, id);
	buf_reserve(&x->secret, 2 * PASSWORD_BYTES);
	r = seal_open(&mailboxes_of(e)->key, id, x->mailbox.secret, &x->secret);
	if (r < 0)
		problem_set(
			&x->problem, r, NULL,
			"the mailbox's password was sealed with another key than " SEAL_KEY_NAME);
	return r;
}

/* Under way */

struct outside_call *outside_new(struct engine *e, struct arena *arena, enum provider_verb verb,
				 const struct mailbox *m)
{
	struct outside_call *x = arena_alloc(arena, sizeof(*x));

	assert(m->id != 0);
	x->magic = OUTSIDE_MAGIC;
	x->engine = e;
	x->arena = arena;
	x->mailbox = mailbox_copy(arena, m);
	x->op.verb = verb;
	list_init(&x->link);
	return x;
}

struct failed_creation {
	const struct outside_call *call;
	bool unknown; /* whether there is an account now */
};

static int settle_creation(struct tx *tx, void *arg)
{
	const struct failed_creation *x = arg;
	const struct mailbox *m = &x->call->mailbox;

	return x->unknown ? mailbox_disown(tx, m) : mailbox_forget(tx, m);
}

/* In a transaction of its own and without a sync: lost, it is what a crash leaves, and the row is
 * found again as one whose making was never settled. */
static void settle_failed_creation(struct engine *e, const struct outside_call *call, bool unknown)
{
	struct failed_creation x = { call, unknown };

	job_do(e, JOB_LAZY, settle_creation, &x);
}

static void outside_finish(struct outside_call *x)
{
	assert(x->magic == OUTSIDE_MAGIC && x->done);
	list_remove(&x->link);
	secret_wipe(&x->secret);
	x->done(x);
}

static void on_done(struct provider_op *op)
{
	struct outside_call *x = op->arg;

	assert(x->magic == OUTSIDE_MAGIC);
	x->err = op->err;
	x->problem = op->problem;
	if (op->err == LAPSE_OK && x->take)
		x->take(x);
	/* When the engine ends there is no outcome: the next start settles it. */
	if (op->verb == PROVIDER_CREATE && op->err < 0 && op->err != LAPSE_EUNAVAILABLE)
		settle_failed_creation(x->engine, x, op->unknown);
	provider_op_done(op);
	outside_finish(x);
}

static void ask_provider(struct engine *e, void *arg)
{
	struct outside_call *x = arg;
	struct provider *p = mailbox_provider_of(e, &x->mailbox);

	assert(x->magic == OUTSIDE_MAGIC && x->engine == e);
	assert(p && p->start);
	x->err = open_secret(e, x);
	if (x->err < 0) {
		if (x->op.verb == PROVIDER_CREATE)
			settle_failed_creation(e, x, false);
		outside_finish(x);
		return;
	}
	provider_op_init(&x->op, x->op.verb);
	x->op.who = outside_principal(&x->mailbox, buf_text(&x->secret));
	x->op.done = on_done;
	x->op.arg = x;
	if (x->op.verb == PROVIDER_CREATE)
		list_append(&mailboxes_of(e)->provisioned, &x->link);
	p->start(p, &x->op);
}

int outside_start(struct outside_call *x, struct tx *tx, struct problem *p)
{
	struct provider *outside = mailbox_provider_of(x->engine, &x->mailbox);

	assert(x->magic == OUTSIDE_MAGIC && x->done && tx->engine == x->engine);
	if (!outside || !outside->start)
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mailbox lives with the provider %.40s, which is not set up",
				   x->mailbox.provider);
	tx_effect(tx, ask_provider, x);
	return LAPSE_OK;
}

int outside_result(const struct outside_call *x, struct problem *p)
{
	assert(x->magic == OUTSIDE_MAGIC && x->err <= 0);
	if (x->err < 0)
		*p = x->problem;
	return x->err;
}
