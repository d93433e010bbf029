/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/guard.h"
#include "engine/tx.h"

/* Rows of one statement. The budget is looked at between two of them, so this bounds how far a
 * slice can overshoot: by about half a millisecond. */
#define BATCH_ROWS 50

void sweep_init(struct sweep *w, struct engine *engine, const char *scheduler, bool dry_run)
{
	*w = (struct sweep){ .engine = engine,
			     .scheduler = scheduler,
			     .dry_run = dry_run,
			     .started_at = clock_wall(engine->clock),
			     .started = clock_mono(engine->clock),
			     .after_at = INT64_MIN };
}

static int by_owner_and_group(const void *x, const void *y)
{
	const struct pruned *a = x, *b = y;
	int c = strcmp(a->owner, b->owner);

	return c ? c : strcmp(a->group, b->group);
}

static void read_row(struct tx *tx, const struct db_query *q, int more, struct pruned *ret)
{
	const char *group = db_text(q, 3);

	*ret = (struct pruned){ .at = db_int(q, 0),
				.id = db_int(q, 1),
				.owner = arena_strdup(&tx->arena, db_text(q, 2)),
				.group = arena_strdup(&tx->arena, group ? group : ""),
				.since = db_int(q, 4) };
	for (int i = 0; i < more; i++)
		ret->more[i] = arena_strdup(&tx->arena, db_text(q, 5 + i));
}

/* Removes one batch; the rows are sorted by owner and group afterwards. */
static int prune(struct sweep *w, struct tx *tx, const struct bound *b, struct pruned *rows,
		 size_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &b->prune);
	size_t n = 0;
	int r;

	db_bind_int(&q, 1, time_sub(w->started_at, bound_window(b, w->engine->settings)));
	db_bind_int(&q, 2, w->after_at);
	db_bind_int(&q, 3, w->after_id);
	db_bind_int(&q, 4, BATCH_ROWS);
	if (b->holdable)
		db_bind_int(&q, 5, tx->now);
	while ((r = db_step(&q)) > 0) {
		read_row(tx, &q, b->more, &rows[n]);
		if (rows[n].at > w->after_at ||
		    (rows[n].at == w->after_at && rows[n].id > w->after_id)) {
			w->after_at = rows[n].at;
			w->after_id = rows[n].id;
		}
		n++;
	}
	if (r < 0)
		return r;
	qsort(rows, n, sizeof(*rows), by_owner_and_group);
	*ret_n = n;
	return LAPSE_OK;
}

/* One event an owner: how many, the oldest, and why. */
static int announce(struct tx *tx, const struct bound *b, const struct pruned *rows, size_t n)
{
	for (size_t i = 0, start = 0; i < n; start = i) {
		lapse_ms oldest = rows[i].at;
		struct buf CLEANUP(buf_done) data = { 0 };
		while (i < n && strcmp(rows[i].owner, rows[start].owner) == 0) {
			oldest = rows[i].at < oldest ? rows[i].at : oldest;
			i++;
		}
		json_begin(&data, '{');
		json_put_text(&data, "table", b->table);
		json_put_int(&data, "count", (int64_t)(i - start));
		json_put_time(&data, "oldest", oldest);
		json_put_text(&data, "reason", b->reason);
		json_end(&data, '}');
		int r = event_add(tx, rows[start].owner, b->event, &data);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

static void measure_lag(struct sweep *w, const struct bound *b, lapse_ms now,
			const struct pruned *rows, size_t n)
{
	lapse_ms window = bound_window(b, w->engine->settings);

	for (size_t i = 0; i < n; i++) {
		lapse_ms deadline = time_add(rows[i].at, window);
		lapse_ms ready = deadline > rows[i].since ? deadline : rows[i].since;
		histogram_add(&w->engine->expiry_lag, HISTOGRAM_LAG, time_sub(now, ready) * 1000);
	}
}

static int prune_batch(struct sweep *w, struct tx *tx, const struct bound *b, size_t *ret_n)
{
	struct pruned rows[BATCH_ROWS];
	size_t n = 0;
	int r = prune(w, tx, b, rows, &n);

	if (r == LAPSE_OK && n > 0 && b->settle)
		r = b->settle(tx, rows, n);
	if (r == LAPSE_OK && n > 0 && b->event != EVENT_NONE)
		r = announce(tx, b, rows, n);
	if (r < 0)
		return r;
	tx->live_delta[w->bound] -= (int64_t)n;
	if (!w->dry_run)
		measure_lag(w, b, tx->now, rows, n);
	*ret_n = n;
	return LAPSE_OK;
}

/* Moves on to the next bound of this scheduler that may be swept now. */
static bool next_bound(struct sweep *w)
{
	const struct engine *e = w->engine;

	for (; w->bound < e->bounds_count; w->bound++) {
		const struct bound *b = e->bounds[w->bound];
		if (strcmp(b->scheduler, w->scheduler) == 0 && (b->paths & PATH_SWEEP) &&
		    (!w->by_deadline || bound_has_deadline(b)) &&
		    !guard_in_grace(e->restored_at, bound_window(b, e->settings), w->started_at))
			return true;
	}
	return false;
}

/* Either way of removing; *ret_more = this bound is not done. */
static int prune_some(struct sweep *w, struct tx *tx, lapse_us stop, int64_t *ret_n, bool *ret_more)
{
	const struct bound *b = w->engine->bounds[w->bound];
	size_t n = 0;

	if (b->memory && b->memory->prune)
		return b->memory->prune(w, tx, stop, ret_n, ret_more);
	int r = prune_batch(w, tx, b, &n);
	*ret_n = (int64_t)n;
	*ret_more = n == BATCH_ROWS;
	return r;
}

static int fill_slice(struct sweep *w, struct tx *tx, int64_t pruned[BOUNDS_MAX], bool *ret_more)
{
	const lapse_us stop =
		clock_mono(w->engine->clock) + w->engine->settings->sweep_budget_ms * 1000;

	while (next_bound(w)) {
		int64_t n = 0;
		bool more = false;
		int r = prune_some(w, tx, stop, &n, &more);
		if (r < 0)
			return r;
		pruned[w->bound] += n;
		if (!more) {
			w->bound++;
			w->after_at = INT64_MIN;
			w->after_id = 0;
		}
		if (clock_mono(w->engine->clock) >= stop)
			break;
	}
	*ret_more = next_bound(w);
	return LAPSE_OK;
}

static void add_up(struct sweep *w, const int64_t pruned[BOUNDS_MAX])
{
	for (size_t i = 0; i < w->engine->bounds_count; i++) {
		w->pruned[i] += pruned[i];
		w->total += pruned[i];
		if (!w->dry_run)
			w->engine->states[i].pruned += pruned[i];
	}
}

int sweep_slice(struct sweep *w, bool *ret_more)
{
	int64_t pruned[BOUNDS_MAX] = { 0 };
	struct tx tx;
	int r = tx_begin(&tx, w->engine);

	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	r = fill_slice(w, &tx, pruned, ret_more);
	int64_t freed = tx.freed_bytes;
	if (r < 0 || w->dry_run)
		tx_rollback(&tx);
	else
		r = tx_commit_lazy(&tx);
	if (r == LAPSE_OK)
		add_up(w, pruned);
	if (r == LAPSE_OK)
		w->bytes += freed;
	return r;
}
