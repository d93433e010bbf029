/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/events.h"

#include <assert.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

static const char *const NAMES[] = { [EVENT_NONE] = "",
#define X(name, text) [EVENT_##name] = text,
				     EVENTS(X)
#undef X
};

const char *event_name(enum event_kind kind)
{
	return NAMES[kind];
}

static const struct db_stmt INSERT = {
	"INSERT INTO events (seq, at, owner, kind, data) VALUES ($1, $2, $3, $4, $5)"
};

int event_add(struct tx *tx, const char *owner, enum event_kind kind, const struct buf *data)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	assert(kind != EVENT_NONE);
	db_bind_int(&q, 1, id_next(&tx->engine->ids, tx->now));
	db_bind_int(&q, 2, tx->now);
	db_bind_text(&q, 3, owner);
	db_bind_text(&q, 4, NAMES[kind]);
	db_bind_text(&q, 5, buf_text(data));
	tx_count(tx, "events", 1);
	return db_run(&q);
}
