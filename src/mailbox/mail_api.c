/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mail of a mailbox: decode, call, encode. With a provider in the store an answer is complete
 * at once; with one outside the handler waits for it and looks at the mailbox again before it
 * answers.
 */
#include "mailbox/api.h"

#include <assert.h>

#include "mailbox/mail.h"
#include "mailbox/outside.h"
#include "provider/deliver.h"

#define BODY_MAX (INT64_C(64) << 20) /* the request's own limit comes first */
#define WAIT_MAX_MS 60000
#define MAIL_POLL_MS 2000 /* between two questions to a mail server while a call waits */

/* Writing */

static void write_addresses(struct buf *out, const char *key, const struct mail_addresses *list)
{
	json_key(out, key);
	json_begin(out, '[');
	for (size_t i = 0; i < list->count; i++)
		json_text(out, list->items[i]);
	json_end(out, ']');
}

static void write_mail(struct buf *out, const struct mail *m, bool whole)
{
	json_begin(out, '{');
	json_put_text(out, "id", m->id);
	json_put_text(out, "from", m->from);
	write_addresses(out, "to", &m->to);
	write_addresses(out, "cc", &m->cc);
	json_put_text(out, "subject", m->subject);
	json_put_text(out, "preview", m->preview ? m->preview : "");
	json_put_time(out, "received_at", m->received_at);
	json_put_bool(out, "read", m->read);
	if (whole) {
		json_put_text(out, "body", m->text);
		json_put_text(out, "html", m->html);
		json_put_bool(out, "truncated", m->truncated);
		if (m->files)
			json_put_raw(out, "attachments", m->files);
	}
	json_end(out, '}');
}

/* The answer to an operation that went well. */
static void write_answer(struct buf *out, const struct provider_op *op)
{
	if (op->verb == PROVIDER_GET || op->verb == PROVIDER_READ) {
		write_mail(out, &op->mails[0], true);
		return;
	}
	json_begin(out, '{');
	if (op->verb == PROVIDER_SEND) {
		json_put_text(out, "message_id", op->sent_id);
		json_put_text(out, "status", "sent");
		json_end(out, '}');
		return;
	}
	json_key(out, "data");
	json_begin(out, '[');
	for (size_t i = 0; i < op->mails_count; i++)
		write_mail(out, &op->mails[i], false);
	page_close(out, op->next_cursor);
}

/* The query of a list */

struct mails_query {
	struct page page;
	const char *folder, *since;
	int64_t wait_ms;
};

const struct json_field MAILBOX_MAILS_QUERY[] = {
	{ "limit", FIELD_INT, false, offsetof(struct mails_query, page.limit), 1, LIMIT_MAX,
	  "items per page (default 20)" },
	{ "after", FIELD_TEXT, false, offsetof(struct mails_query, page.after), 1, 400,
	  "next_cursor of the page before" },
	{ "folder", FIELD_TEXT, false, offsetof(struct mails_query, folder), 1, 16,
	  "inbox (default), sent, drafts, junk or all" },
	{ "since", FIELD_LABEL, false, offsetof(struct mails_query, since), 1, MAIL_ID_MAX,
	  "id of a mail: only newer ones" },
	{ "wait_ms", FIELD_INT, false, offsetof(struct mails_query, wait_ms), 0, WAIT_MAX_MS,
	  "wait so long for the first mail when there is none" },
	{ 0 },
};

static int mails_query_take(struct call *c, struct mails_query *ret, struct mail_query *ret_ask)
{
	*ret = (struct mails_query){ .page.limit = LIMIT_DEFAULT, .folder = "inbox" };
	int r = call_query(c, MAILBOX_MAILS_QUERY, ret);
	if (r == LAPSE_OK)
		r = mail_folder_parse(ret->folder, &ret_ask->folder, &c->problem);
	ret_ask->limit = ret->page.limit;
	ret_ask->after = ret->page.after;
	ret_ask->since = ret->since;
	return r;
}

/* Waiting for mail */

/* No longer than the mailbox lives; one that is held lives on after its deadline. A mail server
 * does not tell us what arrives, so it is asked again. LAPSE_OK = the time is over. */
static int mail_wait(struct call *c, const struct mailbox *m, bool outside)
{
	struct mails_query query;
	struct mail_query ask;
	int r = mails_query_take(c, &query, &ask);
	lapse_ms left = r < 0 ? 0 : call_wait_left(c, query.wait_ms);
	lapse_ms lives = time_sub(m->expires_at, c->tx->now);

	assert(m->id > 0 && left >= 0);
	if (r < 0 || left == 0)
		return r;
	if (lives > 0 && lives < left)
		left = lives;
	if (outside && left > MAIL_POLL_MS)
		left = MAIL_POLL_MS;
	c->next = mailbox_api_mails;
	return call_park(c, local_wait_key(&c->arena, m->id), left);
}

/* Running */

static int mail_call_finish(struct call *c)
{
	struct outside_call *x = c->state;
	struct mailbox m = { 0 };
	int r = LAPSE_OK;

	/* A mail that was sent was sent. Otherwise a mailbox that has expired meanwhile is the
	 * answer, not what the server said or that it did not know the account any more. */
	if (x->op.verb != PROVIDER_SEND || x->err < 0)
		r = mailbox_look(c->tx, c->owner, c->params[0], MAILBOX_OPERATE, &c->arena, &m,
				 &c->problem);
	if (r == TX_NEEDS_WRITE || r == TX_AGAIN)
		c->next = mail_call_finish;
	if (r == LAPSE_OK)
		r = outside_result(x, &c->problem);
	if (r != LAPSE_OK)
		return mail_explain(x->op.verb, r, &c->problem);
	if (x->op.verb == PROVIDER_LIST && x->op.mails_count == 0) {
		r = mail_wait(c, &m, true);
		if (r != LAPSE_OK)
			return r;
	}
	buf_puts(&c->reply, x->answer);
	return LAPSE_OK;
}

