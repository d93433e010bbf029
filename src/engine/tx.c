/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tx.h"

#include <assert.h>
#include <string.h>

#include "engine/engine.h"

static void init(struct tx *tx, struct engine *engine, bool write)
{
	tx->engine = engine;
	tx->db = engine->db;
	tx->write = write;
	arena_init(&tx->arena);
	tx->effects = NULL;
	tx->effects_tail = &tx->effects;
	tx->has_early = false;
	tx->step_tail = NULL;
	tx->freed_bytes = 0;
	memset(tx->live_delta, 0, sizeof(tx->live_delta));
}

int tx_begin(struct tx *tx, struct engine *engine)
{
	init(tx, engine, true);
	checkpointer_hold(engine->checkpointer);
	int r = db_begin(tx->db, &tx->now);
	if (r < 0)
		engine->store_failing = true;
	tx->changes = db_changes_total(tx->db);
	return r;
}

int tx_begin_read(struct tx *tx, struct engine *engine)
{
	init(tx, engine, false);
	return db_begin_read(tx->db, &tx->now);
}

bool tx_has_changed(const struct tx *tx)
{
	return db_changes_total(tx->db) != tx->changes;
}

static const struct db_stmt COUNT = { "UPDATE counts SET live = live + $1 WHERE tbl = $2" };

static int write_counts(struct tx *tx)
{
	for (size_t i = 0; i < tx->engine->bounds_count; i++) {
		if (tx->live_delta[i] == 0)
			continue;
		struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT);
		db_bind_int(&q, 1, tx->live_delta[i]);
		db_bind_text(&q, 2, tx->engine->bounds[i]->table);
		int r = db_run(&q);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

static void run_effects(const struct tx *tx, bool early)
{
	for (const struct effect *e = tx->effects; e; e = e->next)
		if (e->early == early)
			e->run(tx->engine, e->arg);
}

static void add_counts(const struct tx *tx)
{
	for (size_t i = 0; i < tx->engine->bounds_count; i++)
		tx->engine->states[i].live += tx->live_delta[i];
}

int tx_commit_start(struct tx *tx)
{
	tx->commit_started = clock_mono(tx->engine->clock);
	int r = write_counts(tx);
	if (r == LAPSE_OK)
		r = db_commit(tx->db);
	if (tx->write)
		tx->engine->store_failing = r < 0;
	if (r < 0) {
		tx_rollback(tx);
		return r;
	}
	if (tx->write) {
		checkpointer_release(tx->engine->checkpointer);
		tx->engine->commits++;
	}
	ring_hold(&tx->engine->ring);
	if (tx->has_early)
		run_effects(tx, true);
	return r;
}

void tx_commit_finish(struct tx *tx)
{
	if (tx->write)
		histogram_add(&tx->engine->commit_seconds, HISTOGRAM_SECONDS,
			      clock_mono(tx->engine->clock) - tx->commit_started);
	add_counts(tx);
	run_effects(tx, false);
	ring_release(&tx->engine->ring);
	arena_done(&tx->arena);
}

int tx_commit_lazy(struct tx *tx)
{
	int r = tx_commit_start(tx);

	if (r == LAPSE_OK)
		tx_commit_finish(tx);
	return r;
}

int tx_commit(struct tx *tx)
{
	int r = tx_commit_start(tx);

	if (r < 0)
		return r;
	if (tx->write)
		engine_sync(tx->engine);
	tx_commit_finish(tx);
	return LAPSE_OK;
}

void tx_rollback(struct tx *tx)
{
	db_rollback(tx->db);
	if (tx->write)
		checkpointer_release(tx->engine->checkpointer);
	arena_done(&tx->arena);
}

int tx_step_begin(struct tx *tx)
{
	tx->step_tail = tx->effects_tail;
	memcpy(tx->step_live_delta, tx->live_delta, sizeof(tx->live_delta));
	return db_savepoint(tx->db);
}

int tx_step_end(struct tx *tx)
{
	return db_release(tx->db);
}

int tx_step_undo(struct tx *tx)
{
	assert(tx->step_tail);
	tx->effects_tail = tx->step_tail;
	*tx->effects_tail = NULL;
	memcpy(tx->live_delta, tx->step_live_delta, sizeof(tx->live_delta));
	return db_rollback_step(tx->db);
}

void *tx_alloc(struct tx *tx, size_t size)
{
	return arena_alloc(&tx->arena, size);
}

static void add_effect(struct tx *tx, effect_fn *run, void *arg, bool early)
{
	struct effect *e = tx_alloc(tx, sizeof(*e));

	*e = (struct effect){ .run = run, .arg = arg, .early = early };
	*tx->effects_tail = e;
	tx->effects_tail = &e->next;
}

void tx_effect(struct tx *tx, effect_fn *run, void *arg)
{
	add_effect(tx, run, arg, false);
}

void tx_effect_early(struct tx *tx, effect_fn *run, void *arg)
{
	tx->has_early = true;
	add_effect(tx, run, arg, true);
}

void tx_count(struct tx *tx, const char *table, int64_t n)
{
	int i = matrix_find(tx->engine, table);

	assert(i >= 0);
	tx->live_delta[i] += n;
}
