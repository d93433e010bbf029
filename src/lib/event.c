/* SPDX-License-Identifier: Apache-2.0 */
/* The call that reads events. */
#include "lib/check.h"
#include "lib/store.h"

/* The primary key bounds the walk; one past its lifetime that no sweep has met yet is not shown. */
static const struct db_stmt LIST = {
	"SELECT seq, at, kind, data FROM events WHERE seq > $1 AND (owner = $2 OR owner = '') "
	"AND at >= $3 ORDER BY seq LIMIT $4"
};

static int read_events(struct tx *tx, const char *owner, int64_t after, int64_t limit,
		       lapse_event_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIST);
	int r;

	db_bind_int(&q, 1, after);
	db_bind_text(&q, 2, owner);
	db_bind_int(&q, 3, time_sub(tx->now, tx->engine->settings->event_keep_ms));
	db_bind_int(&q, 4, limit);
	while ((r = db_step(&q)) > 0) {
		struct lapse_event v = { .seq = db_int(&q, 0),
					 .at = db_int(&q, 1),
					 .kind = db_text(&q, 2),
					 .data = db_text(&q, 3) };
		if (fn)
			fn(arg, &v);
	}
	return r;
}

int lapse_events(struct lapse_store *store, int64_t after, int64_t limit, lapse_event_fn *fn,
		 void *arg)
{
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = read_events(&store->tx, store->owner, after, limit, fn, arg);
	return store_end(store, r);
}
