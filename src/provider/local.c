/* SPDX-License-Identifier: Apache-2.0 */
#include "provider/local.h"

#include <inttypes.h>
#include <string.h>

#include "base/address.h"
#include "base/json.h"
#include "engine/engine.h"

#define PREVIEW_BYTES 200
#define DELIVERY_MAX_BYTES (INT64_C(16) << 20) /* of one send: a copy for each recipient */
#define DELETE_AT_ONCE 100                     /* mails that go with their mailbox at once */

/* Finding recipients */

/* One mailbox that a mail goes to. */
struct target {
	int64_t mailbox;
	const char *owner, *address;
};

/* The condition of the index on addresses is repeated word for word: without it SQLite would walk
 * all active mailboxes. */
static const struct db_stmt FIND = {
	"SELECT id, owner FROM mailboxes WHERE address = $1 "
	"AND (status IN ('provisioning', 'active') OR stalwart_cleanup_failed <> 0) "
	"AND status = 'active' AND provider = 'local' AND expires_at >= $2"
};

static bool is_here(const struct tx *tx, const char *address)
{
	return strcasecmp(strrchr(address, '@') + 1, tx->engine->settings->mailbox_domain) == 0;
}

/* One that has expired does not receive, marked or not. */
static int find_target(struct tx *tx, const char *field, const char *address, struct target *ret,
		       struct problem *p)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FIND);
	char *lower = arena_strdup(&tx->arena, address);

	ascii_lower(lower);
	db_bind_text(&q, 1, lower);
	db_bind_int(&q, 2, tx->now);
	int r = db_step(&q);
	if (r < 0)
		return r;
	if (r == 0 && is_here(tx, address))
		return problem_set(p, LAPSE_EINVAL, field, "%s: %.160s is no live mailbox here",
				   field, address);
	if (r == 0)
		return problem_set(p, LAPSE_EINVAL, field,
				   "%s: %.160s is elsewhere, and the provider local delivers only "
				   "to its own mailboxes",
				   field, address);
	*ret = (struct target){ db_int(&q, 0), arena_strdup(&tx->arena, db_text(&q, 1)), lower };
	return LAPSE_OK;
}

static bool has_target(const struct target *targets, size_t n, int64_t mailbox)
{
	for (size_t i = 0; i < n; i++)
		if (targets[i].mailbox == mailbox)
			return true;
	return false;
}

static int find_targets(struct tx *tx, const struct mail_draft *d, struct target *out,
			size_t *ret_n, struct problem *p)
{
	const struct {
		const char *field;
		const struct mail_addresses *list;
	} lists[] = { { "to", &d->to }, { "cc", &d->cc }, { "bcc", &d->bcc } };
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		for (size_t j = 0; j < lists[i].list->count; j++) {
			struct target found = { 0 };
			int r = find_target(tx, lists[i].field, lists[i].list->items[j], &found, p);
			if (r < 0)
				return r;
			if (!has_target(out, n, found.mailbox))
				out[n++] = found;
		}
	*ret_n = n;
	return LAPSE_OK;
}

/* Writing */

static const struct db_stmt COUNT_IN = {
	"INSERT INTO mailbox_boxes (mailbox, total, unread, gone) VALUES ($1, 1, $2, 0) "
	"ON CONFLICT (mailbox) DO UPDATE SET total = mailbox_boxes.total + 1, "
	"unread = mailbox_boxes.unread + $2 WHERE $2 = 0 OR mailbox_boxes.unread < $3"
};
static const struct db_stmt INSERT = {
	"INSERT INTO mailbox_messages (id, owner, mailbox, folder, sender, recipients, cc, "
	"subject, preview, body, html, received_at, read, read_at) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
};

/* A mail as the table has it. */
struct stored {
	const char *sender, *recipients, *cc, *subject, *preview, *body, *html;
};

static int count_in(struct tx *tx, const struct target *t, bool unread, struct problem *p)
{
	int64_t max = tx->engine->settings->mailbox_unread_max;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_IN);

	db_bind_int(&q, 1, t->mailbox);
	db_bind_int(&q, 2, unread);
	db_bind_int(&q, 3, max);
	int r = db_run(&q);
	if (r == LAPSE_OK && db_changed(&q) == 0)
		return problem_set(p, LAPSE_ELIMIT, "to",
				   "%.160s has %" PRId64 " unread mails (mailbox_unread_max): its "
				   "owner must read some first",
				   t->address, max);
	return r;
}

