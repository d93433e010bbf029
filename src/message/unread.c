/* SPDX-License-Identifier: Apache-2.0 */
#include "message/unread.h"

#include <assert.h>
#include <inttypes.h>

#include "base/settings.h"
#include "engine/engine.h"
#include "engine/usage.h"
#include "message/row.h"
#include "store/sql.h"

struct tail *tail_of(const struct engine *e)
{
	struct tail *t = engine_room(e, ROOM_MESSAGE);

	assert(t && t->magic == TAIL_MAGIC);
	return t;
}

static struct tail_inbox *inbox_of(const struct tx *tx, const char *owner, const char *agent)
{
	return tail_find(tail_of(tx->engine), owner, agent);
}

/* Changes of the memory, each with its undo */

struct tail_change {
	struct tail_inbox *inbox;
	int64_t id;
	int64_t before; /* what to go back to */
};

static void change_note(struct tx *tx, effect_fn *undo, struct tail_inbox *i, int64_t id,
			int64_t before)
{
	struct tail_change *c = tx_alloc(tx, sizeof(*c));

	*c = (struct tail_change){ .inbox = i, .id = id, .before = before };
	tx_undo(tx, undo, c);
}

static void undo_open(struct engine *e, void *arg)
{
	tail_close(tail_of(e), ((struct tail_change *)arg)->inbox);
}

static void undo_add(struct engine *e, void *arg)
{
	tail_take_back(tail_of(e), ((struct tail_change *)arg)->inbox);
}

static void undo_hide(struct engine *e, void *arg)
{
	const struct tail_change *c = arg;

	tail_show(tail_of(e), c->inbox, c->id);
}

static void undo_claim(struct engine *e, void *arg)
{
	const struct tail_change *c = arg;
	struct tail_entry *entry = tail_entry_of(c->inbox, c->id);

	(void)e;
	assert(entry);
	entry->claimed_until = c->before;
}

static void undo_filed_unread(struct engine *e, void *arg)
{
	const struct tail_change *c = arg;

	(void)e;
	c->inbox->filed_unread = c->before;
}

static void tidy_tail(struct engine *e, void *arg)
{
	(void)arg;
	tail_tidy(tail_of(e));
}

/* The caller has tidy_tail() run at the commit. */
static void hide_in_tail(struct tx *tx, struct tail_inbox *i, int64_t id)
{
	change_note(tx, undo_hide, i, id, 0);
	tail_hide(tail_of(tx->engine), i, id);
}

static void change_filed(struct tx *tx, struct tail_inbox *i, int64_t by)
{
	change_note(tx, undo_filed_unread, i, 0, i->filed_unread);
	i->filed_unread += by;
	assert(i->filed_unread >= 0);
}

/* Adding */

static const struct db_stmt COUNT_IN = {
	"INSERT INTO inboxes (owner, agent, total, unread) VALUES ($1, $2, 1, 1) "
	"ON CONFLICT (owner, agent) DO UPDATE SET total = inboxes.total + 1, "
	"unread = inboxes.unread + 1 WHERE inboxes.unread < $3 RETURNING total"
};

static int refuse_unread(const char *agent, int64_t max, struct problem *p)
{
	return problem_set(p, LAPSE_ELIMIT, "to",
			   "%.128s has %" PRId64
			   " unread messages (unread_max_per_agent): it must read some first",
			   agent, max);
}

static const struct db_stmt FILED_UNREAD = {
	"SELECT unread FROM inboxes WHERE owner = $1 AND agent = $2"
};

/* 1 = the inbox is there: *ret_unread of its messages are filed and unread. */
static int find_inbox(struct db *db, const char *owner, const char *agent, int64_t *ret_unread)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &FILED_UNREAD);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	int r = db_step(&q);
	if (r > 0)
		*ret_unread = db_int(&q, 0);
	return r;
}

/* An inbox that was there a moment ago, unless the memory of it is of another one. */
static const struct db_stmt COUNT_MORE = {
	"UPDATE inboxes SET total = total + 1, unread = unread + 1 "
	"WHERE owner = $1 AND agent = $2 AND unread < $3"
};

/* LAPSE_ELIMIT = it is full, or not there. */
static int count_more(struct tx *tx, const char *owner, const char *agent, int64_t max)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_MORE);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, max);
	return db_post(&q, DB_ONE_OR(LAPSE_ELIMIT));
}

