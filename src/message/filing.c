/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filing: the messages of the tail become rows of `messages_unread`.
 *
 * Start. The tail is read back from the store: unread messages after the mark `messages_filed` that
 * are not in `messages_unread`. The mark moves up to the oldest of them. It is the largest number
 * while there is no tail, because then everything is filed at once.
 *
 * Work. Once the tail is half full a pass begins. It visits every inbox in the order of its name,
 * which is the order of the table, so a page of the table is written once for many messages. A
 * slice (message/slice.h) is a transaction of sweep_budget_ms. While requests want the store,
 * slices are shorter and have rests between them: how long depends on how full the tail is
 * (message_filing_pace). The pass ends with the mark: everything up to the newest message of its
 * beginning is filed.
 *
 * A full tail. Senders are faster than the passes: each of them then files a few messages in its
 * own transaction, in the same order, before it adds one.
 *
 * Failure. A slice that fails has not touched the memory, and is tried again a second later. A
 * crash loses nothing: what was filed is found in the table, the rest after the mark.
 */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "message/row.h"
#include "message/rules.h"
#include "message/slice.h"
#include "message/unread.h"
#include "store/migrate.h"

#define ALL_FILED INT64_MAX
#define REST_FACTOR 3 /* at least, times the slice */
#define FAILED_PAUSE_US INT64_C(1000000)
#define ROOM_MESSAGES 8     /* that a sender files when the tail is full */
#define SLICE_MESSAGES 64   /* between two looks at the clock */
#define OWNER_MESSAGES 2000 /* that one transaction of a change of owners files */

/* A pass */

static void undo_pass(struct engine *e, void *arg)
{
	tail_of(e)->pass = *(const struct tail_pass *)arg;
}

static void pass_note(struct tx *tx, const struct tail *t)
{
	struct tail_pass *before = tx_alloc(tx, sizeof(*before));

	*before = t->pass;
	tx_undo(tx, undo_pass, before);
}

static void count_filed_effect(struct engine *e, void *arg)
{
	tail_of(e)->filed += *(const int64_t *)arg;
}

static void note_filed(struct tx *tx, int64_t n)
{
	int64_t *filed = tx_alloc(tx, sizeof(*filed));

	*filed = n;
	tx_effect(tx, count_filed_effect, filed);
}

static int pass_end(struct tx *tx, struct tail *t)
{
	t->pass.running = false;
	return meta_set(tx->db, MESSAGES_FILED, t->pass.upto);
}

/* Files up to `limit` messages of the inbox that is next, and begins a pass where there is none. */
static int pass_step(struct tx *tx, struct tail *t, int64_t limit, int64_t *ret_n)
{
	pass_note(tx, t);
	if (!t->pass.running)
		t->pass = (struct tail_pass){ .running = true, .upto = t->newest };
	struct tail_inbox *i = tail_after(t, t->pass.after);
	*ret_n = 0;
	if (!i)
		return pass_end(tx, t);
	int r = unread_file(tx, i, t->pass.upto, limit, ret_n);
	if (r == LAPSE_OK && *ret_n < limit)
		memcpy(t->pass.after, i->node.key, strlen(i->node.key) + 1);
	return r;
}

int filing_make_room(struct tx *tx)
{
	struct tail *t = tail_of(tx->engine);
	int64_t n = 0;
	int r = LAPSE_OK;

	while (r == LAPSE_OK && n < ROOM_MESSAGES && t->count > 0) {
		int64_t filed = 0;
		r = pass_step(tx, t, ROOM_MESSAGES - n, &filed);
		n += filed;
	}
	note_filed(tx, n);
	return r;
}

/* The loop */

static int filing_slice(struct engine *e, lapse_us budget)
{
	struct tail *t = tail_of(e);
	struct slice s;
	struct tx tx;
	int r = tx_begin(&tx, e);

	if (r == LAPSE_OK)
		r = slice_file(&s, t, tx.db, e->clock, budget);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	r = tx_commit_lazy(&tx);
	if (r == LAPSE_OK)
		slice_settle(&s, t);
	return r;
}

static bool wants_filing(const struct tail *t)
{
	return t->pass.running || (t->count > 0 && t->count >= t->max / 2);
}

static struct filing_pace pace_of(const struct engine *e, const struct tail *t)
{
	const lapse_us budget = e->settings->sweep_budget_ms * 1000;
	struct filing_pace pace = { .slice_us = budget };

	if (e->crowded)
		pace = message_filing_pace(t->count, t->max);
	if (pace.slice_us > budget)
		pace.slice_us = budget;
	return pace;
}

/* Longer after a slice that took longer than it should. */
static lapse_us filing_rest(const struct filing_pace *pace, lapse_us took)
{
	const lapse_us least = pace->rest_us > 0 ? REST_FACTOR * took : 0;

	assert(took >= 0);
	return pace->rest_us > least ? pace->rest_us : least;
}

static void filing_tick(struct engine *e)
{
	struct tail *t = tail_of(e);
	const lapse_us began = clock_mono(e->clock);

	if (!wants_filing(t) || began < t->rest_until)
		return;
	const struct filing_pace pace = pace_of(e, t);
	int r = filing_slice(e, pace.slice_us);
	const lapse_us ended = clock_mono(e->clock);
	t->rest_until = ended + (r < 0 ? FAILED_PAUSE_US : filing_rest(&pace, ended - began));
}

