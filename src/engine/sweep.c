/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sweep.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/guard.h"
#include "engine/job.h"
#include "engine/tx.h"
#include "engine/usage.h"

/* Rows of one statement. The budget is looked at between two of them, so this bounds how far a
 * slice can overshoot: by about half a millisecond. */
#define BATCH_ROWS SWEEP_INLINE_MAX

static void mark_reset(struct sweep_mark *m)
{
	for (size_t i = 0; i < BOUND_KEYS_MAX; i++)
		free(m->text[i]);
	*m = (struct sweep_mark){ .at = INT64_MIN };
}

/* The first bound of this sweep's scheduler from that row of the matrix on; NULL = none. */
static struct bound *from_row(const struct sweep *w, size_t i)
{
	const struct matrix *m = &w->engine->matrix;

	while (i < m->count && m->bounds[i]->scheduler != w->scheduler)
		i++;
	return i < m->count ? m->bounds[i] : NULL;
}

static struct bound *bound_after(const struct sweep *w, const struct bound *b)
{
	const struct matrix *m = &w->engine->matrix;
	size_t i = 0;

	while (m->bounds[i] != b) {
		i++;
		assert(i < m->count);
	}
	return from_row(w, i + 1);
}

void sweep_init(struct sweep *w, struct engine *engine, struct scheduler *scheduler, bool dry_run)
{
	assert(scheduler->def && !scheduler->running);
	*w = (struct sweep){ .engine = engine,
			     .scheduler = scheduler,
			     .dry_run = dry_run,
			     .started_at = clock_wall(engine->clock),
			     .started = clock_mono(engine->clock),
			     .limit = INT64_MAX,
			     .after = { .at = INT64_MIN } };
	w->bound = from_row(w, 0);
	for (struct bound *b = w->bound; b; b = bound_after(w, b))
		b->swept = 0;
}

void sweep_done(struct sweep *w)
{
	mark_reset(&w->after);
	w->bound = NULL;
}

void sweep_forget(struct sweep *w, const struct bound *b)
{
	if (!b || w->bound != b)
		return;
	mark_reset(&w->after);
	w->bound = bound_after(w, b);
}

size_t sweep_counts(const struct sweep *w, struct arena *arena, struct sweep_count **ret)
{
	const struct matrix *m = &w->engine->matrix;
	struct sweep_count *counts = arena_alloc(arena, (m->count + 1) * sizeof(*counts));
	size_t n = 0;

	for (struct bound *b = from_row(w, 0); b; b = bound_after(w, b))
		counts[n++] = (struct sweep_count){ arena_strdup(arena, b->spec->name), b->swept };
	assert(n <= m->count);
	*ret = counts;
	return n;
}

static int by_owner_and_group(const void *x, const void *y)
{
	const struct pruned *a = x, *b = y;
	int c = strcmp(a->owner, b->owner);

	return c ? c : strcmp(a->group, b->group);
}

/* The columns of the key begin at 1. */
static const struct bound_value *read_bound_key(struct tx *tx, const struct db_query *q,
						const struct bound_spec *spec)
{
	size_t n = bound_keys(spec);

	if (n == 1 && spec->key[0].type == BOUND_INT)
		return NULL;
	assert(n <= BOUND_KEYS_MAX);
	struct bound_value *key = tx_alloc(tx, (n + 1) * sizeof(*key));
	for (size_t i = 0; i < n; i++) {
		int column = (int)i + 1;
		if (spec->key[i].type == BOUND_INT)
			key[i] = (struct bound_value){ VALUE_INT, db_int(q, column), NULL };
		else
			key[i] = (struct bound_value){
				VALUE_TEXT, 0, arena_strdup(&tx->arena, db_text(q, column))
			};
	}
	return key;
}

static const char *read_text(struct tx *tx, const struct db_query *q, int column)
{
	const char *text = db_text(q, column);

	return arena_strdup(&tx->arena, text ? text : "");
}

static void read_pruned_row(struct tx *tx, const struct db_query *q, const struct bound_spec *spec,
			    struct pruned *ret)
{
	int column = 1 + (int)bound_keys(spec);