/* Whether the owner may have this inbox: it has it already, or there is room for one more. */
static int admit_inbox(struct tx *tx, const char *owner, const char *agent, struct problem *p)
{
	struct problem full = { 0 };
	int64_t unread;

	if (usage_admit(tx, owner, QUOTA_INBOXES, 1, &full) == LAPSE_OK)
		return LAPSE_OK;
	int r = find_inbox(tx->db, owner, agent, &unread);
	if (r == 0)
		*p = full;
	return r < 0 ? r : r > 0 ? LAPSE_OK : LAPSE_ELIMIT;
}

/* The statement itself refuses when the inbox is full; the first message makes an inbox. */
static int admit_slowly(struct tx *tx, const char *owner, const char *agent, int64_t max,
			struct problem *p)
{
	int r = admit_inbox(tx, owner, agent, p);

	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_IN);
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, max);
	r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : refuse_unread(agent, max, p);
	assert(db_int(&q, 0) > 0);
	if (db_int(&q, 0) == 1)
		usage_add(tx, owner, QUOTA_INBOXES, 1);
	return LAPSE_OK;
}

/* Nothing is waited for while messages go to inboxes that are known and not full. A guess that was
 * wrong is forgotten at once, whatever becomes of the transaction. */
static int admit_row(struct tx *tx, const char *owner, const char *agent, int64_t max,
		     struct problem *p)
{
	struct known *k = &tail_of(tx->engine)->known;
	uint64_t name = known_name(owner, agent);

	if (known_has(k, name)) {
		int r = count_more(tx, owner, agent, max);
		if (r != LAPSE_ELIMIT)
			return r;
		known_drop(k, name);
	}
	int r = admit_slowly(tx, owner, agent, max, p);
	if (r == LAPSE_OK)
		known_add(k, name);
	return r;
}

static const struct db_stmt NEW_INBOX = {
	"INSERT INTO inboxes (owner, agent, total, unread) VALUES ($1, $2, 0, 0)"
};

static int insert_inbox(struct tx *tx, const char *owner, const char *agent, struct problem *p)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &NEW_INBOX);
	int r = p ? usage_admit(tx, owner, QUOTA_INBOXES, 1, p) : LAPSE_OK;

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	usage_add(tx, owner, QUOTA_INBOXES, 1);
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	return db_post(&q, DB_ONE);
}

/* An inbox that the tail does not know, or knows as empty; its row, if there is none, is written.
 * With `p` NULL the owner may have any number of inboxes. */
static int open_inbox(struct tx *tx, const char *owner, const char *agent,
		      struct tail_inbox **inbox, struct problem *p)
{
	int64_t unread = 0;
	int r = find_inbox(tx->db, owner, agent, &unread);

	if (r < 0)
		return r;
	r = r > 0 ? LAPSE_OK : insert_inbox(tx, owner, agent, p);
	if (r < 0)
		return r;
	if (!*inbox)
		*inbox = tail_open(tail_of(tx->engine), owner, agent, unread);
	assert((*inbox)->filed_unread == unread);
	return LAPSE_OK;
}

/* Rows of inboxes go when nothing is left in them: then an inbox must be looked up again. */
static bool may_have_no_row(const struct tail_inbox *i)
{
	return i->live == 0 && i->filed_unread == 0;
}

void unread_refresh(struct engine *e, struct tail_inbox *i)
{
	(void)find_inbox(e->db, i->owner, i->agent, &i->filed_unread);
}

int unread_restore(struct tx *tx, const char *owner, const char *agent, const struct tail_entry *e)
{
	struct tail_inbox *i = inbox_of(tx, owner, agent);
	int r = i ? LAPSE_OK : open_inbox(tx, owner, agent, &i, NULL);

	assert(tx_can_write(tx));

	if (r == LAPSE_OK)
		tail_add(tail_of(tx->engine), i, e);
	return r;
}

static int admit_tail(struct tx *tx, const char *owner, const char *agent, int64_t max,
		      struct problem *p)
{
	struct tail_inbox *i = inbox_of(tx, owner, agent);
	const bool is_known = i != NULL;
	int r = !is_known || may_have_no_row(i) ? open_inbox(tx, owner, agent, &i, p) : LAPSE_OK;

	if (r < 0)
		return r;
	if (!is_known)
		change_note(tx, undo_open, i, 0, 0);
	return i->filed_unread + (int64_t)i->live < max ? LAPSE_OK : refuse_unread(agent, max, p);
}

