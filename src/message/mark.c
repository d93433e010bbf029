/* SPDX-License-Identifier: Apache-2.0 */
/* Marking as read. */
#include <assert.h>

#include "base/json.h"
#include "engine/engine.h"
#include "message/row.h"
#include "message/unread.h"

static const struct db_stmt MARK = { "UPDATE messages SET read = 1, read_at = $4 "
				     "WHERE id = $1 AND owner = $2 AND agent = $3" };

static int write_read(struct tx *tx, const char *owner, const char *agent, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &MARK);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, agent);
	db_bind_int(&q, 4, tx->now);
	return db_post(&q, DB_ONE);
}

/* 1 = it was unread, 0 = it is not there or read already. */
static int mark_one(struct tx *tx, const char *owner, const char *agent, int64_t id,
		    struct unread_removed *sum)
{
	int was_unread = unread_remove(tx, owner, agent, id, sum);

	if (was_unread <= 0)
		return was_unread;
	int r = write_read(tx, owner, agent, id);
	return r < 0 ? r : 1;
}

/* Counts the marked ones and writes the event. */
static int tell_read(struct tx *tx, const char *owner, const char *agent,
		     const struct unread_removed *sum, int64_t id)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	int64_t n = sum->filed + sum->tail;

	assert(tx_can_write(tx) && n >= 0);
	if (n == 0)
		return LAPSE_OK;
	int r = unread_count_read(tx, owner, agent, sum);
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
	struct db_query CLEANUP(db_finish) q = message_find(tx, owner, agent, id);
	struct unread_removed sum = { 0 };
	int r = db_step(&q);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	struct message m = message_read_row(&q);
	if (message_judge_claim(claim, m.claim_id) == CLAIM_LOST)
		return LAPSE_ECONFLICT;
	if (!m.read) {
		r = mark_one(tx, owner, agent, id, &sum);
		if (r >= 0)
			r = tell_read(tx, owner, agent, &sum, id);
		if (r < 0)
			return r;
		m.read = true;
		m.read_at = tx->now;
	}
	fn(arg, &m);
	return LAPSE_OK;
}

int message_mark_ids(struct tx *tx, const char *owner, const char *agent, const int64_t *ids,
		     size_t n, size_t *ret_done, int64_t *ret_count)
{
	const lapse_us stop = clock_mono(tx->engine->clock) + MESSAGE_MARK_US;
	struct unread_removed sum = { 0 };
	size_t i = 0;

	while (i < n && (i == 0 || clock_mono(tx->engine->clock) < stop)) {
		int r = mark_one(tx, owner, agent, ids[i++], &sum);
		if (r < 0)
			return r;
	}
	*ret_done = i;
	*ret_count = sum.filed + sum.tail;
	return tell_read(tx, owner, agent, &sum, 0);
}

static int mark_oldest(struct tx *tx, const char *owner, const char *agent, lapse_ms before,
		       int64_t limit, struct unread_removed *sum, int64_t *ret_count)
{
	int64_t *ids = tx_alloc(tx, (size_t)limit * sizeof(*ids)), n = 0;
	int r = unread_remove_before(tx, owner, agent, before, limit, ids, &n, sum);

	for (int64_t i = 0; r == LAPSE_OK && i < n; i++)
		r = write_read(tx, owner, agent, ids[i]);
	*ret_count = n;
	return r;
}

int message_mark_before(struct tx *tx, const char *owner, const char *agent, lapse_ms before,
			int64_t limit, int64_t *ret_count, bool *ret_more)
{
	const lapse_us stop = clock_mono(tx->engine->clock) + MESSAGE_MARK_US;
	struct unread_removed sum = { 0 };
	int64_t total = 0, count = 0, rows = MESSAGE_FIRST_ROWS;
	int r;

	/* A row that is marked is written anew, however long it is: the clock says when to stop. */
	do {
		rows = rows < limit - total ? rows : limit - total;
		r = mark_oldest(tx, owner, agent, before, rows, &sum, &count);
		if (r < 0)
			return r;
		total += count;
		*ret_more = count == rows;
		rows *= 2;
	} while (*ret_more && total < limit && clock_mono(tx->engine->clock) < stop);
	*ret_count = total;
	return tell_read(tx, owner, agent, &sum, 0);
}