	*ret = (struct pruned){ .at = db_int(q, 0),
				.key = read_bound_key(tx, q, spec),
				.owner = read_text(tx, q, column),
				.group = read_text(tx, q, column + 1),
				.since = db_int(q, column + 2),
				.bytes = db_int(q, column + 3) };
	if (!ret->key)
		ret->id = db_int(q, 1);
	for (int i = 0; spec->more && spec->more[i]; i++) {
		assert((size_t)i < ARRAY_LEN(ret->more));
		ret->more[i] = arena_strdup(&tx->arena, db_text(q, column + 4 + i));
	}
}

/* How a row stands to the mark in the order of the walk: rows come back in any order. */
static int compare_to_mark(const struct bound_spec *spec, const struct pruned *row,
			   const struct sweep_mark *m)
{
	if (spec->walk == WALK_TIME && row->at != m->at)
		return row->at > m->at ? 1 : -1;
	if (!row->key)
		return row->id == m->number[0] ? 0 : row->id > m->number[0] ? 1 : -1;
	for (size_t i = 0; spec->key[i].name; i++) {
		const struct bound_value *v = &row->key[i];
		int64_t n = m->number[i];
		int c = v->kind == VALUE_INT ? (v->number > n) - (v->number < n)
					     : strcmp(v->text, m->text[i] ? m->text[i] : "");
		if (c != 0)
			return c;
	}
	return 0;
}

static void move_sweep_mark(const struct bound_spec *spec, const struct pruned *row,
			    struct sweep_mark *m)
{
	if (compare_to_mark(spec, row, m) <= 0)
		return;
	assert(spec->walk == WALK_KEY || row->at >= m->at);
	m->at = row->at;
	m->number[0] = row->id;
	for (size_t i = 0; row->key && spec->key[i].name; i++) {
		m->number[i] = row->key[i].number;
		free(m->text[i]);
		m->text[i] = row->key[i].text ? mem_strdup(row->key[i].text) : NULL;
	}
}

/* How many rows the next statement may take. */
static int64_t batch_of(const struct sweep *w, const struct bound *b)
{
	int64_t left = w->limit - b->swept - b->slice;

	assert(left > 0);
	return left < BATCH_ROWS ? left : BATCH_ROWS;
}

/* Binds the parameters that choose rows: see struct bound_sql. */
static void bind_choice(const struct sweep *w, struct db_query *q, const struct bound *b,
			lapse_ms now)
{
	const struct bound_spec *spec = b->spec;
	int param = 3;

	db_bind_int(q, 1, time_sub(w->started_at, bound_window(b)));
	db_bind_int(q, 2, batch_of(w, b));
	if (spec->walk == WALK_TIME)
		db_bind_int(q, param++, w->after.at);
	for (size_t i = 0; spec->key[i].name; i++) {
		if (spec->key[i].type == BOUND_INT)
			db_bind_int(q, param++, w->after.number[i]);
		else
			db_bind_text(q, param++, w->after.text[i] ? w->after.text[i] : "");
	}
	if (bound_is_held(spec))
		db_bind_int(q, param++, now);
	assert(!q->prepared || param - 1 == db_params(q));
}

/* Locks the rows of the next batch. *ret_keys: one array for each column of the key, as texts that
 * PostgreSQL reads. False = there are none. */
static int lock_batch(struct sweep *w, struct tx *tx, const struct bound *b, char **ret_keys,
		      bool *ret_any)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &b->sql.lock);
	struct buf arrays[BOUND_KEYS_MAX] = { 0 };
	size_t columns = bound_keys(b->spec);
	bool any = false;
	int r;

	assert(columns > 0 && columns <= BOUND_KEYS_MAX);
	bind_choice(w, &q, b, tx->now);
	while ((r = db_step(&q)) > 0) {
		for (size_t i = 0; i < columns; i++) {
			buf_putc(&arrays[i], any ? ',' : '{');
			sql_array_item(&arrays[i], db_text(&q, (int)i));
		}
		any = true;
	}
	for (size_t i = 0; i < columns; i++) {
		buf_putc(&arrays[i], '}');
		ret_keys[i] = arena_strdup(&tx->arena, buf_text(&arrays[i]));
		buf_done(&arrays[i]);
	}
	*ret_any = any;
	return r;
}

