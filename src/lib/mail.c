/* SPDX-License-Identifier: Apache-2.0 */
/* The calls about the mail of a mailbox. What a provider answers lies in the operation, so that the
 * caller sees it once what changed is durable. */
#include "mailbox/mail.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/check.h"
#include "lib/key.h"
#include "lib/store.h"

static_assert(LAPSE_RECIPIENTS_MAX == MAIL_RECIPIENTS_MAX, "as the public header says");

/* Starts a call about a mailbox; mail_finish() ends it, however it went. */
static int mail_enter(struct lapse_store *s, const char *mailbox, enum provider_verb verb,
		      struct provider_op *op)
{
	int r = store_enter(s);

	*op = (struct provider_op){ 0 };
	provider_op_init(op, verb);
	return r < 0 ? r : check_mailbox(mailbox, "mailbox", &s->problem);
}

static int mail_finish(struct lapse_store *s, struct provider_op *op, int err)
{
	provider_op_done(op);
	return store_end(s, err);
}

static int mail_blame(struct lapse_store *s, const struct provider_op *op, const struct mailbox *m,
		      int err)
{
	if (err == MAIL_IS_OUTSIDE)
		return problem_set(&s->problem, LAPSE_EUPSTREAM, "mailbox",
				   "the mailbox lives with the provider %.40s, and the library "
				   "talks to no mail server: only a daemon can",
				   m->provider);
	return check_blame(err, op->err < 0 ? "id" : "mailbox", &s->problem);
}

static void say_list(struct buf *said, const struct mail_addresses *list)
{
	for (size_t i = 0; i < list->count; i++)
		key_say(said, list->items[i]);
	key_say(said, NULL); /* the list ends here */
}

static void say_mail(struct buf *said, const char *mailbox, const struct mail_draft *d)
{
	key_say(said, mailbox);
	say_list(said, &d->to);
	say_list(said, &d->cc);
	say_list(said, &d->bcc);
	key_say(said, d->subject);
	key_say(said, d->text);
	key_say(said, d->html);
}

/* Asks the provider, unless the idempotency key says that this mail was sent: then op->sent_id is
 * that of the first time. */
static int run_once(struct lapse_store *s, const char *mailbox, struct arena *arena,
		    struct provider_op *op, struct mailbox *m)
{
	struct buf CLEANUP(buf_done) said = { 0 };
	int r = LAPSE_OK;

	if (op->verb == PROVIDER_SEND) {
		say_mail(&said, mailbox, op->draft);
		r = key_begin(s, "lapse_mail_send", &said, &op->arena, &op->sent_id);
	}
	if (r != LAPSE_OK)
		return r < 0 ? r : LAPSE_OK;
	r = mailbox_mail(&s->tx, s->owner, mailbox, arena, op, m, &s->problem);
	if (op->verb != PROVIDER_SEND || r < 0)
		return r;
	int kept = r == LAPSE_OK ? key_end(s, op->sent_id) : key_undo(s);
	return kept < 0 ? kept : r;
}

/* Asks the mailbox's provider and commits. */
static int mail_run(struct lapse_store *s, const char *mailbox, struct provider_op *op)
{
	struct mailbox m = { 0 };
	struct arena arena;
	int r = op->verb == PROVIDER_SEND ? store_begin(s) : store_begin_read(s);

	arena_init(&arena);
	if (r == LAPSE_OK)
		do
			r = run_once(s, mailbox, &arena, op, &m);
		while (store_again(s, &r));
	r = store_commit(s, mail_blame(s, op, &m, r));
	arena_done(&arena);
	return r;
}

static void mail_show(const struct mail *m, lapse_mail_fn *fn, void *arg)
{
	struct lapse_mail v = { .id = m->id,
				.from = m->from,
				.subject = m->subject,
				.to = m->to.items,
				.cc = m->cc.items,
				.to_count = m->to.count,
				.cc_count = m->cc.count,
				.received_at = m->received_at,
				.read = m->read,
				.preview = m->preview ? m->preview : "",
				.text = m->text,
				.html = m->html };

	if (fn)
		fn(arg, &v);
}

/* Reading */

