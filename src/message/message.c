/* SPDX-License-Identifier: Apache-2.0 */
#include "message/message.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "message/rules.h"

#define COLUMNS "id, agent, sender, content, type, metadata, timestamp, read, read_at, claim_id"

static struct message read_row(const struct db_query *q)
{
	return (struct message){ .id = db_int(q, 0),
				 .to = db_text(q, 1),
				 .from = db_text(q, 2),
				 .content = db_text(q, 3),
				 .type = db_text(q, 4),
				 .metadata = db_text(q, 5),
				 .timestamp = db_int(q, 6),
				 .read = db_int(q, 7) != 0,
				 .read_at = db_int(q, 8),
				 .claim_id = db_is_null(q, 9) ? CLAIM_NONE : db_int(q, 9) };
}

/* Reading */

static const struct db_stmt GET = { "SELECT " COLUMNS
				    " FROM messages WHERE id = $1 AND owner = $2 AND agent = $3" };

static struct db_query get_query(struct tx *tx, const char *owner, const char *agent, int64_t id)
{
	struct db_query q = db_query(tx->db, &GET);

	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, agent);
	return q;
}

int message_get(struct tx *tx, const char *owner, const char *agent, int64_t id, message_fn *fn,
		void *arg)
{
	struct db_query CLEANUP(db_finish) q = get_query(tx, owner, agent, id);
	int r = db_step(&q);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	struct message m = read_row(&q);
	lapse_ms ttl = tx->engine->settings->message_ttl_ms;
	if (message_judge(m.read, m.timestamp, ttl, tx->now) == MESSAGE_DUE)
		return LAPSE_EEXPIRED;
	fn(arg, &m);
	return LAPSE_OK;
}

#define UNREAD_NEWEST                                                                              \
	"SELECT " COLUMNS " FROM messages WHERE owner = $1 AND agent = $2 AND read = 0 "           \
	"AND id < $3 ORDER BY id DESC LIMIT $4"
static const struct db_stmt LIST_UNREAD = { UNREAD_NEWEST };

/* Both halves of the inbox by the same index, merged. $5 is the smallest id a live read message
 * can have, so that the walk stops there however many due ones wait for the sweep. */
static const struct db_stmt LIST_ALL = {
	"SELECT * FROM (" UNREAD_NEWEST ") AS unread UNION ALL SELECT * FROM ("
	"SELECT " COLUMNS " FROM messages WHERE owner = $1 AND agent = $2 AND read = 1 "
	"AND id < $3 AND id >= $5 AND timestamp >= $6 ORDER BY id DESC LIMIT $4) AS seen "
	"ORDER BY 1 DESC LIMIT $4"
};

int message_list(struct tx *tx, const char *owner, const char *agent, bool unread_only,
		 int64_t before, int64_t limit, message_fn *fn, void *arg)
{
	lapse_ms cutoff = time_sub(tx->now, tx->engine->settings->message_ttl_ms);
	struct db_query CLEANUP(db_finish) q =
		db_query(tx->db, unread_only ? &LIST_UNREAD : &LIST_ALL);
	int r;

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, before);
	db_bind_int(&q, 4, limit);
	if (!unread_only) {
		db_bind_int(&q, 5, id_floor(cutoff));
		db_bind_int(&q, 6, cutoff);
	}
	while ((r = db_step(&q)) > 0) {
		struct message m = read_row(&q);
		fn(arg, &m);
	}
	return r;
}

/* Marking as read */

static const struct db_stmt MARK = { "UPDATE messages SET read = 1, read_at = $4 "
				     "WHERE id = $1 AND owner = $2 AND agent = $3 AND read = 0" };
static const struct db_stmt COUNT_READ = {
	"UPDATE inboxes SET unread = unread - $3 WHERE owner = $1 AND agent = $2"
};
static const struct db_stmt MARK_BEFORE = {
	"UPDATE messages SET read = 1, read_at = $4 WHERE read = 0 AND id IN ("
	"SELECT id FROM messages WHERE owner = $1 AND agent = $2 AND read = 0 "
	"AND timestamp < $3 ORDER BY id LIMIT $5)"
};