int unread_admit(struct tx *tx, const char *owner, const char *agent, struct problem *p)
{
	int64_t max = tx->engine->settings->unread_max_per_agent;
	bool has_tail = tail_of(tx->engine)->max > 0;

	assert(tx_can_write(tx));
	return has_tail ? admit_tail(tx, owner, agent, max, p)
			: admit_row(tx, owner, agent, max, p);
}

static const struct db_stmt FILE_ONE = {
	"INSERT INTO messages_unread (owner, agent, id) VALUES ($1, $2, $3)"
};

static int file_one(struct db *db, const char *owner, const char *agent, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &FILE_ONE);

	assert(id > 0);
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, id);
	return db_post_row(&q, DB_ONE);
}

int unread_add(struct tx *tx, const char *owner, const char *agent, int64_t id, lapse_ms timestamp)
{
	struct tail *t = tail_of(tx->engine);
	struct tail_inbox *i = tail_find(t, owner, agent);
	const struct tail_entry e = { .id = id, .timestamp = timestamp };

	if (t->max == 0)
		return file_one(tx->db, owner, agent, id);
	assert(i); /* admit_tail() has opened it */
	change_note(tx, undo_add, i, id, 0);
	tail_add(t, i, &e);
	return t->count > t->max ? filing_make_room(tx) : LAPSE_OK;
}

/* Removing */

static const struct db_stmt REMOVE = {
	"DELETE FROM messages_unread WHERE owner = $1 AND agent = $2 AND id = $3"
};

static int remove_filed(struct tx *tx, const char *owner, const char *agent, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &REMOVE);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, id);
	int r = db_run(&q);
	assert(r < 0 || db_changed(&q) <= 1);
	return r < 0 ? r : (int)db_changed(&q);
}

int unread_remove(struct tx *tx, const char *owner, const char *agent, int64_t id,
		  struct unread_removed *sum)
{
	struct tail_inbox *i = inbox_of(tx, owner, agent);

	assert(tx_can_write(tx));
	if (i && tail_entry_of(i, id)) {
		tx_effect_early(tx, tidy_tail, NULL);
		hide_in_tail(tx, i, id);
		sum->tail++;
		return 1;
	}
	int r = remove_filed(tx, owner, agent, id);
	sum->filed += r > 0;
	return r;
}

static const struct db_stmt REMOVE_BEFORE = {
	"DELETE FROM messages_unread WHERE owner = $1 AND agent = $2 AND id " SQL_CHOOSE
	"SELECT u.id" UNREAD "AND m.timestamp < $3 ORDER BY u.id LIMIT $4" SQL_SKIP_LOCKED
	" RETURNING id"
};

static int remove_filed_before(struct tx *tx, const char *owner, const char *agent, lapse_ms before,
			       int64_t limit, int64_t *ids, int64_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &REMOVE_BEFORE);
	int64_t n = 0;
	int r;

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, before);
	db_bind_int(&q, 4, limit);
	while ((r = db_step(&q)) > 0) {
		assert(n < limit);
		ids[n++] = db_int(&q, 0);
	}
	*ret_n = n;
	return r;
}

int unread_remove_before(struct tx *tx, const char *owner, const char *agent, lapse_ms before,
			 int64_t limit, int64_t *ids, int64_t *ret_n, struct unread_removed *sum)
{
	int64_t n = 0;
	int r = remove_filed_before(tx, owner, agent, before, limit, ids, &n);
	struct tail_inbox *i = inbox_of(tx, owner, agent);

	assert(tx_can_write(tx) && limit > 0);
	if (r < 0)
		return r;
	sum->filed += n;
	tx_effect_early(tx, tidy_tail, NULL);
	for (size_t k = i ? i->first : 0; i && k < i->count && n < limit; k++) {
		const struct tail_entry *e = &i->entries[k];
		if (e->hidden || e->timestamp >= before)
			continue;
		ids[n++] = e->id;
		hide_in_tail(tx, i, e->id);
		sum->tail++;
	}
	*ret_n = n;
	return LAPSE_OK;
}

static const struct db_stmt COUNT_READ = { "UPDATE inboxes SET unread = unread - $3, "
					   "total = total + $4 WHERE owner = $1 AND agent = $2" };

