/* SPDX-License-Identifier: Apache-2.0 */
#include "provider/local.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/address.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/usage.h"
#include "provider/deliver.h"

#define DELIVERY_MAX_BYTES (INT64_C(16) << 20) /* of one send: a copy for each recipient */
#define DELETE_AT_ONCE 100                     /* mails that go with their mailbox at once */

/* Finding recipients */

static bool is_here(const struct tx *tx, const char *address)
{
	return strcasecmp(strrchr(address, '@') + 1, tx->engine->settings->mailbox_domain) == 0;
}

/* One that has expired does not receive, marked or not. */
static int find_target(struct tx *tx, const char *field, const char *address,
		       struct local_target *ret, struct problem *p)
{
	int r = local_find(tx->db, address, tx->now, &tx->arena, ret);

	assert(tx_is_open(tx));
	if (r == 0 && is_here(tx, address))
		return problem_set(p, LAPSE_EINVAL, field, "%s: %.160s is no live mailbox here",
				   field, address);
	if (r == 0)
		return problem_set(p, LAPSE_EINVAL, field,
				   "%s: %.160s is elsewhere, and the provider local delivers only "
				   "to its own mailboxes",
				   field, address);
	return r < 0 ? r : LAPSE_OK;
}

static bool has_target(const struct local_target *targets, size_t n, int64_t mailbox)
{
	for (size_t i = 0; i < n; i++)
		if (targets[i].mailbox == mailbox)
			return true;
	return false;
}

static int find_targets(struct tx *tx, const struct mail_draft *d, struct local_target *out,
			size_t *ret_n, struct problem *p)
{
	const struct {
		const char *field;
		const struct mail_addresses *list;
	} lists[] = { { "to", &d->to }, { "cc", &d->cc }, { "bcc", &d->bcc } };
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		for (size_t j = 0; j < lists[i].list->count; j++) {
			struct local_target found = { 0 };
			int r = find_target(tx, lists[i].field, lists[i].list->items[j], &found, p);
			if (r < 0)
				return r;
			if (!has_target(out, n, found.mailbox))
				out[n++] = found;
		}
	*ret_n = n;
	return LAPSE_OK;
}

/* Sending */

static int check_mail_size(const struct local_mail *m, size_t copies, struct problem *p)
{
	int64_t each = (int64_t)((m->body ? strlen(m->body) : 0) + (m->html ? strlen(m->html) : 0) +
				 strlen(m->subject));

	if (each * (int64_t)copies > DELIVERY_MAX_BYTES)
		return problem_set(p, LAPSE_ETOOLARGE, "to",
				   "%zu copies of this mail are more than %" PRId64
				   " bytes: send it to fewer at once",
				   copies, DELIVERY_MAX_BYTES);
	return LAPSE_OK;
}

static int send_mail(struct tx *tx, struct provider_op *op)
{
	const struct mail_draft *d = op->draft;
	struct local_target targets[MAIL_RECIPIENTS_MAX];
	struct local_target self = { .mailbox = op->who.mailbox,
				     .owner = op->who.owner,
				     .address = op->who.address };
	struct local_mail m = { .sender = op->who.address,
				.recipients = local_pack(&tx->arena, &d->to),
				.cc = local_pack(&tx->arena, &d->cc),
				.subject = d->subject,
				.preview = local_preview(&tx->arena, d->text, d->html),
				.body = d->text,
				.html = d->html };
	size_t n = 0;
	int64_t id = 0;
	int r = find_targets(tx, d, targets, &n, &op->problem);

	if (r == LAPSE_OK)
		r = check_mail_size(&m, n + 1, &op->problem);
	for (size_t i = 0; r == LAPSE_OK && i < n; i++)
		r = local_store(tx, &targets[i], MAIL_INBOX, &m, &id, &op->problem);
	if (r == LAPSE_OK)
		r = local_store(tx, &self, MAIL_SENT, &m, &id, &op->problem);
	if (r < 0)
		return r;
	char *text = arena_alloc(&op->arena, ID_TEXT_LEN + 1);
	id_format(id, text);
	op->sent_id = text;
	return LAPSE_OK;
}