/* Binds the parameters of `prune` for rows that are locked. */
static void bind_locked(const struct sweep *w, struct db_query *q, const struct bound *b,
			char *const *keys, lapse_ms now)
{
	size_t columns = bound_keys(b->spec);

	db_bind_int(q, 1, time_sub(w->started_at, bound_window(b)));
	for (size_t i = 0; i < columns; i++)
		db_bind_text(q, 2 + (int)i, keys[i]);
	if (bound_is_held(b->spec))
		db_bind_int(q, 2 + (int)columns, now);
}

/* Removes one batch; the rows are sorted by owner and group afterwards. */
static int run_prune(struct sweep *w, struct tx *tx, const struct bound *b, struct pruned *rows,
		     size_t *ret_n)
{
	char *keys[BOUND_KEYS_MAX] = { 0 };
	struct sweep_mark *after = &w->after;
	bool any = true;
	size_t n = 0;
	int r = b->sql.lock.sql ? lock_batch(w, tx, b, keys, &any) : LAPSE_OK;

	assert(tx_can_write(tx));
	assert(b->magic == BOUND_MAGIC && b->sql.prune.sql);
	*ret_n = 0;
	if (r < 0 || !any)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &b->sql.prune);
	if (b->sql.lock.sql)
		bind_locked(w, &q, b, keys, tx->now);
	else
		bind_choice(w, &q, b, tx->now);
	while ((r = db_step(&q)) > 0) {
		assert(n < BATCH_ROWS);
		read_pruned_row(tx, &q, b->spec, &rows[n]);
		move_sweep_mark(b->spec, &rows[n], after);
		n++;
	}
	if (r < 0)
		return r;
	qsort(rows, n, sizeof(*rows), by_owner_and_group);
	if (b->spec->bytes)
		usage_settle(tx, rows, n);
	*ret_n = n;
	return LAPSE_OK;
}

