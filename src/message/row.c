/* SPDX-License-Identifier: Apache-2.0 */
#include "message/row.h"

#include <assert.h>
#include <string.h>

#define SHORT_BYTES INT64_C(65536)

struct message message_read_row(const struct db_query *q)
{
	return (struct message){ .id = db_int(q, 0),
				 .read = db_int(q, 1) != 0,
				 .read_at = db_int(q, 2),
				 .claim_id = db_is_null(q, 3) ? CLAIM_NONE : db_int(q, 3),
				 .claimed_until = db_int(q, 4),
				 .timestamp = db_int(q, 5),
				 .to = db_text(q, 6),
				 .from = db_text(q, 7),
				 .type = db_text(q, 8),
				 .metadata = db_text(q, 9),
				 .content = db_text(q, 10) };
}

struct message message_keep_row(struct tx *tx, const struct db_query *q)
{
	struct message m = message_read_row(q);

	m.to = arena_strdup(&tx->arena, m.to);
	m.from = arena_strdup(&tx->arena, m.from);
	m.content = arena_strdup(&tx->arena, m.content);
	m.type = arena_strdup(&tx->arena, m.type);
	m.metadata = arena_strdup(&tx->arena, m.metadata);
	return m;
}

static const struct db_stmt GET = {
	"SELECT " COLUMNS " FROM messages AS m WHERE m.id = $1 AND m.owner = $2 AND m.agent = $3"
};

struct db_query message_find(struct tx *tx, const char *owner, const char *agent, int64_t id)
{
	struct db_query q = db_query(tx->db, &GET);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, agent);
	return q;
}

static int64_t message_bytes(const struct message *m)
{
	return (int64_t)(strlen(m->content) + strlen(m->metadata));
}

int64_t message_next_rows(int64_t done, int64_t bytes, int64_t limit)
{
	int64_t rows = done > 0 && bytes < SHORT_BYTES ? limit - done : MESSAGE_FIRST_ROWS;

	assert(done < limit && bytes >= 0);
	return rows < limit - done ? rows : limit - done;
}

void message_walk_show(struct message_walk *w, const struct message *m)
{
	assert(w->fn);
	w->rows++;
	w->bytes += message_bytes(m);
	w->before = m->id;
	w->fn(w->arg, m);
}