/* Reading */

#define COLUMNS "id, sender, recipients, cc, subject, preview, received_at, read"

static struct mail_addresses unpack(struct arena *arena, const char *json)
{
	json_t *CLEANUP(json_freep) array = json_loads(json, 0, NULL);
	size_t n = json_array_size(array);
	const char **items = arena_alloc(arena, n * sizeof(*items));

	for (size_t i = 0; i < n; i++)
		items[i] = arena_strdup(arena, json_string_value(json_array_get(array, i)));
	return (struct mail_addresses){ items, n };
}

static struct mail read_mail_row(struct arena *arena, const struct db_query *q)
{
	char *id = arena_alloc(arena, ID_TEXT_LEN + 1);

	id_format(db_int(q, 0), id);
	return (struct mail){ .id = id,
			      .from = arena_strdup(arena, db_text(q, 1)),
			      .to = unpack(arena, db_text(q, 2)),
			      .cc = unpack(arena, db_text(q, 3)),
			      .subject = arena_strdup(arena, db_text(q, 4)),
			      .preview = arena_strdup(arena, db_text(q, 5)),
			      .received_at = db_int(q, 6),
			      .read = db_int(q, 7) != 0 };
}

/* A read mail past its time is not shown, swept or not. $4 = what it must not be older than, $5 =
 * the mail it must be newer than. */
#define FOLDER(name)                                                                               \
	"SELECT " COLUMNS " FROM mailbox_messages WHERE mailbox = $1 AND folder = '" name "' "     \
	"AND id < $2 AND id > $5 AND (read = 0 OR received_at >= $4) ORDER BY id DESC LIMIT $3"
static const struct db_stmt LIST_INBOX = { FOLDER("inbox") };
static const struct db_stmt LIST_SENT = { FOLDER("sent") };
static const struct db_stmt LIST_ALL = { "SELECT * FROM (" FOLDER(
	"inbox") ") AS i UNION ALL "
		 "SELECT * FROM (" FOLDER("sent") ") AS s "
						  "ORDER BY 1 DESC LIMIT $3" };

static const struct db_stmt *list_of(enum mail_folder folder)
{
	switch (folder) {
	case MAIL_INBOX:
		return &LIST_INBOX;
	case MAIL_SENT:
		return &LIST_SENT;
	case MAIL_ALL:
		return &LIST_ALL;
	case MAIL_DRAFTS:
	case MAIL_JUNK:
		break;
	}
	return NULL; /* a folder that is always empty */
}

static int list_mails(struct tx *tx, struct provider_op *op)
{
	const struct mail_query *ask = &op->query;
	const struct db_stmt *stmt = list_of(ask->folder);
	int64_t before = INT64_MAX, since = 0;
	int r;

	assert(tx_is_open(tx));
	if (ask->after && !id_parse(ask->after, &before))
		return problem_set(&op->problem, LAPSE_EINVAL, "after",
				   "after is not a cursor: use next_cursor of the page before");
	if (ask->since && !id_parse(ask->since, &since))
		return problem_set(&op->problem, LAPSE_EINVAL, "since",
				   "since is not the id of a mail here");
	if (!stmt)
		return LAPSE_OK;
	op->mails = arena_alloc(&op->arena, (size_t)ask->limit * sizeof(*op->mails));
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);
	db_bind_int(&q, 1, op->who.mailbox);
	db_bind_int(&q, 2, before);
	db_bind_int(&q, 3, ask->limit + 1);
	db_bind_int(&q, 4, time_sub(tx->now, tx->engine->settings->message_ttl_ms));
	db_bind_int(&q, 5, since);
	while ((r = db_step(&q)) > 0) {
		if ((int64_t)op->mails_count == ask->limit) {
			op->next_cursor = op->mails[op->mails_count - 1].id;
			return LAPSE_OK;
		}
		op->mails[op->mails_count++] = read_mail_row(&op->arena, &q);
	}
	return r;
}