static int store(struct tx *tx, const struct target *t, enum mail_folder folder,
		 const struct stored *m, int64_t *ret_id, struct problem *p)
{
	bool unread = folder == MAIL_INBOX;
	int r = count_in(tx, t, unread, p);

	if (r < 0)
		return r;
	*ret_id = id_next(&tx->engine->ids, tx->now);
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);
	db_bind_int(&q, 1, *ret_id);
	db_bind_text(&q, 2, t->owner);
	db_bind_int(&q, 3, t->mailbox);
	db_bind_text(&q, 4, unread ? "inbox" : "sent");
	db_bind_text(&q, 5, m->sender);
	db_bind_text(&q, 6, m->recipients);
	db_bind_text(&q, 7, m->cc);
	db_bind_text(&q, 8, m->subject);
	db_bind_text(&q, 9, m->preview);
	db_bind_text(&q, 10, m->body);
	db_bind_text(&q, 11, m->html);
	db_bind_int(&q, 12, tx->now);
	db_bind_int(&q, 13, !unread);
	if (!unread)
		db_bind_int(&q, 14, tx->now);
	else
		db_bind_text(&q, 14, NULL);
	tx_count(tx, "mailbox_messages", 1);
	return db_run(&q);
}

static const char *pack(struct tx *tx, const struct mail_addresses *list)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	json_begin(&out, '[');
	for (size_t i = 0; i < list->count; i++)
		json_text(&out, list->items[i]);
	json_end(&out, ']');
	return arena_strndup(&tx->arena, out.data, out.len);
}

/* A byte of a character of UTF-8 that is not its first. */
static bool continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* The first characters of the text, or of the HTML without its tags, on one line. */
static const char *preview_of(struct tx *tx, const struct mail_draft *d)
{
	const char *s = d->text && d->text[0] ? d->text : d->html ? d->html : "";
	bool html = s == d->html, tag = false;
	char *out = arena_alloc(&tx->arena, PREVIEW_BYTES + 1);
	size_t n = 0;

	for (; *s && n < PREVIEW_BYTES; s++) {
		tag = html && (tag ? *s != '>' : *s == '<');
		bool space = (unsigned char)*s <= ' ' || *s == 0x7f || (html && *s == '>');
		if (tag || (space && (n == 0 || out[n - 1] == ' ')))
			continue;
		out[n++] = *s;
		if (space)
			out[n - 1] = ' ';
	}
	if (continues(*s)) { /* no half character */
		while (n > 0 && continues(out[n - 1]))
			n--;
		n -= n > 0;
	}
	while (n > 0 && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
	return out;
}

static int check_size(const struct stored *m, size_t copies, struct problem *p)
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
	struct target targets[MAIL_RECIPIENTS_MAX];
	struct target self = { op->who.mailbox, op->who.owner, op->who.address };
	struct stored m = { .sender = op->who.address,
			    .recipients = pack(tx, &d->to),
			    .cc = pack(tx, &d->cc),
			    .subject = d->subject,
			    .preview = preview_of(tx, d),
			    .body = d->text,
			    .html = d->html };
	size_t n = 0;
	int64_t id = 0;
	int r = find_targets(tx, d, targets, &n, &op->problem);

	if (r == LAPSE_OK)
		r = check_size(&m, n + 1, &op->problem);
	for (size_t i = 0; r == LAPSE_OK && i < n; i++)
		r = store(tx, &targets[i], MAIL_INBOX, &m, &id, &op->problem);
	if (r == LAPSE_OK)
		r = store(tx, &self, MAIL_SENT, &m, &id, &op->problem);
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

static struct mail read_row(struct arena *arena, const struct db_query *q)
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

/* A read mail past its time is not shown, swept or not. $4 = what it must not be older than. */
#define FOLDER(name)                                                                               \
	"SELECT " COLUMNS " FROM mailbox_messages WHERE mailbox = $1 AND folder = '" name "' "     \
	"AND id < $2 AND (read = 0 OR received_at >= $4) ORDER BY id DESC LIMIT $3"
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
	int64_t before = INT64_MAX;
	int r;

	if (ask->after && !id_parse(ask->after, &before))
		return problem_set(&op->problem, LAPSE_EINVAL, "after",
				   "after is not a cursor: use next_cursor of the page before");
	if (!stmt)
		return LAPSE_OK;
	op->mails = arena_alloc(&op->arena, (size_t)ask->limit * sizeof(*op->mails));
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);
	db_bind_int(&q, 1, op->who.mailbox);
	db_bind_int(&q, 2, before);
	db_bind_int(&q, 3, ask->limit + 1);
	db_bind_int(&q, 4, time_sub(tx->now, tx->engine->settings->message_ttl_ms));
	while ((r = db_step(&q)) > 0) {
		if ((int64_t)op->mails_count == ask->limit) {
			op->next_cursor = op->mails[op->mails_count - 1].id;
			return LAPSE_OK;
		}
		op->mails[op->mails_count++] = read_row(&op->arena, &q);
	}
	return r;
}

static const struct db_stmt GET = { "SELECT " COLUMNS ", body, html FROM mailbox_messages "
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

	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, tx->now);
	int r = db_run(&q);
	if (r < 0 || db_changed(&q) == 0)
		return r;
	struct db_query CLEANUP(db_finish) c = db_query(tx->db, &COUNT_READ);
	db_bind_int(&c, 1, mailbox);
	return db_run(&c);
}

