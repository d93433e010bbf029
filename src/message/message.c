/* SPDX-License-Identifier: Apache-2.0 */
#include "message/message.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "message/row.h"
#include "message/unread.h"

/* Reading */

int message_get(struct tx *tx, const char *owner, const char *agent, int64_t id, message_fn *fn,
		void *arg)
{
	struct db_query CLEANUP(db_finish) q = message_find(tx, owner, agent, id);
	int r = db_step(&q);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	struct message m = message_read_row(&q);
	lapse_ms ttl = tx->engine->settings->message_ttl_ms;
	if (message_judge(m.read, m.timestamp, ttl, tx->now) == MESSAGE_DUE)
		return LAPSE_EEXPIRED;
	fn(arg, &m);
	return LAPSE_OK;
}

#define UNREAD_NEWEST "SELECT " COLUMNS UNREAD "AND u.id < $3 ORDER BY u.id DESC LIMIT $4"
static const struct db_stmt LIST_UNREAD = { UNREAD_NEWEST };

/* Both halves of the inbox, merged. $5 is the smallest id a live read message can have, so that
 * the walk stops there however many due ones wait for the sweep. */
static const struct db_stmt LIST_ALL = {
	"SELECT * FROM (" UNREAD_NEWEST ") AS unread UNION ALL SELECT * FROM ("
	"SELECT " COLUMNS " FROM messages AS m WHERE m.owner = $1 AND m.agent = $2 AND m.read = 1 "
	"AND m.id < $3 AND m.id >= $5 AND m.timestamp >= $6 ORDER BY m.id DESC LIMIT $4) AS seen "
	"ORDER BY 1 DESC LIMIT $4"
};

/* The tail's part of a page: messages above `floor`, of which `n` wait, newest first. */
struct tail_part {
	const int64_t *ids;
	int64_t n;
};

static int list_tail(struct tx *tx, const char *owner, const char *agent, int64_t floor,
		     int64_t limit, struct tail_part *t, struct message_walk *w)
{
	for (; t->n > 0 && t->ids[0] > floor && w->rows < limit; t->ids++, t->n--) {
		struct db_query CLEANUP(db_finish) q = message_find(tx, owner, agent, t->ids[0]);
		int r = db_step(&q);
		if (r < 0)
			return r;
		struct message m = r > 0 ? message_read_row(&q) : (struct message){ 0 };
		if (r > 0)
			message_walk_show(w, &m);
	}
	return LAPSE_OK;
}

static struct db_query list_query(struct tx *tx, const char *owner, const char *agent,
				  bool unread_only, int64_t limit, int64_t before)
{
	lapse_ms cutoff = time_sub(tx->now, tx->engine->settings->message_ttl_ms);
	struct db_query q = db_query(tx->db, unread_only ? &LIST_UNREAD : &LIST_ALL);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, before);
	db_bind_int(&q, 4, limit);
	if (!unread_only) {
		db_bind_int(&q, 5, id_floor(cutoff));
		db_bind_int(&q, 6, cutoff);
	}
	return q;
}

/* Merges the rows with the tail, which is newer than every unread row but not than the read ones.
 */
static int list_some_messages(struct tx *tx, const char *owner, const char *agent, bool unread_only,
			      int64_t limit, struct message_walk *w)
{
	int64_t *ids = tx_alloc(tx, (size_t)limit * sizeof(*ids)), last = w->rows + limit;
	struct tail_part t = { ids, unread_tail_newest(tx, owner, agent, w->before, limit, ids) };

	assert(tx_is_open(tx) && limit > 0 && w->fn);
	if (unread_only && t.n == limit)
		return list_tail(tx, owner, agent, 0, last, &t, w);
	struct db_query CLEANUP(db_finish) q =
		list_query(tx, owner, agent, unread_only, limit, w->before);
	while (w->rows < last) {
		int r = db_step(&q);
		int found = r;
		if (r >= 0)
			r = list_tail(tx, owner, agent, found > 0 ? db_int(&q, 0) : 0, last, &t, w);
		if (r < 0 || found == 0)
			return r;
		struct message m = message_read_row(&q);
		if (w->rows < last)
			message_walk_show(w, &m);
	}
	return LAPSE_OK;
}

int message_list(struct tx *tx, const char *owner, const char *agent, bool unread_only,
		 const struct message_page *page, message_fn *fn, void *arg)
{
	struct message_walk w = { .before = page->before, .fn = fn, .arg = arg };
	bool full = false;

	assert(page->limit > 0 && page->max_bytes > 0);
	while (w.rows < page->limit) {
		int64_t seen = w.rows, rows = message_next_rows(w.rows, w.bytes, page->limit);
		if (w.bytes >= page->max_bytes)
			rows = 1; /* the one too many, which says that there is more */
		int r = list_some_messages(tx, owner, agent, unread_only, rows, &w);
		if (r < 0 || full || w.rows - seen < rows)
			return r;
		full = w.bytes >= page->max_bytes;
	}
	return LAPSE_OK;
}

/* Statistics */

static const struct db_stmt STATS = {
	"SELECT agent, total, unread, (SELECT m.timestamp FROM messages_unread AS u JOIN messages "
	"AS m ON m.id = u.id WHERE u.owner = i.owner AND u.agent = i.agent ORDER BY u.id LIMIT 1) "
	"FROM inboxes AS i WHERE owner = $1 AND agent > $2 ORDER BY agent LIMIT $3"
};

int message_stats(struct tx *tx, const char *owner, const char *after, int64_t limit, inbox_fn *fn,
		  void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &STATS);
	int r;

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, after);
	db_bind_int(&q, 3, limit);
	while ((r = db_step(&q)) > 0) {
		struct inbox i = { .agent = db_text(&q, 0),
				   .total = db_int(&q, 1),
				   .unread = db_int(&q, 2),
				   .oldest_unread = db_int(&q, 3) };
		lapse_ms oldest = 0;
		int64_t tail = unread_tail_count(tx, owner, i.agent, &oldest);
		if (i.unread == 0 && tail > 0)
			i.oldest_unread = oldest;
		i.total += tail;
		i.unread += tail;
		fn(arg, &i);
	}
	return r;
}

static const struct db_stmt UNREAD_TOTAL = { "SELECT COALESCE(SUM(unread), 0) FROM inboxes" };

int message_count_unread(struct db *db, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &UNREAD_TOTAL);
	int r = db_step(&q);

	if (r < 0)
		return r;
	*ret = r > 0 ? db_int(&q, 0) : 0;
	return LAPSE_OK;
}

int64_t message_count_unfiled(const struct engine *e)
{
	return tail_of(e)->count;
}