/* What leaves the tail as read joins the row's total. */
int unread_count_read(struct tx *tx, const char *owner, const char *agent,
		      const struct unread_removed *sum)
{
	struct tail_inbox *i = inbox_of(tx, owner, agent);
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_READ);

	assert(tx_can_write(tx) && sum->filed + sum->tail > 0 && (i || sum->tail == 0));
	if (i && sum->filed > 0)
		change_filed(tx, i, -sum->filed);
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, sum->filed);
	db_bind_int(&q, 4, sum->tail);
	return db_post(&q, DB_ANY);
}

/* Looking at the tail */

int64_t unread_tail_newest(struct tx *tx, const char *owner, const char *agent, int64_t before,
			   int64_t limit, int64_t *ids)
{
	const struct tail_inbox *i = inbox_of(tx, owner, agent);
	int64_t n = 0;

	for (size_t k = i ? i->count : 0; k > 0 && n < limit; k--)
		if (!i->entries[k - 1].hidden && i->entries[k - 1].id < before)
			ids[n++] = i->entries[k - 1].id;
	return n;
}

int64_t unread_tail_offers(struct tx *tx, const char *owner, const char *agent, int64_t limit,
			   int64_t *ids)
{
	const struct tail_inbox *i = inbox_of(tx, owner, agent);
	int64_t n = 0;

	for (size_t k = i ? i->first : 0; i && k < i->count && n < limit; k++)
		if (!i->entries[k].hidden && i->entries[k].claimed_until <= tx->now)
			ids[n++] = i->entries[k].id;
	return n;
}

void unread_claimed(struct tx *tx, const char *owner, const char *agent, int64_t id, lapse_ms until)
{
	struct tail_inbox *i = inbox_of(tx, owner, agent);
	struct tail_entry *e = i ? tail_entry_of(i, id) : NULL;

	assert(tx_can_write(tx) && until > tx->now);
	if (!e)
		return;
	change_note(tx, undo_claim, i, id, e->claimed_until);
	e->claimed_until = until;
}

lapse_ms unread_tail_next_offer(struct tx *tx, const char *owner, const char *agent)
{
	const struct tail_inbox *i = inbox_of(tx, owner, agent);
	lapse_ms next = LAPSE_NEVER;

	for (size_t k = i ? i->first : 0; i && k < i->count; k++) {
		const struct tail_entry *e = &i->entries[k];
		if (!e->hidden && e->claimed_until > tx->now && e->claimed_until < next)
			next = e->claimed_until;
	}
	return next;
}

int64_t unread_tail_count(struct tx *tx, const char *owner, const char *agent, lapse_ms *ret_oldest)
{
	const struct tail_inbox *i = inbox_of(tx, owner, agent);

	for (size_t k = i ? i->first : 0; i && k < i->count; k++) {
		if (i->entries[k].hidden)
			continue;
		*ret_oldest = i->entries[k].timestamp;
		return (int64_t)i->live;
	}
	return 0;
}

/* Filing */

/* The row is there. As an INSERT, many of these are one statement: db_post_row(). */
static const struct db_stmt COUNT_FILED = {
	"INSERT INTO inboxes (owner, agent, total, unread) VALUES ($1, $2, $3, $3) "
	"ON CONFLICT (owner, agent) DO UPDATE SET total = inboxes.total + excluded.total, "
	"unread = inboxes.unread + excluded.unread"
};

int unread_write(struct db *db, const struct tail_inbox *i, int64_t id)
{
	return file_one(db, i->owner, i->agent, id);
}

int unread_write_count(struct db *db, const struct tail_inbox *i, int64_t n)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &COUNT_FILED);

	assert(n > 0);
	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->agent);
	db_bind_int(&q, 3, n);
	return db_post_row(&q, DB_ONE);
}

int unread_file(struct tx *tx, struct tail_inbox *i, int64_t upto, int64_t limit, int64_t *ret_n)
{
	int64_t n = 0;

	assert(tx_can_write(tx) && limit > 0);
	tx_effect_early(tx, tidy_tail, NULL);
	for (size_t k = i->first; k < i->count && n < limit; k++) {
		const struct tail_entry *e = &i->entries[k];
		if (e->hidden || e->id > upto)
			continue;
		int r = unread_write(tx->db, i, e->id);
		if (r < 0)
			return r;
		hide_in_tail(tx, i, e->id);
		n++;
	}
	*ret_n = n;
	if (n == 0)
		return LAPSE_OK;
	change_filed(tx, i, n);
	return unread_write_count(tx->db, i, n);
}
