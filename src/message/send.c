/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: the counter of each inbox, its row, and one event for all. */
#include <inttypes.h>

#include "base/json.h"
#include "engine/engine.h"
#include "message/message.h"

const char *message_wait_key(struct arena *arena, const char *owner, const char *agent)
{
	return arena_printf(arena, "messages/%s/%s", owner, agent);
}

static void wake_inbox(struct engine *e, void *key)
{
	wait_wake(&e->waits, key);
}

static const struct db_stmt COUNT_IN = {
	"INSERT INTO inboxes (owner, agent, total, unread) VALUES ($1, $2, 1, 1) "
	"ON CONFLICT (owner, agent) DO UPDATE SET total = inboxes.total + 1, "
	"unread = inboxes.unread + 1 WHERE inboxes.unread < $3"
};
static const struct db_stmt INSERT = {
	"INSERT INTO messages (id, owner, agent, sender, content, type, metadata, timestamp, read) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)"
};

/* One more in the inbox; the statement itself refuses when it is full. */
static int count_in(struct tx *tx, const char *owner, const char *agent, struct problem *p)
{
	int64_t max = tx->engine->settings->unread_max_per_agent;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_IN);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, max);
	int r = db_run(&q);
	if (r == LAPSE_OK && db_changed(&q) == 0)
		return problem_set(
			p, LAPSE_ELIMIT, "to",
			"%.128s has %" PRId64
			" unread messages (unread_max_per_agent): it must read some first",
			agent, max);
	return r;
}

static int insert(struct tx *tx, const char *owner, const struct message *m)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	db_bind_int(&q, 1, m->id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, m->to);
	db_bind_text(&q, 4, m->from);
	db_bind_text(&q, 5, m->content);
	db_bind_text(&q, 6, m->type);
	db_bind_text(&q, 7, m->metadata);
	db_bind_int(&q, 8, m->timestamp);
	return db_run(&q);
}

static int send_one(struct tx *tx, const char *owner, struct message *m, struct problem *p)
{
	int r = count_in(tx, owner, m->to, p);

	if (r < 0)
		return r;
	m->id = id_next(&tx->engine->ids, tx->now);
	m->timestamp = tx->now;
	if (tx->engine->waits.keys.count > 0)
		tx_effect(tx, wake_inbox,
			  (void *)(uintptr_t)message_wait_key(&tx->arena, owner, m->to));
	return insert(tx, owner, m);
}

static int announce(struct tx *tx, const char *owner, const struct message *m, size_t n)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_text(&data, "from", m->from);
	json_put_text(&data, "type", m->type);
	json_key(&data, "messages");
	json_begin(&data, '[');
	for (size_t i = 0; i < n; i++) {
		json_begin(&data, '{');
		json_put_id(&data, "id", m[i].id);
		json_put_text(&data, "to", m[i].to);
		json_end(&data, '}');
	}
	json_end(&data, ']');
	json_end(&data, '}');
	return event_add(tx, owner, EVENT_MESSAGE_SENT, &data);
}

int message_send(struct tx *tx, const char *owner, const struct message *draft,
		 const char *const *to, size_t n, struct message *sent, struct problem *p)
{
	for (size_t i = 0; i < n; i++) {
		sent[i] = *draft;
		sent[i].to = to[i];
		int r = send_one(tx, owner, &sent[i], p);
		if (r < 0)
			return r;
	}
	tx_count(tx, "messages", (int64_t)n);
	return announce(tx, owner, sent, n);
}
