/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix in numbers: rows that are due, and what an operator asks next. */
#include "engine/matrix.h"

#include <assert.h>

#include "base/mem.h"
#include "engine/engine.h"

/* Counting stops here: an operator needs to know "many", not how many exactly. */
#define DUE_CAP 1000000

struct due_counts *matrix_count_begin(struct engine *e, struct arena *arena, const char *owner,
				      lapse_ms now)
{
	const struct matrix *m = &e->matrix;
	struct due_counts *c = arena_alloc(arena, sizeof(*c) + m->count * sizeof(struct due_count));

	assert(e->matrix.counting >= 0);
	e->matrix.counting++;
	c->now = now;
	c->owner = owner;
	c->n = m->count;
	for (size_t i = 0; i < m->count; i++)
		c->rows[i].bound = m->bounds[i];
	return c;
}

void matrix_count_end(struct engine *e)
{
	assert(e->matrix.counting > 0);
	e->matrix.counting--;
	matrix_bury(e);
}

static int count_due_rows(struct db *db, lapse_ms now, struct due_count *ret)
{
	const struct bound *b = ret->bound;
	struct db_query CLEANUP(db_finish) q = db_query(db, &b->sql.due);

	assert(b->magic == BOUND_MAGIC);
	db_bind_int(&q, 1, time_sub(now, bound_window(b)));
	db_bind_int(&q, 2, DUE_CAP);
	if (bound_is_held(b->spec))
		db_bind_int(&q, 3, now);
	int r = db_step(&q);
	if (r < 0)
		return r;
	ret->rows = db_int(&q, 0);
	ret->oldest = db_int(&q, 1);
	assert(ret->rows >= 0 && ret->rows <= DUE_CAP);
	return LAPSE_OK;
}

static int count_held_rows(struct db *db, lapse_ms now, struct due_count *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &ret->bound->sql.held);

	db_bind_int(&q, 1, time_sub(now, bound_window(ret->bound)));
	db_bind_int(&q, 2, now);
	int r = db_step(&q);
	if (r < 0)
		return r;
	ret->kept.held = db_int(&q, 0);
	return LAPSE_OK;
}

static int count_referenced_rows(struct db *db, lapse_ms now, struct due_count *ret)
{
	const struct bound *b = ret->bound;
	struct db_query CLEANUP(db_finish) q = db_query(db, &b->sql.referenced);

	db_bind_int(&q, 1, time_sub(now, bound_window(b)));
	db_bind_int(&q, 2, DUE_CAP);
	int r = db_step(&q);
	if (r < 0)
		return r;
	ret->kept.protected_ = db_int(&q, 0);
	return LAPSE_OK;
}

static int count_own_due(struct db *db, const struct due_counts *c, struct due_count *ret)
{
	const struct bound *b = ret->bound;
	struct db_query CLEANUP(db_finish) q = db_query(db, &b->sql.own_due);

	db_bind_int(&q, 1, time_sub(c->now, bound_window(b)));
	db_bind_int(&q, 2, DUE_CAP);
	if (bound_is_held(b->spec))
		db_bind_int(&q, 3, c->now);
	db_bind_text(&q, bound_is_held(b->spec) ? 4 : 3, c->owner);
	int r = db_step(&q);
	if (r < 0)
		return r;
	ret->rows = db_int(&q, 0);
	ret->oldest = db_int(&q, 1);
	return LAPSE_OK;
}

static const struct db_stmt OWNER_COUNT = {
	"SELECT live FROM table_counts WHERE owner = $1 AND tbl = $2"
};

static int count_own_live(struct db *db, const char *owner, struct due_count *ret)
{
	const struct bound_spec *spec = ret->bound->spec;
	struct db_query CLEANUP(db_finish) q =
		db_query(db, spec->counted_by_owner ? &OWNER_COUNT : spec->own_live);

	assert(!spec->counted_by_owner != !spec->own_live);
	db_bind_text(&q, 1, owner);
	if (spec->counted_by_owner)
		db_bind_text(&q, 2, spec->name);
	int r = db_step(&q);
	if (r < 0)
		return r;
	ret->own_live = r > 0 ? db_int(&q, 0) : 0;
	return LAPSE_OK;
}