static const struct db_stmt GET = { "SELECT " COLUMNS
				    ", body, html, attachments, truncated FROM mailbox_messages "
				    "WHERE id = $1 AND mailbox = $2 "
				    "AND (read = 0 OR received_at >= $3)" };
static const struct db_stmt MARK = {
	"UPDATE mailbox_messages SET read = 1, read_at = $2 WHERE id = $1 AND read = 0"
};
static const struct db_stmt COUNT_READ = {
	"UPDATE mailbox_boxes SET unread = unread - 1 WHERE mailbox = $1"
};

static int mark_read(struct tx *tx, int64_t id, int64_t mailbox)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &MARK);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, tx->now);
	int r = db_run(&q);
	if (r < 0 || db_changed(&q) == 0)
		return r;
	struct db_query CLEANUP(db_finish) c = db_query(tx->db, &COUNT_READ);
	db_bind_int(&c, 1, mailbox);
	return db_post(&c, DB_ANY);
}

static int read_mail(struct tx *tx, struct provider_op *op, int64_t id, struct mail *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, op->who.mailbox);
	db_bind_int(&q, 3, time_sub(tx->now, tx->engine->settings->message_ttl_ms));
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	*ret = read_mail_row(&op->arena, &q);
	ret->text = db_is_null(&q, 8) ? NULL : arena_strdup(&op->arena, db_text(&q, 8));
	ret->html = db_is_null(&q, 9) ? NULL : arena_strdup(&op->arena, db_text(&q, 9));
	ret->files = arena_strdup(&op->arena, db_text(&q, 10));
	ret->truncated = db_int(&q, 11) != 0;
	return LAPSE_OK;
}

static int get_mail(struct tx *tx, struct provider_op *op)
{
	struct mail *m = arena_alloc(&op->arena, sizeof(*m));
	int64_t id;
	int r = id_parse(op->mail_id, &id) ? read_mail(tx, op, id, m) : LAPSE_ENOTFOUND;

	if (r == LAPSE_OK && op->verb == PROVIDER_READ && !m->read) {
		if (!tx->write)
			return TX_NEEDS_WRITE;
		r = mark_read(tx, id, op->who.mailbox);
		m->read = true;
	}
	if (r < 0)
		return r;
	op->mails = m;
	op->mails_count = 1;
	return LAPSE_OK;
}

static int local_run(struct provider *p, struct tx *tx, struct provider_op *op)
{
	bool left = false;
	int r = LAPSE_OK;

	(void)p;
	switch (op->verb) {
	case PROVIDER_CREATE: /* the mailbox's row is all there is */
		break;
	case PROVIDER_DELETE:
		r = local_delete(tx, op->who.mailbox, &left);
		break;
	case PROVIDER_LIST:
		r = list_mails(tx, op);
		break;
	case PROVIDER_GET:
	case PROVIDER_READ:
		r = get_mail(tx, op);
		break;
	case PROVIDER_SEND:
		r = send_mail(tx, op);
		break;
	}
	op->err = r < 0 ? r : LAPSE_OK;
	return r;
}

const struct provider PROVIDER_LOCAL = { .name = "local", .run = local_run };

/* Removing */

static const struct db_stmt DELETE_SOME = {
	"DELETE FROM mailbox_messages WHERE id IN (SELECT id FROM mailbox_messages "
	"WHERE mailbox = $1 LIMIT $2) RETURNING owner, bytes"
};
static const struct db_stmt DROP_BOX = { "DELETE FROM mailbox_boxes WHERE mailbox = $1" };
static const struct db_stmt MARK_GONE = { "UPDATE mailbox_boxes SET gone = 1 WHERE mailbox = $1" };
static const struct db_stmt NEXT_GONE = {
	"SELECT mailbox FROM mailbox_boxes WHERE gone = 1 LIMIT 1"
};

