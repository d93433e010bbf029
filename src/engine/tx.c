/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tx.h"

#include <assert.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/usage.h"

static void tx_init(struct tx *tx, struct engine *engine, struct db *lane, enum store_mode mode)
{
	assert(engine && lane);
	tx->magic = TX_MAGIC;
	tx->state = TX_OVER;
	tx->engine = engine;
	tx->db = lane;
	tx->write = mode == STORE_WRITE;
	arena_init(&tx->arena);
	tx->effects = NULL;
	tx->effects_tail = &tx->effects;
	tx->has_early = false;
	tx->step_tail = NULL;
	tx->undos = tx->step_undos = NULL;
	tx->freed_bytes = 0;
	tx->deltas = NULL;
	tx->usage = NULL;
}

static enum store_mode mode_of(const struct tx *tx)
{
	return tx->write ? STORE_WRITE : STORE_READ;
}

static void tx_move(struct tx *tx, enum tx_state from, enum tx_state to)
{
	assert(tx->magic == TX_MAGIC);
	assert(tx->state == from);
	tx->state = to;
}

int tx_begin_on(struct tx *tx, struct engine *engine, struct db *lane, enum store_mode mode)
{
	assert(engine->magic == ENGINE_MAGIC);
	tx_init(tx, engine, lane, mode);
	int r = store_tx_begin(engine->store, lane, mode, &tx->now);
	tx_move(tx, TX_OVER, r < 0 ? TX_FAILED : TX_OPEN);
	if (r < 0 && mode == STORE_WRITE)
		engine->store_failing = true;
	if (r < 0 || engine->outage.is_on)
		outage_note(&engine->outage, r, clock_wall(engine->clock));
	assert(r < 0 || db_in_transaction(lane));
	tx->changes = db_changes_total(lane);
	if (r == LAPSE_OK && mode == STORE_WRITE) {
		r = cluster_begin_turn(tx);
		if (r < 0) {
			store_tx_rollback(engine->store, lane, mode);
			tx_move(tx, TX_OPEN, TX_FAILED);
		}
	}
	return r;
}

int tx_begin(struct tx *tx, struct engine *engine)
{
	return tx_begin_on(tx, engine, engine->db, STORE_WRITE);
}

int tx_begin_read(struct tx *tx, struct engine *engine)
{
	return tx_begin_on(tx, engine, engine->db, STORE_READ);
}

bool tx_has_changed(const struct tx *tx)
{
	assert(tx->magic == TX_MAGIC);
	return db_changes_total(tx->db) != tx->changes;
}

static const struct db_stmt COUNT = { "UPDATE counts SET live = live + $1 WHERE tbl = $2" };

