/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the engine: ticks, sweeps, the matrix, the clock. */
#include <assert.h>
#include <string.h>

#include "lib/store.h"

/* Ticks */

void store_run_cleanup(void *store, struct cleanup *c)
{
	struct lapse_store *s = store;
	char why[128] = "";
	int r = c->kind->remove(s->settings.data_dir, c->target, why, sizeof(why));

	cleanup_settle(&s->engine, c, r, why);
}

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
	e->store_failing = false; /* so that it is about this tick */
	engine_tick(e);
	if (e->store_failing || failed_sweeps(e) > failed)
		r = problem_set(&store->problem, LAPSE_EUNAVAILABLE, NULL,
				"the store is failing: %.180s", db_error(e->db));
	return store_end(store, r);
}

lapse_us lapse_next_us(struct lapse_store *store)
{
	return engine_next_us(&store->engine);
}

/* A sweep by hand */

struct asked {
	struct sweep_request request;
	bool done;
	int err;
	struct sweep result;
};

static void sweep_done(struct sweep_request *r, int err, const struct sweep *result)
{
	struct asked *a = CONTAINER_OF(r, struct asked, request);

	a->done = true;
	a->err = err;
	a->result = *result;
}

static int run_sweep(struct lapse_store *s, struct scheduler *scheduler, struct asked *a)
{
	list_init(&a->request.link);
	a->request.done = sweep_done;
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
	size_t n = 0;

	for (size_t i = 0; i < s->engine.bounds_count; i++)
		if (strcmp(s->engine.bounds[i]->scheduler, w->scheduler) == 0)
			s->tables[n++] = (struct lapse_table_count){ s->engine.bounds[i]->table,
								     w->pruned[i] };
	s->sweep = (struct lapse_sweep_result){ .scheduler = w->scheduler,
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

static struct lapse_bound view(const struct engine *e, size_t i, const struct due_count *due,
			       lapse_ms now)
{
	const struct bound *b = e->bounds[i];
	const lapse_ms window = bound_window(b, e->settings);

	return (struct lapse_bound){ .table = b->table,
				     .scheduler = b->scheduler,
				     .bounded_by = b->bounded_by,
				     .due_when = b->due_when,
				     .safety_rule = b->safety_rule,
				     .action = b->action,
				     .paths = b->paths,
				     .window_ms = b->window == WINDOW_NONE ? LAPSE_NEVER : window,
				     .live_rows = e->states[i].live,
				     .due_rows = due->rows,
				     .oldest_due_ms = due_for(now, window, due),
				     .last_sweep = schedule_find(e, b->scheduler)->last_ended_at,
				     .pruned = e->states[i].pruned };
}

int lapse_matrix(struct lapse_store *store, lapse_bound_fn *fn, void *arg)
{
	struct engine *e = &store->engine;
	struct due_count due[BOUNDS_MAX] = { 0 };
	int r = store_enter(store);

	lapse_ms now = clock_wall(e->clock);
	if (r == LAPSE_OK)
		r = engine_count_due(e, now, due);
	for (size_t i = 0; r == LAPSE_OK && fn && i < e->bounds_count; i++) {
		struct lapse_bound v = view(e, i, &due[i], now);
		fn(arg, &v);
	}
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