static int check_before(const char *before, struct problem *p)
{
	int64_t id;

	return !before || id_parse(before, &id)
		       ? LAPSE_OK
		       : problem_set(p, LAPSE_EINVAL, "before", "before must be the id of a mail");
}

int lapse_mail_list(struct lapse_store *store, const char *mailbox, const char *folder,
		    const char *before, int64_t limit, lapse_mail_fn *fn, void *arg)
{
	struct problem *p = &store->problem;
	struct provider_op op;
	int r = mail_enter(store, mailbox, PROVIDER_LIST, &op);

	op.query.limit = limit;
	op.query.after = before;
	if (r == LAPSE_OK)
		r = mail_folder_parse(folder ? folder : "inbox", &op.query.folder, p);
	if (r == LAPSE_OK)
		r = check_before(before, p);
	if (r == LAPSE_OK)
		r = check_limit(limit, p);
	if (r == LAPSE_OK)
		r = mail_run(store, mailbox, &op);
	for (size_t i = 0; r == LAPSE_OK && i < op.mails_count; i++)
		mail_show(&op.mails[i], fn, arg);
	return mail_finish(store, &op, r);
}

int lapse_mail_get(struct lapse_store *store, const char *mailbox, const char *id,
		   lapse_mail_fn *fn, void *arg)
{
	struct provider_op op;
	int r = mail_enter(store, mailbox, PROVIDER_READ, &op);

	op.mail_id = id;
	if (r == LAPSE_OK && !id)
		r = problem_set(&store->problem, LAPSE_EINVAL, "id", "id is required");
	if (r == LAPSE_OK)
		r = mail_run(store, mailbox, &op);
	if (r == LAPSE_OK)
		mail_show(op.mails, fn, arg);
	return mail_finish(store, &op, r);
}

/* Sending */

static int check_list(const char *const *items, size_t count, const char *name, struct problem *p)
{
	return items || count == 0 ? LAPSE_OK
				   : problem_set(p, LAPSE_EINVAL, name, "%s is required", name);
}

/* The bodies share what one request may have. */
static int check_bodies(const struct lapse_mail_draft *d, int64_t max, struct problem *p)
{
	int r = d->text ? check_text(d->text, max, "text", p) : LAPSE_OK;

	if (r < 0 || !d->html)
		return r;
	return check_text(d->html, max - (int64_t)(d->text ? strlen(d->text) : 0), "html", p);
}

static int mail_take_draft(struct lapse_store *s, const struct lapse_mail_draft *from,
			   struct mail_draft *to)
{
	struct problem *p = &s->problem;

	if (!from)
		return problem_set(p, LAPSE_EINVAL, "draft", "draft is required");
	*to = (struct mail_draft){ .to = { from->to, from->to_count },
				   .cc = { from->cc, from->cc_count },
				   .bcc = { from->bcc, from->bcc_count },
				   .subject = from->subject,
				   .text = from->text,
				   .html = from->html };
	int r = check_list(from->to, from->to_count, "to", p);
	if (r == LAPSE_OK)
		r = check_list(from->cc, from->cc_count, "cc", p);
	if (r == LAPSE_OK)
		r = check_list(from->bcc, from->bcc_count, "bcc", p);
	if (r == LAPSE_OK)
		r = mail_draft_check(to, p);
	return r < 0 ? r : check_bodies(from, s->settings.body_max_bytes, p);
}

int lapse_mail_send(struct lapse_store *store, const char *mailbox,
		    const struct lapse_mail_draft *draft, const char **ret_id)
{
	struct mail_draft taken = { 0 };
	struct provider_op op;
	int r = mail_enter(store, mailbox, PROVIDER_SEND, &op);

	op.draft = &taken;
	if (r == LAPSE_OK)
		r = mail_take_draft(store, draft, &taken);
	if (r == LAPSE_OK)
		r = mail_run(store, mailbox, &op);
	if (r == LAPSE_OK) {
		snprintf(store->mail_id, sizeof(store->mail_id), "%s", op.sent_id);
		if (ret_id)
			*ret_id = store->mail_id;
	}
	key_done(store);
	return mail_finish(store, &op, r);
}