/* 1 = it was unread, 0 = it is not there or read already. */
static int mark(struct tx *tx, const char *owner, const char *agent, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &MARK);

	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, agent);
	db_bind_int(&q, 4, tx->now);
	int r = db_run(&q);
	return r < 0 ? r : (int)db_changed(&q);
}

/* Takes `n` off the inbox's unread counter and writes the event. */
static int count_read(struct tx *tx, const char *owner, const char *agent, int64_t n, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_READ);
	struct buf CLEANUP(buf_done) data = { 0 };

	if (n == 0)
		return LAPSE_OK;
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, n);
	int r = db_run(&q);
	if (r < 0)
		return r;
	json_begin(&data, '{');
	json_put_text(&data, "agent", agent);
	if (id)
		json_put_id(&data, "id", id);
	json_put_int(&data, "count", n);
	json_end(&data, '}');
	return event_add(tx, owner, EVENT_MESSAGE_READ, &data);
}

int message_mark_read(struct tx *tx, const char *owner, const char *agent, int64_t id,
		      int64_t claim, message_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = get_query(tx, owner, agent, id);
	int r = db_step(&q);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	struct message m = read_row(&q);
	if (message_judge_claim(claim, m.claim_id) == CLAIM_LOST)
		return LAPSE_ECONFLICT;
	if (!m.read) {
		r = mark(tx, owner, agent, id);
		if (r >= 0)
			r = count_read(tx, owner, agent, r, id);
		if (r < 0)
			return r;
		m.read = true;
		m.read_at = tx->now;
	}
	fn(arg, &m);
	return LAPSE_OK;
}

int message_mark_ids(struct tx *tx, const char *owner, const char *agent, const int64_t *ids,
		     size_t n, int64_t *ret_count)
{
	int64_t count = 0;

	for (size_t i = 0; i < n; i++) {
		int r = mark(tx, owner, agent, ids[i]);
		if (r < 0)
			return r;
		count += r;
	}
	*ret_count = count;
	return count_read(tx, owner, agent, count, 0);
}

static int mark_before(struct tx *tx, const char *owner, const char *agent, lapse_ms before,
		       int64_t limit, int64_t *ret_count)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &MARK_BEFORE);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, before);
	db_bind_int(&q, 4, tx->now);
	db_bind_int(&q, 5, limit);
	int r = db_run(&q);
	*ret_count = r < 0 ? 0 : db_changed(&q);
	return r;
}

int message_mark_before(struct tx *tx, const char *owner, const char *agent, lapse_ms before,
			int64_t limit, int64_t *ret_count)
{
	int r = mark_before(tx, owner, agent, before, limit, ret_count);

	return r < 0 ? r : count_read(tx, owner, agent, *ret_count, 0);
}

/* Claiming */

static const struct db_stmt OFFERED = {
	"SELECT " COLUMNS " FROM messages WHERE owner = $1 AND agent = $2 AND read = 0 "
	"AND (claimed_until IS NULL OR claimed_until <= $3) ORDER BY id LIMIT $4"
};
static const struct db_stmt LEASE = {
	"UPDATE messages SET claim_id = $2, claimed_until = $3 WHERE id = $1"
};
static const struct db_stmt NEXT_OFFER = {
	"SELECT min(claimed_until) FROM messages WHERE owner = $1 AND agent = $2 AND read = 0 "
	"AND claimed_until > $3"
};

static int lease(struct tx *tx, int64_t id, int64_t claim, lapse_ms until)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LEASE);

	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, claim);
	db_bind_int(&q, 3, until);
	return db_run(&q);
}

int message_claim(struct tx *tx, const char *owner, const char *agent, int64_t claim,
		  lapse_ms until, int64_t limit, message_fn *fn, void *arg, int64_t *ret_count)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OFFERED);
	int64_t *ids = tx_alloc(tx, (size_t)limit * sizeof(*ids));
	int64_t n = 0;
	int r;

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, limit);
	while ((r = db_step(&q)) > 0) {
		struct message m = read_row(&q);
		ids[n++] = m.id;
		fn(arg, &m);
	}
	for (int64_t i = 0; r == LAPSE_OK && i < n; i++)
		r = lease(tx, ids[i], claim, until);
	*ret_count = n;
	return r;
}

