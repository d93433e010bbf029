/* SPDX-License-Identifier: Apache-2.0 */
#include "provider/deliver.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "api/wait.h"
#include "base/address.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/usage.h"
#include "provider/local.h"

#define PREVIEW_BYTES 200

/* Who has the address */

/* The condition of the index on addresses is repeated word for word: without it SQLite would walk
 * all active mailboxes. */
static const struct db_stmt FIND = {
	"SELECT id, owner, expires_at FROM mailboxes WHERE address = $1 "
	"AND (status IN ('provisioning', 'active') OR stalwart_cleanup_failed <> 0) "
	"AND status = 'active' AND provider = 'local' AND expires_at >= $2"
};

int local_find(struct db *db, const char *address, lapse_ms now, struct arena *arena,
	       struct local_target *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &FIND);
	char *lower = arena_strdup(arena, address);

	ascii_lower(lower);
	db_bind_text(&q, 1, lower);
	db_bind_int(&q, 2, now);
	int r = db_step(&q);
	if (r > 0)
		*ret = (struct local_target){ .mailbox = db_int(&q, 0),
					      .owner = arena_strdup(arena, db_text(&q, 1)),
					      .address = lower,
					      .expires_at = db_int(&q, 2) };
	return r;
}

/* Those who wait for mail */

const char *local_wait_key(struct arena *arena, int64_t mailbox)
{
	return arena_printf(arena, "mail/%" PRIx64, mailbox);
}

void local_wake(struct tx *tx, int64_t mailbox)
{
	if (waiters_may_exist(tx->engine))
		waiters_wake_later(tx, local_wait_key(&tx->arena, mailbox));
}

/* One row */

static const struct db_stmt COUNT_IN = {
	"INSERT INTO mailbox_boxes (mailbox, total, unread, gone) VALUES ($1, 1, $2, 0) "
	"ON CONFLICT (mailbox) DO UPDATE SET total = mailbox_boxes.total + 1, "
	"unread = mailbox_boxes.unread + $2 WHERE $2 = 0 OR mailbox_boxes.unread < $3"
};
static const struct db_stmt INSERT = {
	"INSERT INTO mailbox_messages (id, owner, mailbox, folder, sender, recipients, cc, "
	"subject, preview, body, html, received_at, read, read_at, attachments, truncated, bytes) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"
};

static int local_count_in(struct tx *tx, const struct local_target *t, bool unread,
			  struct problem *p)
{
	int64_t max = tx->engine->settings->mailbox_unread_max;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_IN);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, t->mailbox);
	db_bind_int(&q, 2, unread);
	db_bind_int(&q, 3, max);
	int r = db_post(&q, DB_ONE_OR(LAPSE_ELIMIT));
	if (r == LAPSE_ELIMIT)
		return problem_set(p, r, "to",
				   "%.160s has %" PRId64 " unread mails (mailbox_unread_max): its "
				   "owner must read some first",
				   t->address, max);
	return r;
}

#define ROW_BYTES 200 /* of the owner's stored bytes that even an empty mail takes */

static int64_t local_bytes(const struct local_mail *m)
{
	const char *const texts[] = { m->sender,  m->recipients, m->cc,   m->subject,
				      m->preview, m->body,       m->html, m->files };
	int64_t n = ROW_BYTES;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		n += texts[i] ? (int64_t)strlen(texts[i]) : 0;
	return n;
}

/* Whoever sends it need not know whose mailbox it is. */
static int local_take_room(struct tx *tx, const struct local_target *t, const struct local_mail *m,
			   struct problem *p)
{
	int r = usage_admit(tx, t->owner, QUOTA_STORED_BYTES, local_bytes(m), p);

	if (r == LAPSE_OK)
		usage_add(tx, t->owner, QUOTA_STORED_BYTES, local_bytes(m));
	if (r != LAPSE_ELIMIT)
		return r;
	return problem_set(p, r, "to",
			   "%.160s has no room: the messages and mails of its owner have reached "
			   "their limit (stored_bytes_per_owner, or a quota)",
			   t->address);
}

static int local_insert(struct tx *tx, const struct local_target *t, bool unread,
			const struct local_mail *m, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
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
	db_bind_text(&q, 15, m->files ? m->files : "[]");
	db_bind_int(&q, 16, m->truncated);
	db_bind_int(&q, 17, local_bytes(m));
	tx_count(tx, &LOCAL_MESSAGE_BOUND, 1);
	return db_post(&q, DB_ONE);
}

static int local_announce(struct tx *tx, const struct local_target *t, const struct local_mail *m,
			  int64_t id)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	char mailbox[sizeof("mbx_") + ID_TEXT_LEN];

	id_format(t->mailbox, stpcpy(mailbox, "mbx_"));
	json_begin(&data, '{');
	json_put_text(&data, "id", mailbox);
	json_put_text(&data, "address", t->address);
	json_put_id(&data, "message_id", id);
	json_put_text(&data, "from", m->sender);
	json_put_text(&data, "subject", m->subject);
	json_end(&data, '}');
	return event_add(tx, t->owner, EVENT_MAILBOX_RECEIVED, &data);
}

int local_store(struct tx *tx, const struct local_target *t, enum mail_folder folder,
		const struct local_mail *m, int64_t *ret_id, struct problem *p)
{
	bool unread = folder == MAIL_INBOX;
	int r = local_count_in(tx, t, unread, p);

	if (r == LAPSE_OK)
		r = local_take_room(tx, t, m, p);
	assert(folder == MAIL_INBOX || folder == MAIL_SENT);
	assert(m->sender && m->recipients && m->cc && m->subject && m->preview);
	if (r < 0)
		return r;
	int64_t id = id_next(&tx->engine->ids, tx->now);
	r = local_insert(tx, t, unread, m, id);
	if (r == LAPSE_OK && unread) {
		local_wake(tx, t->mailbox);
		r = local_announce(tx, t, m, id);
	}
	if (r == LAPSE_OK)
		*ret_id = id;
	return r;
}

const char *local_pack(struct arena *arena, const struct mail_addresses *list)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	json_begin(&out, '[');
	for (size_t i = 0; i < list->count; i++)
		json_text(&out, list->items[i]);
	json_end(&out, ']');
	return arena_strndup(arena, out.data, out.len);
}

/* A byte of a character of UTF-8 that is not its first. */
static bool continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

const char *local_preview(struct arena *arena, const char *text, const char *html)
{
	const char *s = text && text[0] ? text : html ? html : "";
	bool is_html = s == html, tag = false;
	char *out = arena_alloc(arena, PREVIEW_BYTES + 1);
	size_t n = 0;

	for (; *s && n < PREVIEW_BYTES; s++) {
		tag = is_html && (tag ? *s != '>' : *s == '<');
		bool space = (unsigned char)*s <= ' ' || *s == 0x7f || (is_html && *s == '>');
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