static int write_counts(struct tx *tx)
{
	for (const struct tx_delta *d = tx->deltas; d; d = d->next) {
		if (d->n == 0 || d->owner)
			continue;
		struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT);
		db_bind_int(&q, 1, d->n);
		db_bind_text(&q, 2, d->bound->name);
		int r = db_post(&q, DB_ANY);
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

static void run_undos(struct tx *tx, const struct effect *until)
{
	for (const struct effect *u = tx->undos; u != until; u = u->next)
		u->run(tx->engine, u->arg);
	tx->undos = (struct effect *)(uintptr_t)until;
}

static void add_counts(const struct tx *tx)
{
	for (const struct tx_delta *d = tx->deltas; d; d = d->next)
		if (d->n != 0 && !d->owner)
			matrix_of(tx->engine, d->bound)->live += d->n;
}

int tx_commit_start(struct tx *tx)
{
	assert(tx->magic == TX_MAGIC);
	assert(tx->state == TX_OPEN);
	tx->commit_started = clock_mono(tx->engine->clock);
	int r = write_counts(tx);
	if (r == LAPSE_OK)
		r = usage_write(tx);
	if (r == LAPSE_OK && tx->write)
		r = cluster_end_turn(tx);
	if (r == LAPSE_OK)
		r = store_tx_commit(tx->engine->store, tx->db, mode_of(tx));
	if (tx->write) {
		tx->engine->store_failing = r < 0;
		cluster_turn_over(tx->engine, r);
	}
	if (r < 0) {
		tx_rollback(tx);
		return r;
	}
	tx_move(tx, TX_OPEN, TX_COMMITTED);
	usage_apply(tx);
	ring_hold(&tx->engine->ring);
	if (tx->has_early)
		run_effects(tx, true);
	return r;
}

void tx_commit_finish(struct tx *tx)
{
	tx_move(tx, TX_COMMITTED, TX_OVER);
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
		store_sync(tx->engine->store);
	tx_commit_finish(tx);
	return LAPSE_OK;
}

void tx_rollback(struct tx *tx)
{
	assert(tx->magic == TX_MAGIC);
	assert(tx->state == TX_OPEN || tx->state == TX_STEP || tx->state == TX_FAILED);
	run_undos(tx, NULL);
	if (tx->state != TX_FAILED)
		store_tx_rollback(tx->engine->store, tx->db, mode_of(tx));
	tx->state = TX_OVER;
	arena_done(&tx->arena);
}

int tx_step_begin(struct tx *tx)
{
	tx_move(tx, TX_OPEN, TX_STEP);
	assert(*tx->effects_tail == NULL);
	tx->step_tail = tx->effects_tail;
	tx->step_undos = tx->undos;
	for (struct tx_delta *d = tx->deltas; d; d = d->next)
		d->step_n = d->n;
	usage_step_begin(tx);
	return db_savepoint(tx->db);
}

int tx_step_end(struct tx *tx)
{
	tx_move(tx, TX_STEP, TX_OPEN);
	return db_release(tx->db);
}

int tx_step_undo(struct tx *tx)
{
	tx_move(tx, TX_STEP, TX_OPEN);
	assert(tx->step_tail);
	tx->effects_tail = tx->step_tail;
	*tx->effects_tail = NULL;
	run_undos(tx, tx->step_undos);
	for (struct tx_delta *d = tx->deltas; d; d = d->next)
		d->n = d->step_n;
	usage_step_undo(tx);
	return db_rollback_step(tx->db);
}

void *tx_alloc(struct tx *tx, size_t size)
{
	assert(tx_is_open(tx));
	return arena_alloc(&tx->arena, size);
}

static void add_effect(struct tx *tx, effect_fn *run, void *arg, bool early)
{
	assert(run && *tx->effects_tail == NULL);
	assert(tx->state == TX_OPEN || tx->state == TX_STEP);
	struct effect *e = tx_alloc(tx, sizeof(*e));

	*e = (struct effect){ .run = run, .arg = arg, .early = early };
	*tx->effects_tail = e;
	tx->effects_tail = &e->next;
}

void tx_undo(struct tx *tx, effect_fn *run, void *arg)
{
	assert(tx->state == TX_OPEN || tx->state == TX_STEP);
	assert(tx->write);
	struct effect *u = tx_alloc(tx, sizeof(*u));

	*u = (struct effect){ .next = tx->undos, .run = run, .arg = arg };
	tx->undos = u;
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

static struct tx_delta *tx_find_delta(const struct tx *tx, const struct bound_spec *bound,
				      const char *owner)
{
	struct tx_delta *d = tx->deltas;

	assert(bound && bound->name);
	assert(tx_is_open(tx));
	while (d && (d->bound != bound || !d->owner != !owner ||
		     (owner && strcmp(d->owner, owner) != 0)))
		d = d->next;
	return d;
}

/* A transaction touches few bounds and owners, so the list is short. */
static void tx_add_delta(struct tx *tx, const struct bound_spec *bound, const char *owner,
			 int64_t n)
{
	struct tx_delta *d = tx_find_delta(tx, bound, owner);

	if (!d) {
		d = tx_alloc(tx, sizeof(*d));
		*d = (struct tx_delta){ .next = tx->deltas,
					.bound = bound,
					.owner = owner ? arena_strdup(&tx->arena, owner) : NULL };
		tx->deltas = d;
	}
	d->n += n;
}

void tx_count(struct tx *tx, const struct bound_spec *bound, int64_t n)
{
	tx_add_delta(tx, bound, NULL, n);
}

void tx_count_owned(struct tx *tx, const struct bound_spec *bound, const char *owner, int64_t n)
{
	assert(owner);
	tx_add_delta(tx, bound, owner, n);
}

int64_t tx_owned(const struct tx *tx, const struct bound_spec *bound, const char *owner)
{
	const struct tx_delta *d = tx_find_delta(tx, bound, owner);

	assert(owner);
	return d ? d->n : 0;
}

int64_t tx_live(const struct tx *tx, const struct bound_spec *bound)
{
	int64_t live = matrix_of(tx->engine, bound)->live;

	for (const struct tx_delta *d = tx->deltas; d; d = d->next)
		if (d->bound == bound && !d->owner)
			live += d->n;
	return live;
}