/* What is not kept for each owner is not told: others' rows would show in it. */
static int count_own(struct db *db, struct due_counts *c)
{
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < c->n; i++) {
		struct due_count *row = &c->rows[i];
		row->rows = row->own_live = -1;
		if (row->bound->sql.own_due.sql)
			r = count_own_due(db, c, row);
		if (r == LAPSE_OK &&
		    (row->bound->spec->own_live || row->bound->spec->counted_by_owner))
			r = count_own_live(db, c->owner, row);
	}
	return r;
}

int matrix_count_due(struct db *db, struct due_counts *c)
{
	if (c->owner)
		return count_own(db, c);
	for (size_t i = 0; i < c->n; i++) {
		if (!c->rows[i].bound->sql.due.sql) /* not ours to read here: see matrix_due() */
			continue;
		int r = count_due_rows(db, c->now, &c->rows[i]);
		if (r == LAPSE_OK && c->rows[i].bound->sql.held.sql)
			r = count_held_rows(db, c->now, &c->rows[i]);
		if (r == LAPSE_OK && c->rows[i].bound->sql.referenced.sql)
			r = count_referenced_rows(db, c->now, &c->rows[i]);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

struct due_count matrix_due(const struct engine *e, const struct due_count *counted, lapse_ms now)
{
	const struct bound_memory *m = counted->bound->spec->memory;
	struct due_count own = *counted;

	assert(counted->bound->magic == BOUND_MAGIC);
	if (!bound_is_ours(counted->bound)) {
		own.rows = counted->bound->due;
		own.oldest = counted->bound->oldest_due;
		counted->bound->spec->elsewhere->kept(counted->bound->spec, &own.kept);
	} else if (m && m->due) {
		m->due(e, now, &own);
	}
	return own;
}

/* What an operator asks next */

void matrix_note_success(struct bound *b, lapse_us took, lapse_ms now)
{
	assert(took >= 0);
	b->last_success = now;
	if (b->swept == 0)
		return;
	b->pace_rows = b->swept;
	b->pace_us = took > 0 ? took : 1;
}

/* Rounded up: a pace that is not 0 is known. */
static int64_t per_second(int64_t rows, lapse_us took)
{
	assert(rows >= 0);
	if (rows == 0 || took <= 0)
		return 0;
	double rate = (double)rows * 1e6 / (double)took;
	return rate < 1 ? 1 : (int64_t)rate;
}

static int64_t bound_pace(const struct engine *e, const struct bound *b)
{
	const struct scheduler *s = b->scheduler;
	lapse_us from = b->swept_from ? b->swept_from : s->sweep.started;

	if (s->running && !s->sweep.dry_run && b->swept > 0)
		return per_second(b->swept, clock_mono(e->clock) - from);
	if (b->pace_rows > 0)
		return per_second(b->pace_rows, b->pace_us);
	return b->spec->elsewhere ? b->spec->elsewhere->allowed(b->spec) : 0;
}

static lapse_ms clears_in(const struct engine *e, const struct due_count *due, int64_t pace)
{
	const struct bound_spec *spec = due->bound->spec;
	const struct scheduler *s = due->bound->scheduler;
	lapse_us wait = s->running ? 0 : s->next_at - clock_mono(e->clock);

	if (due->rows == 0)
		return 0;
	if (pace == 0 || (spec->elsewhere && spec->elsewhere->waits(spec)))
		return LAPSE_NEVER;
	return time_add(wait > 0 ? wait / 1000 : 0, (due->rows * 1000 + pace - 1) / pace);
}

struct bound_outlook matrix_outlook(const struct engine *e, const struct due_count *due)
{
	const struct bound *b = due->bound;
	const struct bound_kept *k = &due->kept;
	struct bound_outlook o = { .undeletable =
					   k->held + k->protected_ + k->unreadable + k->locked,
				   .last_success = b->last_success,
				   .rows_per_second = bound_pace(e, b) };

	assert(o.undeletable >= 0);
	if (o.last_success == LAPSE_NEVER && bound_is_ours(b))
		o.last_success = b->scheduler->last_ended_at; /* of an earlier run, perhaps */
	o.clears_in = clears_in(e, due, o.rows_per_second);
	return o;
}