/* One event for each owner: how many, the oldest, and why. */
static int announce_pruned(struct tx *tx, const struct bound_spec *b, const struct pruned *rows,
			   size_t n)
{
	assert(b->event && n > 0);
	for (size_t i = 0, start = 0; i < n; start = i) {
		lapse_ms oldest = rows[i].at;
		struct buf CLEANUP(buf_done) data = { 0 };
		while (i < n && strcmp(rows[i].owner, rows[start].owner) == 0) {
			oldest = rows[i].at < oldest ? rows[i].at : oldest;
			i++;
		}
		assert(i > start);
		json_begin(&data, '{');
		json_put_text(&data, "table", b->name);
		json_put_int(&data, "count", (int64_t)(i - start));
		json_put_time(&data, "oldest", oldest);
		json_put_text(&data, "reason", b->reason);
		json_end(&data, '}');
		int r = event_add_named(tx, rows[start].owner, b->event, &data);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

/* How late each row of a batch went, for the histograms. */
struct sweep_lags {
	struct bound *bound;
	size_t n;
	lapse_ms late[];
};

static void note_lags(struct engine *e, void *arg)
{
	const struct sweep_lags *x = arg;

	assert(x->bound->magic == BOUND_MAGIC);
	for (size_t i = 0; i < x->n; i++)
		engine_note_lag(e, x->bound, x->late[i]);
}

static void measure_batch_lag(struct tx *tx, struct bound *b, const struct pruned *rows, size_t n)
{
	struct sweep_lags *x = tx_alloc(tx, sizeof(*x) + n * sizeof(x->late[0]));
	lapse_ms window = bound_window(b);

	x->bound = b;
	x->n = n;
	for (size_t i = 0; i < n; i++) {
		lapse_ms deadline = time_add(rows[i].at, window);
		lapse_ms ready = deadline > rows[i].since ? deadline : rows[i].since;
		x->late[i] = time_sub(tx->now, ready);
	}
	tx_effect(tx, note_lags, x);
}

static int prune_batch(struct sweep *w, struct tx *tx, struct bound *b, size_t *ret_n)
{
	const struct bound_spec *spec = b->spec;
	struct pruned rows[BATCH_ROWS];
	size_t n = 0;
	int r = run_prune(w, tx, b, rows, &n);

	if (r == LAPSE_OK && n > 0 && spec->settle)
		r = spec->settle(tx, rows, n);
	if (r == LAPSE_OK && n > 0 && spec->event)
		r = announce_pruned(tx, spec, rows, n);
	if (r < 0)
		return r;
	tx_count(tx, spec, -(int64_t)n);
	measure_batch_lag(tx, b, rows, n);
	assert(n <= BATCH_ROWS);
	*ret_n = n;
	return LAPSE_OK;
}

/* Moves on to the next bound of this scheduler that may be swept now. */
static bool next_swept_bound(struct sweep *w)
{
	const struct engine *e = w->engine;

	for (; w->bound; w->bound = bound_after(w, w->bound)) {
		const struct bound *b = w->bound;
		if (bound_is_ours(b) && (b->spec->paths & PATH_SWEEP) &&
		    (!w->by_deadline || bound_has_deadline(b)) &&
		    !guard_in_grace(e->restored_at, bound_window(b), w->started_at))
			return true;
	}
	return false;
}

/* Either way of removing; *ret_more = this bound is not done. */
static int prune_some(struct sweep *w, struct tx *tx, lapse_us stop, int64_t *ret_n, bool *ret_more)
{
	struct bound *b = w->bound;
	size_t n = 0;

	assert(b->magic == BOUND_MAGIC && !b->removed);
	if (b->spec->memory && b->spec->memory->prune)
		return b->spec->memory->prune(w, tx, stop, ret_n, ret_more);
	int64_t most = batch_of(w, b);
	int r = prune_batch(w, tx, b, &n);
	*ret_n = (int64_t)n;
	*ret_more = (int64_t)n == most;
	return r;
}

static int fill_slice(struct sweep *w, struct tx *tx, bool *ret_more)
{
	const lapse_us stop =
		clock_mono(w->engine->clock) + w->engine->settings->sweep_budget_ms * 1000;

	assert(tx_can_write(tx));
	while (next_swept_bound(w)) {
		int64_t n = 0;
		bool more = false;
		int r = prune_some(w, tx, stop, &n, &more);
		if (r < 0)
			return r;
		assert(n >= 0);
		w->bound->slice += n;
		if (more && w->bound->swept + w->bound->slice >= w->limit) {
			w->capped = true;
			more = false;
		}
		if (!more) {
			w->bound = bound_after(w, w->bound);
			mark_reset(&w->after);
		}
		if (clock_mono(w->engine->clock) >= stop)
			break;
	}
	*ret_more = next_swept_bound(w);
	return LAPSE_OK;
}

static void add_up(struct sweep *w)
{
	for (struct bound *b = from_row(w, 0); b; b = bound_after(w, b)) {
		assert(b->slice >= 0);
		b->swept += b->slice;
		w->total += b->slice;
		if (!w->dry_run)
			b->pruned += b->slice;
	}
}

static void clear_slice(struct sweep *w)
{
	for (struct bound *b = from_row(w, 0); b; b = bound_after(w, b))
		b->slice = 0;
}

/* A slice is a job. What it moves in the sweep goes back when it is undone. */
struct slice {
	struct job job;
	struct sweep *sweep;
	struct bound *bound;
	struct sweep_mark after;
	struct sweep_outside outside;
	int step_err;
	bool more;
	int64_t freed;
};

static void mark_copy(struct sweep_mark *to, const struct sweep_mark *from)
{
	mark_reset(to);
	*to = *from;
	for (size_t i = 0; i < ARRAY_LEN(to->text); i++)
		to->text[i] = from->text[i] ? mem_strdup(from->text[i]) : NULL;
}

static int slice_run(struct job *j, struct tx *tx)
{
	struct slice *x = CONTAINER_OF(j, struct slice, job);
	struct sweep *w = x->sweep;

	clear_slice(w);
	int r = w->dry_run ? LAPSE_OK : cluster_fence(tx, w->scheduler->def->name);
	if (r == LAPSE_OK)
		r = fill_slice(w, tx, &x->more);
	x->freed = tx->freed_bytes;
	return r == LAPSE_OK && w->dry_run ? JOB_UNDO : r;
}

static void slice_rewind(struct job *j)
{
	const struct slice *x = CONTAINER_OF(j, struct slice, job);
	struct sweep *w = x->sweep;

	assert(j->magic == JOB_MAGIC && w->engine);
	w->bound = x->bound;
	mark_copy(&w->after, &x->after);
	w->outside = x->outside;
	w->step_err = x->step_err;
}

int sweep_slice(struct sweep *w, bool *ret_more)
{
	struct slice x = { .job = { .magic = JOB_MAGIC, .run = slice_run, .rewind = slice_rewind },
			   .sweep = w,
			   .bound = w->bound,
			   .outside = w->outside,
			   .step_err = w->step_err };

	assert(w->engine->magic == ENGINE_MAGIC);
	mark_copy(&x.after, &w->after);
	int r = job_run(&x.job, w->engine, w->engine->db, STORE_WRITE);
	mark_reset(&x.after);
	if (r < 0)
		return r;
	if (r == LAPSE_OK)
		job_finish(&x.job);
	add_up(w);
	w->bytes += x.freed;
	*ret_more = x.more;
	return LAPSE_OK;
}

/* Inline removal */

struct inline_pruned {
	const struct bound_spec *spec;
	int64_t n;
};

static void add_pruned(struct engine *e, void *arg)
{
	const struct inline_pruned *p = arg;

	assert(p->n > 0);
	matrix_of(e, p->spec)->pruned += p->n;
}

int sweep_announce_inline(struct tx *tx, const struct bound_spec *spec, int64_t n,
			  const char *reason)
{
	const struct bound *b = matrix_of(tx->engine, spec);
	struct inline_pruned *p = tx_alloc(tx, sizeof(*p));
	struct buf CLEANUP(buf_done) data = { 0 };

	assert(tx_can_write(tx));
	assert(n > 0 && b->scheduler->def->pruned);
	*p = (struct inline_pruned){ spec, n };
	tx_effect(tx, add_pruned, p);
	json_begin(&data, '{');
	json_put_text(&data, "scheduler", spec->scheduler);
	json_put_int(&data, "pruned", n);
	json_key(&data, "tables");
	json_begin(&data, '{');
	json_put_int(&data, spec->name, n);
	json_end(&data, '}');
	json_put_text(&data, "reason", reason);
	json_end(&data, '}');
	return event_add_named(tx, "", b->scheduler->def->pruned, &data);
}

int sweep_inline(struct tx *tx, const struct bound_spec *spec, int64_t limit, int64_t *ret_n)
{
	const struct bound *b = matrix_of(tx->engine, spec);
	struct sweep w = { .engine = tx->engine,
			   .scheduler = b->scheduler,
			   .started_at = tx->now,
			   .limit = b->swept + b->slice + limit,
			   .after = { .at = INT64_MIN } };
	struct pruned rows[BATCH_ROWS];
	size_t n = 0;

	assert(limit > 0 && limit <= SWEEP_INLINE_MAX && !spec->selects);
	*ret_n = 0;
	if (guard_in_grace(tx->engine->restored_at, bound_window(b), tx->now))
		return LAPSE_OK;
	int r = run_prune(&w, tx, b, rows, &n);
	sweep_done(&w);
	if (r < 0 || n == 0)
		return r;
	tx_count(tx, spec, -(int64_t)n);
	r = spec->settle ? spec->settle(tx, rows, n) : LAPSE_OK;
	*ret_n = (int64_t)n;
	return r < 0 ? r : sweep_announce_inline(tx, spec, (int64_t)n, "found on the way");
}