static int run_box(struct tx *tx, const struct db_stmt *stmt, int64_t mailbox)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, mailbox);
	return db_post(&q, DB_ANY);
}

static int delete_some(struct tx *tx, int64_t mailbox, int64_t max, int64_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DELETE_SOME);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, mailbox);
	db_bind_int(&q, 2, max);
	int64_t n = 0;
	int r;
	for (; (r = db_step(&q)) > 0; n++)
		usage_take_off(tx, db_text(&q, 0), QUOTA_STORED_BYTES, db_int(&q, 1));
	if (r < 0)
		return r;
	tx_count(tx, &LOCAL_MESSAGE_BOUND, -n);
	*ret_n = n;
	return LAPSE_OK;
}

int local_delete(struct tx *tx, int64_t mailbox, bool *ret_left)
{
	int64_t n = 0;
	int r = delete_some(tx, mailbox, DELETE_AT_ONCE, &n);

	if (r < 0)
		return r;
	*ret_left = n == DELETE_AT_ONCE;
	return run_box(tx, *ret_left ? &MARK_GONE : &DROP_BOX, mailbox);
}

/* 1 = there is one. */
static int next_gone(struct tx *tx, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &NEXT_GONE);
	int r = db_step(&q);

	assert(tx_is_open(tx));
	if (r > 0)
		*ret = db_int(&q, 0);
	return r;
}

int local_has_gone(struct tx *tx, bool *ret)
{
	int64_t mailbox;
	int r = next_gone(tx, &mailbox);

	*ret = r > 0;
	return r < 0 ? r : LAPSE_OK;
}

int local_purge(struct tx *tx, lapse_us stop, bool *ret_more)
{
	int64_t mailbox = 0, n = 0;
	int r;

	while ((r = next_gone(tx, &mailbox)) > 0) {
		r = delete_some(tx, mailbox, DELETE_AT_ONCE, &n);
		if (r == LAPSE_OK && n < DELETE_AT_ONCE)
			r = run_box(tx, &DROP_BOX, mailbox);
		if (r < 0)
			return r;
		if (clock_mono(tx->engine->clock) >= stop)
			break;
	}
	if (r < 0)
		return r;
	return local_has_gone(tx, ret_more);
}

/* The bound */

static const struct db_stmt COUNT_OUT = {
	"UPDATE mailbox_boxes SET total = total - $2 WHERE mailbox = $1"
};

static int count_mail_out(struct tx *tx, int64_t mailbox, int64_t n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_OUT);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, mailbox);
	db_bind_int(&q, 2, n);
	return db_post(&q, DB_ANY);
}

static int settle_local_mail(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0, start = 0; i < n; start = i) {
		while (i < n && strcmp(rows[i].group, rows[start].group) == 0)
			i++;
		int r = count_mail_out(tx, strtoll(rows[start].group, NULL, 10),
				       (int64_t)(i - start));
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

const struct bound_spec LOCAL_MESSAGE_BOUND = {
	.name = "mailbox_messages",
	.scheduler = "mailboxes",
	.bounded_by =
		"message_ttl_ms after received_at; mailbox_unread_max; stored_bytes_per_owner; its "
		"mailbox",
	.due_when = "read and now - received_at > message_ttl_ms, or its mailbox is gone",
	.safety_rule = "While the mailbox lives only read mail is removed, and none of a held one.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "received_at",
	.window = "message_ttl_ms",
	.only = BOUND_ONLY(IS_INT("read", 1)),
	.held_as = "mailboxes",
	.held_by = "mailbox",
	.event = "message.pruned",
	.reason = "read and older than message_ttl_ms",
	.owner = "owner",
	.shown = BOUND_COLUMNS("sender", "folder"),
	.group = "mailbox",
	.since = "read_at",
	.bytes = "bytes",
	.settle = settle_local_mail,
};
