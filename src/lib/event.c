/* SPDX-License-Identifier: Apache-2.0 */
/* The call that reads events. */
#include <assert.h>
#include <string.h>

#include "engine/eventlog.h"
#include "lib/check.h"
#include "lib/store.h"

struct event_listing {
	const char *owner;
	lapse_ms oldest; /* one past its lifetime that no sweep has met yet is not shown */
	int64_t left;
	lapse_event_fn *fn;
	void *arg;
};

static bool list_event(void *arg, const struct event_row *row)
{
	struct event_listing *l = arg;
	bool ours = !row->owner[0] || strcmp(row->owner, l->owner) == 0;

	if (!ours || row->at < l->oldest)
		return true;
	struct lapse_event v = {
		.seq = row->seq, .at = row->at, .kind = row->kind, .data = event_row_data(row)
	};
	if (l->fn)
		l->fn(l->arg, &v);
	return --l->left > 0;
}

static int read_events(struct tx *tx, const char *owner, int64_t after, int64_t limit,
		       lapse_event_fn *fn, void *arg)
{
	const struct event_stretch all = { .after = after, .upto = INT64_MAX, .limit = INT64_MAX };
	lapse_ms oldest = time_sub(tx->now, tx->engine->settings->event_keep_ms);
	struct event_listing l = {
		.owner = owner, .oldest = oldest, .left = limit, .fn = fn, .arg = arg
	};
	int64_t end;

	assert(tx_is_open(tx));
	return eventlog_walk(tx->engine, tx->db, &all, list_event, &l, &end);
}

int lapse_events(struct lapse_store *store, int64_t after, int64_t limit, lapse_event_fn *fn,
		 void *arg)
{
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = read_events(&store->tx, store->owner, after, limit, fn, arg);
	return store_end(store, r);
}
