/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the engine: ticks, sweeps, the matrix, the clock. */
#include <assert.h>
#include <string.h>

#include "lib/store.h"

/* Ticks */

static int64_t failed_sweeps(const struct engine *e)
{
	int64_t n = 0;

	for (size_t i = 0; i < e->schedulers_count; i++)
		n += e->schedulers[i].errors;
	return n;
}

int lapse_tick(struct lapse_store *store)
{
	struct engine *e = &store->engine;
	int64_t failed = failed_sweeps(e);
	int r = store_enter(store);

	if (r != LAPSE_OK)
		return store_end(store, r);
	assert(!store->in_tx);
	e->store_failing = false; /* so that it is about this tick */
	engine_tick(e);
	if (e->store_failing || failed_sweeps(e) > failed)
		r = problem_set(&store->problem, LAPSE_EUNAVAILABLE, NULL,
				"the store is failing: %.180s", db_error(e->db));
	return store_end(store, r);
}

lapse_us lapse_next_us(struct lapse_store *store)
{
	assert(store->magic == LAPSE_STORE_MAGIC);
	return engine_next_us(&store->engine);
}

/* A sweep by hand */

struct asked {
	struct sweep_request request;
	bool done;
	int err;
	struct sweep result;
};

static void asked_done(struct sweep_request *r, int err, const struct sweep *result)
{
	struct asked *a = CONTAINER_OF(r, struct asked, request);

	assert(!a->done && result->engine);
	a->done = true;
	a->err = err;
	a->result = *result;
}

static int run_sweep(struct lapse_store *s, struct scheduler *scheduler, struct asked *a)
{
	list_init(&a->request.link);
	a->request.done = asked_done;
	int r = schedule_request(&s->engine, scheduler, &a->request);
	while (r == LAPSE_OK && !a->done)
		schedule_tick_one(&s->engine, scheduler);
	if (r == LAPSE_OK && a->err < 0)
		r = problem_set(&s->problem, a->err, NULL, "the sweep failed: %.180s",
				db_error(s->engine.db));
	return r;
}

static void keep_result(struct lapse_store *s, const struct sweep *w)
{
	const struct matrix *m = &s->engine.matrix;
	size_t n = 0;

	assert(w->scheduler);
	s->tables = mem_realloc(s->tables, (m->count + 1) * sizeof(*s->tables));
	for (size_t i = 0; i < m->count; i++)
		if (m->bounds[i]->scheduler == w->scheduler)
			s->tables[n++] = (struct lapse_table_count){ m->bounds[i]->spec->name,
								     m->bounds[i]->swept };
	s->sweep = (struct lapse_sweep_result){ .scheduler = w->scheduler->def->name,
						.dry_run = w->dry_run,
						.pruned = w->total,
						.duration_us = w->ended - w->started,
						.tables = s->tables,
						.tables_count = n,
						.bytes = w->bytes };
}

int lapse_sweep(struct lapse_store *store, const char *scheduler, bool dry_run,
		const struct lapse_sweep_result **ret_result)
{
	struct scheduler *s = scheduler ? schedule_find(&store->engine, scheduler) : NULL;
	struct asked a = { .request.dry_run = dry_run };
	int r = store_enter(store);

	if (r == LAPSE_OK && !s)
		r = problem_set(&store->problem, LAPSE_ENOTFOUND, "scheduler",
				"there is no scheduler '%.60s'", scheduler ? scheduler : "");
	if (r == LAPSE_OK)
		r = run_sweep(store, s, &a);
	if (r == LAPSE_OK) {
		keep_result(store, &a.result);
		if (ret_result)
			*ret_result = &store->sweep;
	}
	return store_end(store, r);
}

/* The matrix */

static_assert((int)LAPSE_PATH_LAZY == (int)PATH_LAZY &&
		      (int)LAPSE_PATH_DEADLINE == (int)PATH_DEADLINE &&
		      (int)LAPSE_PATH_SWEEP == (int)PATH_SWEEP &&
		      (int)LAPSE_PATH_FORCED == (int)PATH_FORCED,
	      "the public header says what the paths are");

static lapse_ms due_for(lapse_ms now, lapse_ms window, const struct due_count *due)
{
	return due->rows > 0 ? time_sub(time_sub(now, window), due->oldest) : 0;
}

static struct lapse_bound bound_view(const struct engine *e, const struct due_count *due,
				     lapse_ms now)
{
	const struct bound_outlook outlook = matrix_outlook(e, due);
	const struct bound *b = due->bound;
	const struct bound_spec *s = b->spec;
	const lapse_ms window = bound_window(b);

	return (struct lapse_bound){ .table = s->name,
				     .scheduler = s->scheduler,
				     .bounded_by = s->bounded_by,
				     .due_when = s->due_when,
				     .safety_rule = s->safety_rule,
				     .action = s->action,
				     .paths = s->paths,
				     .window_ms = bound_has_window(s) ? window : LAPSE_NEVER,
				     .live_rows = b->live,
				     .due_rows = due->rows,
				     .oldest_due_ms = due_for(now, window, due),
				     .last_sweep = b->scheduler->last_ended_at,
				     .pruned = b->pruned,
				     .undeletable_rows = outlook.undeletable,
				     .last_success = outlook.last_success,
				     .rows_per_second = outlook.rows_per_second,
				     .clears_in_ms = outlook.clears_in };
}

static int count_and_show(struct lapse_store *store, struct arena *arena, lapse_bound_fn *fn,
			  void *arg)
{
	struct engine *e = &store->engine;
	struct due_counts *due = matrix_count_begin(e, arena, NULL, clock_wall(e->clock));
	int r = engine_count_due(e, due);

	for (size_t i = 0; r == LAPSE_OK && fn && i < due->n; i++) {
		struct due_count own = matrix_due(e, &due->rows[i], due->now);
		struct lapse_bound v = bound_view(e, &own, due->now);
		fn(arg, &v);
	}
	matrix_count_end(e);
	return r;
}

int lapse_matrix(struct lapse_store *store, lapse_bound_fn *fn, void *arg)
{
	struct arena CLEANUP(arena_done) arena;
	int r = store_enter(store);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = count_and_show(store, &arena, fn, arg);
	return store_end(store, r);
}

/* The clock */

int lapse_clock(struct lapse_store *store, const struct lapse_clock_state **ret_state)
{
	struct guard *g = &store->engine.guard;
	int r = store_enter(store);

	if (r != LAPSE_OK)
		return store_end(store, r);
	store->clock_state = (struct lapse_clock_state){ .trusted = guard_now(g),
							 .wall = clock_wall(&store->clock) };
	store->clock_state.jumped = g->jumped;
	store->clock_state.leap_ms = g->jumped ? g->leap_ms : 0;
	if (ret_state)
		*ret_state = &store->clock_state;
	return store_end(store, LAPSE_OK);
}

int lapse_clock_accept(struct lapse_store *store)
{
	int r = store_enter(store);

	if (r == LAPSE_OK && !guard_accept(&store->engine.guard))
		r = problem_set(&store->problem, LAPSE_ECONFLICT, NULL,
				"the clock is trusted: there is no leap to accept");
	return store_end(store, r);
}