static int read_mail(struct tx *tx, struct provider_op *op, int64_t id, struct mail *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);

	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, op->who.mailbox);
	db_bind_int(&q, 3, time_sub(tx->now, tx->engine->settings->message_ttl_ms));
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	*ret = read_row(&op->arena, &q);
	ret->text = db_is_null(&q, 8) ? NULL : arena_strdup(&op->arena, db_text(&q, 8));
	ret->html = db_is_null(&q, 9) ? NULL : arena_strdup(&op->arena, db_text(&q, 9));
	return LAPSE_OK;
}

/* Who reads a mail has read it: the first look needs a write transaction. */
static int get_mail(struct tx *tx, struct provider_op *op)
{
	struct mail *m = arena_alloc(&op->arena, sizeof(*m));
	int64_t id;
	int r = id_parse(op->mail_id, &id) ? read_mail(tx, op, id, m) : LAPSE_ENOTFOUND;

	if (r == LAPSE_OK && !m->read) {
		if (!tx->write)
			return PROVIDER_NEEDS_WRITE;
		r = mark_read(tx, id, op->who.mailbox);
		m->read = true;
	}
	if (r < 0)
		return r;
	op->mails = m;
	op->mails_count = 1;
	return LAPSE_OK;
}

static int run(struct provider *p, struct tx *tx, struct provider_op *op)
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
		r = get_mail(tx, op);
		break;
	case PROVIDER_SEND:
		r = send_mail(tx, op);
		break;
	}
	op->err = r < 0 ? r : LAPSE_OK;
	return r;
}

const struct provider PROVIDER_LOCAL = { .name = "local", .run = run };

/* Removing */

static const struct db_stmt DELETE_SOME = {
	"DELETE FROM mailbox_messages WHERE id IN (SELECT id FROM mailbox_messages "
	"WHERE mailbox = $1 LIMIT $2)"
};
static const struct db_stmt DROP_BOX = { "DELETE FROM mailbox_boxes WHERE mailbox = $1" };
static const struct db_stmt MARK_GONE = { "UPDATE mailbox_boxes SET gone = 1 WHERE mailbox = $1" };
static const struct db_stmt NEXT_GONE = {
	"SELECT mailbox FROM mailbox_boxes WHERE gone = 1 LIMIT 1"
};

static int run_box(struct tx *tx, const struct db_stmt *stmt, int64_t mailbox)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	db_bind_int(&q, 1, mailbox);
	return db_run(&q);
}

static int delete_some(struct tx *tx, int64_t mailbox, int64_t max, int64_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DELETE_SOME);

	db_bind_int(&q, 1, mailbox);
	db_bind_int(&q, 2, max);
	int r = db_run(&q);
	if (r < 0)
		return r;
	*ret_n = db_changed(&q);
	tx_count(tx, "mailbox_messages", -*ret_n);
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

static int count_out(struct tx *tx, int64_t mailbox, int64_t n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_OUT);

	db_bind_int(&q, 1, mailbox);
	db_bind_int(&q, 2, n);
	return db_run(&q);
}

static int settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0, start = 0; i < n; start = i) {
		while (i < n && strcmp(rows[i].group, rows[start].group) == 0)
			i++;
		int r = count_out(tx, strtoll(rows[start].group, NULL, 10), (int64_t)(i - start));
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

#define OLD                                                                                        \
	"read = 1 AND received_at < $1 AND NOT EXISTS (SELECT 1 FROM holds AS h "                  \
	"WHERE h.tbl = 'mailboxes' AND h.ref = m.mailbox) "

const struct bound LOCAL_MESSAGE_BOUND = {
	.table = "mailbox_messages",
	.scheduler = "mailboxes",
	.bounded_by = "message_ttl_ms after received_at; mailbox_unread_max; its mailbox",
	.due_when = "read and now - received_at > message_ttl_ms, or its mailbox is gone",
	.safety_rule = "While the mailbox lives only read mail is removed, and none of a held one.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.window = offsetof(struct settings, message_ttl_ms),
	.event = EVENT_MESSAGE_PRUNED,
	.reason = "read and older than message_ttl_ms",
	.newest = { "SELECT coalesce(max(id), 0) FROM mailbox_messages" },
	.due = { "SELECT count(*), min(at) FROM (SELECT received_at AS at FROM mailbox_messages "
		 "AS m WHERE " OLD "ORDER BY received_at LIMIT $2)" },
	.prune = { "DELETE FROM mailbox_messages WHERE read = 1 AND received_at < $1 AND id IN ("
		   "SELECT id FROM mailbox_messages AS m WHERE " OLD
		   "AND (received_at, id) > ($2, $3) ORDER BY received_at, id LIMIT $4) "
		   "RETURNING received_at, id, owner, CAST(mailbox AS TEXT), "
		   "coalesce(read_at, 0)" },
	.settle = settle,
};