static lapse_us filing_next_us(const struct engine *e)
{
	const struct tail *t = tail_of(e);
	lapse_us in = t->rest_until - clock_mono(e->clock);

	if (!wants_filing(t))
		return INT64_MAX;
	return in > 0 ? in : 0;
}

/* The start */

static const struct db_stmt UNFILED = {
	"SELECT m.id, m.owner, m.agent, m.timestamp, COALESCE(m.claimed_until, 0) "
	"FROM messages AS m LEFT JOIN messages_unread AS u "
	"ON u.owner = m.owner AND u.agent = m.agent AND u.id = m.id "
	"WHERE m.id > $1 AND m.read = 0 AND u.id IS NULL ORDER BY m.id"
};

/* *ret_oldest = the smallest id of them; untouched when there is none. */
static int load_tail(struct tx *tx, int64_t after, int64_t *ret_oldest)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &UNFILED);
	bool any = false;
	int r;

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, after);
	while ((r = db_step(&q)) > 0) {
		if (!any)
			*ret_oldest = db_int(&q, 0);
		any = true;
		struct tail_entry e = { .id = db_int(&q, 0),
					.timestamp = db_int(&q, 3),
					.claimed_until = db_int(&q, 4) };
		r = unread_restore(tx, db_text(&q, 1), db_text(&q, 2), &e);
		if (r < 0)
			break;
	}
	return r;
}

/* There is a tail, but there shall be none. */
static int file_all(struct tx *tx, struct tail *t)
{
	int r = LAPSE_OK;

	while (r == LAPSE_OK && t->count > 0) {
		int64_t n = 0;
		r = pass_step(tx, t, SLICE_MESSAGES, &n);
	}
	t->pass.running = false;
	return r;
}

static bool may_have_tail(const struct engine *e)
{
	return e->store->dialect == DIALECT_SQLITE && e->store->lanes_count == 1 &&
	       e->settings->message_tail_max > 0;
}

static int filing_load(struct tx *tx)
{
	struct engine *e = tx->engine;
	bool on = may_have_tail(e);
	struct tail *t = tail_new(on ? e->settings->message_tail_max : 1);
	int64_t mark = 0, oldest = e->ids.last + 1;
	int r = meta_get(tx->db, MESSAGES_FILED, 0, &mark);

	engine_set_room(e, ROOM_MESSAGE, t);
	t->newest = e->ids.last;
	if (r == LAPSE_OK && mark != ALL_FILED)
		r = load_tail(tx, mark, &oldest);
	if (r == LAPSE_OK && !on)
		r = file_all(tx, t);
	/* The next start need not look again at what this one has found filed or read. */
	const int64_t next = on ? oldest - 1 : ALL_FILED;
	if (r == LAPSE_OK && mark != next)
		r = meta_set(tx->db, MESSAGES_FILED, next);
	if (!on)
		t->max = 0;
	return r;
}

/* Another owner gets the messages: there is nothing in the tail of either while rows move, so that
 * filed messages stay older than those of the tail. */
static int filing_owner_moves(struct tx *tx, const char *from, const char *to)
{
	struct tail *t = tail_of(tx->engine);
	int64_t left = OWNER_MESSAGES;
	int r = LAPSE_OK;

	for (struct tail_inbox *i = t->heads[0]; r == LAPSE_OK && i && left > 0; i = i->next[0]) {
		int64_t n = 0;
		if (strcmp(i->owner, from) == 0 || strcmp(i->owner, to) == 0)
			r = unread_file(tx, i, INT64_MAX, left, &n);
		left -= n;
	}
	note_filed(tx, OWNER_MESSAGES - left);
	return r == LAPSE_OK && left == 0 ? TX_AGAIN : r;
}

/* The rows of their inboxes have other counters now. There are messages in the tail that came later
 * in the same transaction. */
static void filing_owner_moved(struct engine *e, const char *from, const char *to, bool whole)
{
	struct tail *t = tail_of(e);

	(void)whole; /* messages move in slices */
	for (struct tail_inbox *i = t->heads[0], *next; i; i = next) {
		next = i->next[0];
		if (strcmp(i->owner, from) != 0 && strcmp(i->owner, to) != 0)
			continue;
		if (i->live == 0)
			tail_close(t, i);
		else
			unread_refresh(e, i);
	}
}

static void filing_done(struct engine *e)
{
	tail_free(engine_room(e, ROOM_MESSAGE));
	engine_set_room(e, ROOM_MESSAGE, NULL);
}

static void filing_write_metrics(const struct engine *e, struct buf *out)
{
	const struct tail *t = tail_of(e);

	metrics_family(out, METRIC_TAIL);
	metrics_sample(out, METRIC_TAIL, "", t->count);
	metrics_family(out, METRIC_TAIL_BYTES);
	metrics_sample(out, METRIC_TAIL_BYTES, "", t->bytes);
	metrics_family(out, METRIC_FILED);
	metrics_sample(out, METRIC_FILED, "", t->filed);
}

const struct room MESSAGE_ROOM = {
	.id = ROOM_MESSAGE,
	.load = filing_load,
	.tick = filing_tick,
	.next_us = filing_next_us,
	.done = filing_done,
	.owner_moves = filing_owner_moves,
	.owner_moved = filing_owner_moved,
	.write_metrics = filing_write_metrics,
	.events = &MESSAGE_EVENTS,
};