static void take_answer(struct outside_call *x)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	write_answer(&out, &x->op);
	x->answer = arena_strndup(x->arena, out.data, out.len);
}

static int run_outside(struct call *c, const struct mailbox *m, const struct provider_op *ask)
{
	struct outside_call *x = mailbox_api_outside(c, ask->verb, m);
	int r = outside_start(x, c->tx, &c->problem);

	x->op.query = ask->query;
	x->op.mail_id = ask->mail_id;
	x->op.draft = ask->draft;
	x->take = take_answer;
	return r < 0 ? r : call_await(c, mail_call_finish);
}

static int answer_here(struct call *c, const struct mailbox *m, const struct provider_op *op)
{
	if (op->verb == PROVIDER_LIST && op->mails_count == 0) {
		int r = mail_wait(c, m, false);
		if (r != LAPSE_OK)
			return r;
	}
	write_answer(&c->reply, op);
	return LAPSE_OK;
}

/* The mailbox must live; then its provider is asked. */
static int mail_call_run(struct call *c, struct provider_op *op)
{
	struct mailbox m;
	int r = mailbox_mail(c->tx, c->owner, c->params[0], &c->arena, op, &m, &c->problem);

	if (r == LAPSE_OK)
		r = answer_here(c, &m, op);
	else if (r == MAIL_IS_OUTSIDE)
		r = run_outside(c, &m, op);
	provider_op_done(op);
	return r;
}

/* Reading */

int mailbox_api_mails(struct call *c)
{
	struct provider_op op = { .verb = PROVIDER_LIST };
	struct mails_query query;
	int r = mails_query_take(c, &query, &op.query);

	if (r < 0)
		return r;
	if (c->stopping && c->runs > 1) { /* nothing has come, and no server is asked any more */
		write_answer(&c->reply, &op);
		return LAPSE_OK;
	}
	provider_op_init(&op, PROVIDER_LIST);
	return mail_call_run(c, &op);
}

static int mail_read_one(struct call *c, enum provider_verb verb)
{
	struct provider_op op = { 0 };

	provider_op_init(&op, verb);
	op.mail_id = c->params[1];
	return mail_call_run(c, &op);
}

int mailbox_api_mail(struct call *c)
{
	return mail_read_one(c, PROVIDER_GET);
}

int mailbox_api_read_mail(struct call *c)
{
	return mail_read_one(c, PROVIDER_READ);
}

/* Sending */

struct send_body {
	json_t *to, *cc, *bcc;
	const char *subject, *body, *html;
};

const struct json_field MAILBOX_SEND_BODY[] = {
	{ "to", FIELD_TEXTS, true, offsetof(struct send_body, to), 1, MAIL_RECIPIENTS_MAX,
	  "an address, or several" },
	{ "subject", FIELD_LABEL, true, offsetof(struct send_body, subject), 0, MAIL_SUBJECT_MAX,
	  "one line" },
	{ "body", FIELD_TEXT, false, offsetof(struct send_body, body), 0, BODY_MAX,
	  "the text; empty when there is no html either" },
	{ "html", FIELD_TEXT, false, offsetof(struct send_body, html), 0, BODY_MAX,
	  "the text as HTML" },
	{ "cc", FIELD_TEXTS, false, offsetof(struct send_body, cc), 0, MAIL_RECIPIENTS_MAX,
	  "addresses that get a copy" },
	{ "bcc", FIELD_TEXTS, false, offsetof(struct send_body, bcc), 0, MAIL_RECIPIENTS_MAX,
	  "addresses that get a copy; other recipients do not see them" },
	{ 0 },
};

static struct mail_addresses addresses_of_body(struct call *c, const json_t *list)
{
	size_t n = json_is_string(list) ? 1 : json_array_size(list);
	const char **items = arena_alloc(&c->arena, n * sizeof(*items));

	for (size_t i = 0; i < n; i++)
		items[i] = json_string_value(json_is_string(list) ? list : json_array_get(list, i));
	return (struct mail_addresses){ items, n };
}

static int take_draft(struct call *c, struct mail_draft *d)
{
	struct send_body body = { 0 };
	int r = call_body(c, MAILBOX_SEND_BODY, &body);

	if (r < 0)
		return r;
	*d = (struct mail_draft){ .to = addresses_of_body(c, body.to),
				  .cc = addresses_of_body(c, body.cc),
				  .bcc = addresses_of_body(c, body.bcc),
				  .subject = body.subject,
				  .text = body.body,
				  .html = body.html };
	return mail_draft_check(d, &c->problem);
}

int mailbox_api_send(struct call *c)
{
	struct mail_draft *draft = arena_alloc(&c->arena, sizeof(*draft));
	struct provider_op op = { 0 };
	int r = take_draft(c, draft);

	if (r < 0)
		return r;
	provider_op_init(&op, PROVIDER_SEND);
	op.draft = draft;
	return mail_call_run(c, &op);
}
