/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: the row of each message, its place in the inbox, and one event for all. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "api/wait.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/usage.h"
#include "message/row.h"
#include "message/unread.h"

const char *message_wait_key(struct arena *arena, const char *owner, const char *agent)
{
	return arena_printf(arena, "messages/%s/%s", owner, agent);
}

static const struct db_stmt INSERT = {
	"INSERT INTO messages (id, read, event, timestamp, owner, agent, sender, type, metadata, "
	"content, bytes) VALUES ($1, 0, $9, $2, $3, $4, $5, $6, $7, $8, $10)"
};

#define ROW_BYTES 100 /* of the owner's stored bytes that even an empty message takes */

static int64_t stored_bytes_of(const struct message *m)
{
	return ROW_BYTES + (int64_t)(strlen(m->content) + strlen(m->metadata));
}

static int message_insert(struct tx *tx, const char *owner, const struct message *m, bool is_event)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, m->id);
	db_bind_int(&q, 2, m->timestamp);
	db_bind_text(&q, 3, owner);
	db_bind_text(&q, 4, m->to);
	db_bind_text(&q, 5, m->from);
	db_bind_text(&q, 6, m->type);
	db_bind_text(&q, 7, m->metadata);
	db_bind_text(&q, 8, m->content);
	db_bind_int(&q, 9, is_event);
	db_bind_int(&q, 10, stored_bytes_of(m));
	return db_post_row(&q, DB_ONE);
}

static int send_one(struct tx *tx, const char *owner, struct message *m, bool is_event,
		    struct problem *p)
{
	int r = unread_admit(tx, owner, m->to, p);

	assert(m->from && m->content && m->type && m->metadata);

	if (r < 0)
		return r;
	m->id = id_next(&tx->engine->ids, tx->now);
	m->timestamp = m->timestamp ? m->timestamp : tx->now;
	assert(m->timestamp <= tx->now);
	if (waiters_may_exist(tx->engine))
		waiters_wake_later(tx, message_wait_key(&tx->arena, owner, m->to));
	r = message_insert(tx, owner, m, is_event);
	return r < 0 ? r : unread_add(tx, owner, m->to, m->id, m->timestamp);
}

void message_write_sent(struct buf *out, const struct message *m, size_t n)
{
	json_begin(out, '{');
	json_put_text(out, "from", m->from);
	json_put_text(out, "type", m->type);
	json_key(out, "messages");
	json_begin(out, '[');
	for (size_t i = 0; i < n; i++) {
		json_begin(out, '{');
		json_put_id(out, "id", m[i].id);
		json_put_text(out, "to", m[i].to);
		json_end(out, '}');
	}
	json_end(out, ']');
	json_end(out, '}');
}

/* A message to one agent is its own event; its date must be the event's. */
static int message_announce(struct tx *tx, const char *owner, const struct message *m, size_t n,
			    bool is_event)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	if (!is_event || events_are_followed(tx))
		message_write_sent(&data, m, n);
	if (!is_event)
		return event_add(tx, owner, EVENT_MESSAGE_SENT, &data);
	event_tell(tx, owner, EVENT_MESSAGE_SENT, m->id, &data);
	return LAPSE_OK;
}

/* Every recipient gets a copy: before anything is written. */
static int check_copies(const struct engine *e, const struct message *draft, size_t n,
			struct problem *p)
{
	int64_t max = e->settings->broadcast_max_bytes;
	int64_t bytes = stored_bytes_of(draft);

	if (n == 1 || bytes <= max / (int64_t)n)
		return LAPSE_OK;
	return problem_set(p, LAPSE_ETOOLARGE, "to",
			   "%zu copies of %" PRId64 " bytes are more than %" PRId64
			   " bytes (broadcast_max_bytes): send to fewer agents at once",
			   n, bytes, max);
}

int message_send(struct tx *tx, const char *owner, const struct message *draft,
		 const char *const *to, size_t n, struct message *sent, struct problem *p)
{
	bool is_event = n == 1 && draft->timestamp == 0;
	int admitted = check_copies(tx->engine, draft, n, p);

	if (admitted == LAPSE_OK)
		admitted = usage_admit(tx, owner, QUOTA_STORED_BYTES,
				       (int64_t)n * stored_bytes_of(draft), p);
	if (admitted < 0)
		return admitted;
	for (size_t i = 0; i < n; i++) {
		sent[i] = *draft;
		sent[i].to = to[i];
		int r = send_one(tx, owner, &sent[i], is_event, p);
		if (r < 0)
			return r;
	}
	tx_count(tx, &MESSAGE_BOUND, (int64_t)n);
	usage_add(tx, owner, QUOTA_STORED_BYTES, (int64_t)n * stored_bytes_of(draft));
	return message_announce(tx, owner, sent, n, is_event);
}
