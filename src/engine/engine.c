/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/idempotency.h"
#include "engine/tx.h"
#include "store/migrate.h"

/* How long the writer waits for a lock that only somebody else's tool can hold: a failed turn is
 * better than a frozen loop. */
#define WRITER_BUSY_MS 250
#define READER_BUSY_MS 2000

static const struct db_stmt COUNT_ADD = {
	"INSERT INTO counts (tbl, live) VALUES ($1, 0) ON CONFLICT (tbl) DO NOTHING"
};
static const struct db_stmt COUNT_GET = { "SELECT live FROM counts WHERE tbl = $1" };

static int add_count(struct db *db, const char *table)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &COUNT_ADD);

	db_bind_text(&q, 1, table);
	return db_run(&q);
}

static int load_count(struct db *db, const char *table, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &COUNT_GET);

	db_bind_text(&q, 1, table);
	int r = db_step(&q);
	if (r > 0)
		*ret = db_int(&q, 0);
	return r < 0 ? r : LAPSE_OK;
}

static int load_newest(struct engine *e, const struct bound *b)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &b->newest);
	int r = db_step(&q);

	if (r > 0 && db_int(&q, 0) > e->ids.last)
		e->ids.last = db_int(&q, 0);
	return r < 0 ? r : LAPSE_OK;
}

/* All events of the store are at most the newest id. */
static int load_ring(struct engine *e)
{
	int64_t pruned = 0;
	int r = meta_get(e->db, "events_pruned", 0, &pruned);

	ring_start(&e->ring, e->ids.last, pruned);
	return r;
}

static int load_in_transaction(struct engine *e)
{
	int r = meta_get(e->db, "restored_at", 0, &e->restored_at);

	for (size_t i = 0; r == LAPSE_OK && i < e->bounds_count; i++) {
		r = add_count(e->db, e->bounds[i]->table);
		if (r == LAPSE_OK)
			r = load_count(e->db, e->bounds[i]->table, &e->states[i].live);
		if (r == LAPSE_OK)
			r = load_newest(e, e->bounds[i]);
	}
	if (r == LAPSE_OK)
		r = watch_load(e);
	if (r == LAPSE_OK)
		r = load_ring(e);
	if (r == LAPSE_OK)
		r = tokens_load(e);
	if (r == LAPSE_OK)
		r = cleaner_load(e);
	for (size_t i = 0; r == LAPSE_OK && i < e->schedulers_count; i++)
		r = schedule_load(e, &e->schedulers[i]);
	return r;
}

static int load(struct engine *e)
{
	struct tx tx;
	int r = tx_begin(&tx, e);

	if (r == LAPSE_OK)
		r = load_in_transaction(e);
	if (r == LAPSE_OK)
		r = idempotency_recover(&tx);
	for (size_t i = 0; r == LAPSE_OK && i < e->bounds_count; i++)
		if (e->bounds[i]->memory)
			r = e->bounds[i]->memory->load(&tx);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	return tx_commit(&tx);
}

static int open_store(struct engine *e, struct problem *p)
{
	char path[DATADIR_PATH_MAX];
	int r = datadir_file(e->settings->data_dir, DATADIR_DATABASE, path);

	if (r < 0)
		return problem_set(p, r, "data_dir", "data_dir is too long");
	struct db_config config = { .path = path,
				    .clock = e->clock,
				    .durable = strcmp(e->settings->sqlite_synchronous, "off") != 0,
				    .lazy = true,
				    .busy_timeout_ms = WRITER_BUSY_MS };
	r = db_open(&config, &e->db, p);
	if (r == LAPSE_OK)
		r = migrate(e->db, p);
	config.clock = &CLOCK_SYSTEM; /* other threads call no clock but the machine's */
	config.busy_timeout_ms = READER_BUSY_MS;
	if (r == LAPSE_OK)
		r = checkpointer_start(&config, e->db, e->settings->wal_max_bytes, &e->checkpointer,
				       p);
	if (r == LAPSE_OK)
		r = syncer_start(path, config.durable, &e->syncer, p);
	config.read_only = true;
	if (r == LAPSE_OK)
		r = db_open(&config, &e->reader, p);
	return r;
}

int engine_open(struct engine *e, const struct engine_config *config, struct problem *p)
{
	*e = (struct engine){ .settings = config->settings,
			      .system = config->clock,
			      .log = config->log,
			      .bounds = config->bounds,
			      .dir = { .lock_fd = -1 } };
	guard_init(&e->guard, config->clock, config->settings);
	e->clock = &e->guard.clock;
	e->watch.store_at = clock_mono(e->clock);
	pthread_mutex_init(&e->reader_lock, NULL);
	waits_init(&e->waits);
	ring_init(&e->ring);
	while (config->bounds[e->bounds_count])
		e->bounds_count++;
	assert(e->bounds_count <= BOUNDS_MAX);
	schedule_init(e, config->schedulers);
	cleaner_init(&e->cleaner, config->cleanups);

	int r = datadir_lock(&e->dir, config->settings->data_dir, p);
	if (r == LAPSE_OK)
		r = open_store(e, p);
	if (r == LAPSE_OK) {
		r = load(e);
		if (r < 0)
			problem_set(p, r, NULL, "cannot read the store: %.180s", db_error(e->db));
	}
	if (r < 0)
		engine_close(e);
	return r;
}