int message_next_offer(struct tx *tx, const char *owner, const char *agent, lapse_ms *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &NEXT_OFFER);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, tx->now);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = r > 0 && !db_is_null(&q, 0) ? db_int(&q, 0) : LAPSE_NEVER;
	return LAPSE_OK;
}

/* Statistics */

static const struct db_stmt STATS = {
	"SELECT agent, total, unread, (SELECT timestamp FROM messages AS m WHERE m.owner = i.owner "
	"AND m.agent = i.agent AND m.read = 0 ORDER BY m.id LIMIT 1) "
	"FROM inboxes AS i WHERE owner = $1 AND agent > $2 ORDER BY agent LIMIT $3"
};

int message_stats(struct tx *tx, const char *owner, const char *after, int64_t limit, inbox_fn *fn,
		  void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &STATS);
	int r;

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, after);
	db_bind_int(&q, 3, limit);
	while ((r = db_step(&q)) > 0) {
		struct inbox i = { .agent = db_text(&q, 0),
				   .total = db_int(&q, 1),
				   .unread = db_int(&q, 2),
				   .oldest_unread = db_int(&q, 3) };
		fn(arg, &i);
	}
	return r;
}

/* The bound */

static const struct db_stmt COUNT_OUT = {
	"UPDATE inboxes SET total = total - $3 WHERE owner = $1 AND agent = $2"
};
static const struct db_stmt DROP_EMPTY = {
	"DELETE FROM inboxes WHERE owner = $1 AND agent = $2 AND total = 0"
};

static int count_out(struct tx *tx, const struct pruned *first, int64_t n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_OUT);

	db_bind_text(&q, 1, first->owner);
	db_bind_text(&q, 2, first->group);
	db_bind_int(&q, 3, n);
	return db_run(&q);
}

static int drop_empty(struct tx *tx, const struct pruned *first)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP_EMPTY);

	db_bind_text(&q, 1, first->owner);
	db_bind_text(&q, 2, first->group);
	return db_run(&q);
}

static int settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0, start = 0; i < n; start = i) {
		while (i < n && strcmp(rows[i].group, rows[start].group) == 0 &&
		       strcmp(rows[i].owner, rows[start].owner) == 0)
			i++;
		int r = count_out(tx, &rows[start], (int64_t)(i - start));
		if (r == LAPSE_OK)
			r = drop_empty(tx, &rows[start]);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

const struct bound MESSAGE_BOUND = {
	.table = "messages",
	.scheduler = "messages",
	.bounded_by = "message_ttl_ms after timestamp; unread_max_per_agent",
	.due_when = "read and now - timestamp > message_ttl_ms",
	.safety_rule = "Only read messages are removed; unread ones never, at any age.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.window = offsetof(struct settings, message_ttl_ms),
	.event = EVENT_MESSAGE_PRUNED,
	.reason = "read and older than message_ttl_ms",
	.holdable = true,
	.newest = { "SELECT coalesce(max(id), 0) FROM messages" },
	.due = { "SELECT count(*), min(at) FROM (SELECT timestamp AS at FROM messages "
		 "AS m WHERE read = 1 AND timestamp < $1 AND NOT EXISTS (SELECT 1 FROM holds AS h "
		 "WHERE h.tbl = 'messages' AND h.ref = m.id) ORDER BY timestamp LIMIT $2)" },
	.prune = { "DELETE FROM messages WHERE read = 1 AND timestamp < $1 AND id IN ("
		   "SELECT id FROM messages AS m WHERE read = 1 AND timestamp < $1 "
		   "AND (timestamp, id) > ($2, $3) AND NOT EXISTS (SELECT 1 FROM holds AS h "
		   "WHERE h.tbl = 'messages' AND h.ref = m.id AND h.until > $5) "
		   "ORDER BY timestamp, id LIMIT $4) "
		   "RETURNING timestamp, id, owner, agent, read_at" },
	.find = { "SELECT 1 FROM messages WHERE owner = $1 AND id = $2" },
	.settle = settle,
};
