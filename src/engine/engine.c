/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/tx.h"
#include "engine/usage.h"
#include "store/migrate.h"

/* All events of the store are at most the newest id. */
static int load_ring(struct engine *e)
{
	int64_t pruned = 0;
	int r = meta_get(e->db, "events_pruned", 0, &pruned);

	assert(e->ring.held == 0);
	ring_start(&e->ring, e->ids.last, pruned);
	return r;
}

static int load_in_transaction(struct engine *e)
{
	int r = meta_get(e->db, "restored_at", 0, &e->restored_at);

	for (size_t i = 0; r == LAPSE_OK && i < e->matrix.count; i++)
		r = matrix_load(e, e->matrix.bounds[i]);
	if (r == LAPSE_OK)
		r = guard_load(e);
	if (r == LAPSE_OK)
		r = undone_load(e);
	if (r == LAPSE_OK)
		r = load_ring(e);
	if (r == LAPSE_OK)
		r = tokens_load(e);
	if (r == LAPSE_OK)
		r = quotas_load(e);
	if (r == LAPSE_OK)
		r = usage_load(e);
	if (r == LAPSE_OK)
		r = cleaner_load(e);
	for (size_t i = 0; r == LAPSE_OK && i < e->schedulers_count; i++)
		r = schedule_load(e, &e->schedulers[i]);
	return r;
}

static int engine_load(struct engine *e, struct problem *p)
{
	struct tx tx;
	int r = tx_begin(&tx, e);

	if (r == LAPSE_OK)
		r = cluster_join(&tx, p);
	if (r == LAPSE_OK)
		r = load_in_transaction(e);
	for (const struct room *const *x = e->rooms; r == LAPSE_OK && *x; x++)
		r = (*x)->load(&tx);
	if (r == LAPSE_OK)
		r = cluster_joined(&tx);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	assert(tx_can_write(&tx));
	return tx_commit(&tx);
}

/* Somebody who runs several versions for longer than an upgrade takes should know. */
static void warn_of_newer_schema(struct engine *e)
{
	int64_t current = 0;

	if (migrate_current(e->db, &current) < 0 || current <= migrate_newest())
		return;
	log_message(e->log, LOG_WARN, "store.newer",
		    "the database has schema version %" PRId64
		    " and this program knows %d: it serves, until all replicas are upgraded",
		    current, migrate_newest());
}

/* Trusted time follows the clock of the store, where it brings one. */
static int engine_open_store(struct engine *e, store_opener *postgres, struct problem *p)
{
	struct store_config config = { .settings = e->settings,
				       .clock = e->clock,
				       .system = e->system,
				       .postgres = postgres };
	int r = store_open(&config, &e->store, p);

	if (r < 0)
		return r;
	e->db = store_db(e->store);
	if (e->store->clock)
		guard_init(&e->guard, e->store->clock, e->settings);
	return LAPSE_OK;
}

static int add_room_bounds(struct engine *e, const struct bound_spec *const *bounds,
			   struct problem *p)
{
	int r = LAPSE_OK;

	assert(e->magic == ENGINE_MAGIC);
	for (; r == LAPSE_OK && *bounds; bounds++)
		r = matrix_add(e, *bounds, NULL, p);
	return r;
}

int engine_open(struct engine *e, const struct engine_config *config, struct problem *p)
{
	assert(config->settings && config->clock && config->log);
	assert(config->bounds && config->schedulers && config->cleanups && config->rooms);
	*e = (struct engine){ .magic = ENGINE_MAGIC,
			      .settings = config->settings,
			      .system = config->clock,
			      .log = config->log,
			      .rooms = config->rooms,
			      .owned = config->owned,
			      .files_shared = true,
			      .dir = { .lock_fd = -1 } };
	guard_init(&e->guard, config->clock, config->settings);
	e->clock = &e->guard.clock;
	ring_init(&e->ring);
	schedule_init(e, config->schedulers);
	cleaner_init(&e->cleaner, config->cleanups);

	int r = datadir_lock(&e->dir, config->settings->data_dir, p);
	if (r == LAPSE_OK)
		r = engine_open_store(e, config->postgres, p);
	if (r == LAPSE_OK)
		r = add_room_bounds(e, config->bounds, p);
	if (r == LAPSE_OK) {
		r = engine_load(e, p);
		if (r < 0 && !p->message[0])
			problem_set(p, r, NULL, "cannot read the store: %.180s", db_error(e->db));
	}
	if (r == LAPSE_OK)
		warn_of_newer_schema(e);
	if (r < 0)
		engine_close(e);
	assert((r == LAPSE_OK) == (e->magic == ENGINE_MAGIC));
	return r;
}

void engine_stop(struct engine *e)
{
	assert(e->magic == ENGINE_MAGIC && !e->stopped);
	e->stopped = true;
	schedule_stop(e);
	cleaner_stop(e);
	tokens_stop(e);
	for (const struct room *const *x = e->rooms; *x; x++)
		if ((*x)->stop)
			(*x)->stop(e);
}

