/* SPDX-License-Identifier: Apache-2.0 */
/* The bound of messages, and what a message leaves behind: counters without it, and its event. */
#include <assert.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/eventlog.h"
#include "engine/housekeeping.h"
#include "engine/usage.h"
#include "message/row.h"
#include "message/unread.h"

static const struct db_stmt COUNT_OUT = {
	"UPDATE inboxes SET total = total - $3 WHERE owner = $1 AND agent = $2"
};
static const struct db_stmt DROP_EMPTY = {
	"DELETE FROM inboxes WHERE owner = $1 AND agent = $2 AND total = 0"
};

static int message_count_out(struct tx *tx, const struct pruned *first, int64_t n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_OUT);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, first->owner);
	db_bind_text(&q, 2, first->group);
	db_bind_int(&q, 3, n);
	return db_post(&q, DB_ANY);
}

static int inbox_drop_empty(struct tx *tx, const struct pruned *first)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP_EMPTY);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, first->owner);
	db_bind_text(&q, 2, first->group);
	int r = db_run(&q);
	if (r < 0)
		return r;
	usage_take_off(tx, first->owner, QUOTA_INBOXES, db_changed(&q));
	return LAPSE_OK;
}

/* Messages in the tail count on the row, even if it says 0. */
static bool is_in_tail(const struct tx *tx, const struct pruned *first)
{
	const struct tail_inbox *i = tail_find(tail_of(tx->engine), first->owner, first->group);

	return i && i->live > 0;
}

/* What a message tells of itself */

static const struct db_stmt SENT = {
	"SELECT id, timestamp, owner, sender, type, agent FROM messages "
	"WHERE id > $1 AND id <= $2 AND event = 1 ORDER BY id LIMIT $3"
};

static const struct db_stmt SENT_BACK = {
	"SELECT id, timestamp, owner, sender, type, agent FROM messages "
	"WHERE id > $1 AND id <= $2 AND event = 1 ORDER BY id DESC LIMIT $3"
};

static void write_own_event(const struct db_query *q, struct buf *out)
{
	const struct message m = { .id = db_int(q, 0),
				   .from = db_text(q, 3),
				   .type = db_text(q, 4),
				   .to = db_text(q, 5) };

	message_write_sent(out, &m, 1);
}

const struct event_rows MESSAGE_EVENTS = {
	.kind = EVENT_MESSAGE_SENT,
	.stretch = &SENT,
	.stretch_back = &SENT_BACK,
	.write_data = write_own_event,
};

enum { MORE_SENDER, MORE_TYPE, MORE_EVENT }; /* columns of the bound's `more` */

/* The event of a message that is gone, while it can still be replayed. */
static int leave_event(struct tx *tx, const struct pruned *row)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	const struct message m = { .id = row->id,
				   .from = row->more[MORE_SENDER],
				   .type = row->more[MORE_TYPE],
				   .to = row->group };

	message_write_sent(&data, &m, 1);
	return event_leave(tx, row->owner, EVENT_MESSAGE_SENT, row->id, row->at, &data);
}

static int leave_events(struct tx *tx, const struct pruned *rows, size_t n)
{
	lapse_ms oldest = time_sub(tx->now, tx->engine->settings->event_keep_ms);
	int64_t gone = 0;
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		if (rows[i].more[MORE_EVENT][0] != '1')
			continue;
		if (rows[i].at >= oldest)
			r = leave_event(tx, &rows[i]);
		else
			gone = rows[i].id > gone ? rows[i].id : gone;
	}
	return r == LAPSE_OK && gone > 0 ? events_note_pruned(tx, gone) : r;
}

static int message_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	int left = leave_events(tx, rows, n);

	if (left < 0)
		return left;
	for (size_t i = 0, start = 0; i < n; start = i) {
		while (i < n && strcmp(rows[i].group, rows[start].group) == 0 &&
		       strcmp(rows[i].owner, rows[start].owner) == 0)
			i++;
		int r = message_count_out(tx, &rows[start], (int64_t)(i - start));
		if (r == LAPSE_OK && !is_in_tail(tx, &rows[start]))
			r = inbox_drop_empty(tx, &rows[start]);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

static const struct db_stmt OWN_MESSAGES = {
	"SELECT CAST(coalesce(sum(total), 0) AS BIGINT) FROM inboxes WHERE owner = $1"
};

/* The other half of the counters. */
static int64_t own_unfiled(const struct engine *e, const char *owner)
{
	int64_t n = 0;

	for (const struct tail_inbox *i = tail_of(e)->heads[0]; i; i = i->next[0])
		if (strcmp(i->owner, owner) == 0)
			n += (int64_t)i->live;
	return n;
}

const struct bound_spec MESSAGE_BOUND = {
	.name = "messages",
	.scheduler = "messages",
	.bounded_by =
		"message_ttl_ms after timestamp; unread_max_per_agent; inboxes_max_per_owner; "
		"stored_bytes_per_owner",
	.due_when = "read and now - timestamp > message_ttl_ms",
	.safety_rule = "Only read messages are removed; unread ones never, at any age.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "timestamp",
	.window = "message_ttl_ms",
	.only = BOUND_ONLY(IS_INT("read", 1)),
	.held_as = "messages",
	.holdable = true,
	.event = "message.pruned",
	.reason = "read and older than message_ttl_ms",
	.owner = "owner",
	.shown = BOUND_COLUMNS("agent", "sender", "type"),
	.group = "agent",
	.since = "read_at",
	.bytes = "bytes",
	.more = BOUND_COLUMNS("sender", "type", "event"),
	.own_live = &OWN_MESSAGES,
	.own_live_more = own_unfiled,
	.settle = message_settle,
};