void engine_stop(struct engine *e)
{
	schedule_stop(e);
	cleaner_stop(e);
	for (size_t i = 0; i < e->bounds_count; i++)
		if (e->bounds[i]->memory && e->bounds[i]->memory->stop)
			e->bounds[i]->memory->stop(e);
}

void engine_close(struct engine *e)
{
	syncer_stop(e->syncer);
	checkpointer_stop(e->checkpointer);
	db_close(e->reader);
	db_close(e->db);
	for (size_t i = 0; i < e->bounds_count; i++)
		if (e->bounds[i]->memory)
			e->bounds[i]->memory->done(e);
	cleaner_done(&e->cleaner);
	waits_done(&e->waits);
	ring_done(&e->ring);
	tokens_done(&e->tokens);
	datadir_unlock(&e->dir);
	pthread_mutex_destroy(&e->reader_lock);
}

void engine_tick(struct engine *e)
{
	watch_tick(e);
	cleaner_tick(e);
	schedule_tick(e);
	for (size_t i = 0; i < e->bounds_count; i++)
		if (e->bounds[i]->memory && e->bounds[i]->memory->tick)
			e->bounds[i]->memory->tick(e);
}

static lapse_us memory_next_us(const struct engine *e)
{
	lapse_us next = INT64_MAX;

	for (size_t i = 0; i < e->bounds_count; i++) {
		const struct bound_memory *m = e->bounds[i]->memory;
		lapse_us in = m && m->next_us ? m->next_us(e) : INT64_MAX;
		next = in < next ? in : next;
	}
	return next;
}

lapse_us engine_next_us(const struct engine *e)
{
	const lapse_us all[] = { schedule_next_us(e), cleaner_next_us(e), watch_next_us(e),
				 memory_next_us(e) };
	lapse_us next = INT64_MAX;

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		next = all[i] < next ? all[i] : next;
	return next;
}

void engine_sync(struct engine *e)
{
	syncer_sync(e->syncer);
	e->durable = e->commits;
}

int engine_count_due(struct engine *e, lapse_ms now, struct due_count ret[BOUNDS_MAX])
{
	pthread_mutex_lock(&e->reader_lock);
	int r = matrix_count_due(e, e->reader, now, ret);
	pthread_mutex_unlock(&e->reader_lock);
	return r;
}

static void write_schedulers(const struct engine *e, struct buf *out)
{
	char labels[96];

	metrics_family(out, METRIC_TICK_ERRORS);
	for (size_t i = 0; i < e->schedulers_count; i++) {
		snprintf(labels, sizeof(labels), "scheduler=\"%s\"", e->schedulers[i].def->name);
		metrics_sample(out, METRIC_TICK_ERRORS, labels, e->schedulers[i].errors);
	}
	metrics_family(out, METRIC_SWEEP_SECONDS);
	for (size_t i = 0; i < e->schedulers_count; i++) {
		snprintf(labels, sizeof(labels), "scheduler=\"%s\"", e->schedulers[i].def->name);
		metrics_histogram(out, METRIC_SWEEP_SECONDS, labels, HISTOGRAM_SECONDS,
				  &e->schedulers[i].seconds);
	}
}

void engine_write_metrics(const struct engine *e, struct buf *out)
{
	write_schedulers(e, out);
	for (size_t i = 0; i < e->bounds_count; i++)
		if (e->bounds[i]->memory && e->bounds[i]->memory->write_metrics)
			e->bounds[i]->memory->write_metrics(e, out);
	metrics_family(out, METRIC_EXPIRY_LAG);
	metrics_histogram(out, METRIC_EXPIRY_LAG, "", HISTOGRAM_LAG, &e->expiry_lag);
	metrics_family(out, METRIC_COMMIT_SECONDS);
	metrics_histogram(out, METRIC_COMMIT_SECONDS, "", HISTOGRAM_SECONDS, &e->commit_seconds);
	metrics_family(out, METRIC_DEAD_LETTERS);
	metrics_sample(out, METRIC_DEAD_LETTERS, "", e->cleaner.dead);
	metrics_family(out, METRIC_CLOCK_TRUSTED);
	metrics_sample(out, METRIC_CLOCK_TRUSTED, "", !e->guard.jumped);
	metrics_family(out, METRIC_WAL_BYTES);
	metrics_sample(out, METRIC_WAL_BYTES, "", checkpointer_wal_bytes(e->checkpointer));
}