void engine_close(struct engine *e)
{
	assert(e->magic == ENGINE_MAGIC);
	cluster_leave(e);
	e->magic = 0;
	store_close(e->store);
	for (const struct room *const *x = e->rooms; *x; x++)
		(*x)->done(e);
	matrix_done(e);
	cleaner_done(&e->cleaner);
	ring_done(&e->ring);
	tokens_done(&e->tokens);
	quotas_done(&e->quotas);
	for (size_t i = 0; i < ROOMS_COUNT; i++)
		assert(!e->slots[i]); /* each room has freed its own */
	datadir_unlock(&e->dir);
}

void engine_set_room(struct engine *e, enum room_id id, void *memory)
{
	assert(e->magic == ENGINE_MAGIC || !memory);
	assert(id < ROOMS_COUNT);
	assert(!memory || !e->slots[id]);
	e->slots[id] = memory;
}

void engine_tick(struct engine *e)
{
	assert(e->magic == ENGINE_MAGIC && !e->stopped);
	guard_tick(e);
	cluster_tick(e);
	cleaner_tick(e);
	schedule_tick(e);
	tokens_tick(e);
	for (const struct room *const *x = e->rooms; *x; x++)
		if ((*x)->tick)
			(*x)->tick(e);
}

static lapse_us rooms_next_us(const struct engine *e)
{
	lapse_us next = INT64_MAX;

	for (const struct room *const *x = e->rooms; *x; x++) {
		lapse_us in = (*x)->next_us ? (*x)->next_us(e) : INT64_MAX;
		next = in < next ? in : next;
	}
	return next;
}

lapse_us engine_next_us(const struct engine *e)
{
	const lapse_us all[] = { schedule_next_us(e), cleaner_next_us(e), guard_next_us(e),
				 tokens_next_us(e),   rooms_next_us(e),   cluster_next_us(e) };
	lapse_us next = INT64_MAX;

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		assert(all[i] >= 0);
		next = all[i] < next ? all[i] : next;
	}
	return next;
}

int engine_count_due(struct engine *e, struct due_counts *c)
{
	struct db *reader = store_take_reader(e->store);
	int r = matrix_count_due(reader, c);

	assert(e->magic == ENGINE_MAGIC);
	store_give_reader(e->store, reader);
	return r;
}

void engine_note_lag(struct engine *e, struct bound *b, lapse_ms lag)
{
	assert(!b || b->magic == BOUND_MAGIC);
	histogram_add(&e->expiry_lag, HISTOGRAM_LAG, lag * 1000);
	if (!b)
		return;
	b->lag_count++;
	b->lag_sum += lag > 0 ? lag * 1000 : 0;
}

static void write_schedulers(const struct engine *e, struct buf *out)
{
	char labels[96];

	metrics_family(out, METRIC_TICK_ERRORS);
	for (size_t i = 0; i < e->schedulers_count; i++) {
		if (e->schedulers[i].retired)
			continue;
		snprintf(labels, sizeof(labels), "scheduler=\"%s\"", e->schedulers[i].def->name);
		metrics_sample(out, METRIC_TICK_ERRORS, labels, e->schedulers[i].errors);
	}
	metrics_family(out, METRIC_SWEEP_SECONDS);
	for (size_t i = 0; i < e->schedulers_count; i++) {
		if (e->schedulers[i].retired)
			continue;
		snprintf(labels, sizeof(labels), "scheduler=\"%s\"", e->schedulers[i].def->name);
		metrics_histogram(out, METRIC_SWEEP_SECONDS, labels, HISTOGRAM_SECONDS,
				  &e->schedulers[i].seconds, e->settings->metrics_detail);
	}
}

void engine_write_metrics(const struct engine *e, struct buf *out)
{
	write_schedulers(e, out);
	for (const struct room *const *x = e->rooms; *x; x++)
		if ((*x)->write_metrics)
			(*x)->write_metrics(e, out);
	metrics_family(out, METRIC_EXPIRY_LAG);
	metrics_histogram(out, METRIC_EXPIRY_LAG, "", HISTOGRAM_LAG, &e->expiry_lag, true);
	metrics_family(out, METRIC_COMMIT_SECONDS);
	metrics_histogram(out, METRIC_COMMIT_SECONDS, "", HISTOGRAM_SECONDS, &e->commit_seconds,
			  true);
	metrics_family(out, METRIC_DEAD_LETTERS);
	metrics_sample(out, METRIC_DEAD_LETTERS, "", e->cleaner.dead);
	metrics_family(out, METRIC_CLOCK_TRUSTED);
	metrics_sample(out, METRIC_CLOCK_TRUSTED, "", !e->guard.jumped);
	cluster_write_metrics(e, out);
	store_write_metrics(e->store, out);
}
