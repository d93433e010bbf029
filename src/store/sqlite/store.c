/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/store.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/metrics.h"
#include "base/process.h"
#include "store/datadir.h"
#include "store/migrate.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/checkpoint.h"
#include "store/sqlite/syncer.h"

/* How long the writer waits for a lock that only a foreign tool can hold: a failed turn is better
 * than a frozen loop. */
#define WRITER_BUSY_MS 250
#define READER_BUSY_MS 2000

struct sqlite_store {
	struct store head;
	const char *data_dir; /* borrowed from the settings */
	struct checkpointer *checkpointer;
	struct syncer *syncer;
	struct db *reader;
	pthread_mutex_t reader_lock; /* held by the worker that uses the reader */
};

static const struct store_ops SQLITE_STORE;

static struct sqlite_store *sqlite_store_of(struct store *s)
{
	assert(s->magic == STORE_MAGIC);
	return CONTAINER_OF(s, struct sqlite_store, head);
}

/* A write transaction and a hard checkpoint keep each other out. */
static int sqlite_store_begin(struct store *s, struct db *lane, enum store_mode mode,
			      lapse_ms *ret_now)
{
	struct checkpointer *c = sqlite_store_of(s)->checkpointer;

	if (mode == STORE_READ)
		return db_begin_read(lane, ret_now);
	checkpointer_hold(c);
	int r = db_begin(lane, ret_now);
	if (r < 0)
		checkpointer_release(c);
	return r;
}

static int sqlite_store_commit(struct store *s, struct db *lane, enum store_mode mode)
{
	int r = db_commit(lane);

	if (r == LAPSE_OK && mode == STORE_WRITE)
		checkpointer_release(sqlite_store_of(s)->checkpointer);
	return r;
}

static void sqlite_store_rollback(struct store *s, struct db *lane, enum store_mode mode)
{
	db_rollback(lane);
	if (mode == STORE_WRITE)
		checkpointer_release(sqlite_store_of(s)->checkpointer);
}

static void sqlite_store_sync(struct store *s)
{
	syncer_sync(sqlite_store_of(s)->syncer);
}

static void sqlite_store_sync_start(struct store *s, void (*done)(void *arg), void *arg)
{
	syncer_request(sqlite_store_of(s)->syncer, done, arg);
}

static struct db *sqlite_store_take_reader(struct store *s, bool wait)
{
	struct sqlite_store *x = sqlite_store_of(s);

	if (!wait)
		return pthread_mutex_trylock(&x->reader_lock) == 0 ? x->reader : NULL;
	pthread_mutex_lock(&x->reader_lock);
	return x->reader;
}

static void sqlite_store_give_reader(struct store *s, struct db *reader)
{
	struct sqlite_store *x = sqlite_store_of(s);

	assert(reader == x->reader);
	pthread_mutex_unlock(&x->reader_lock);
}

static int64_t sqlite_store_bytes(struct store *s)
{
	char path[DATADIR_PATH_MAX];

	if (datadir_file(sqlite_store_of(s)->data_dir, DATADIR_DATABASE, path) < 0)
		return 0;
	return process_file_bytes(path);
}

static int sqlite_store_backup(struct store *s, const struct clock *clock, struct backup *ret,
			       struct problem *p)
{
	return sqlite_backup_make(sqlite_store_of(s)->data_dir, clock, ret, p);
}

int64_t sqlite_store_wal_bytes(struct store *s)
{
	return checkpointer_wal_bytes(sqlite_store_of(s)->checkpointer);
}

int64_t sqlite_store_checkpoint_errors(struct store *s)
{
	return checkpointer_errors(sqlite_store_of(s)->checkpointer);
}

static void sqlite_store_write_metrics(struct store *s, struct buf *out)
{
	metrics_family(out, METRIC_WAL_BYTES);
	metrics_sample(out, METRIC_WAL_BYTES, "", sqlite_store_wal_bytes(s));
}

static void sqlite_store_close(struct store *s)
{
	struct sqlite_store *x = sqlite_store_of(s);

	syncer_stop(x->syncer);
	checkpointer_stop(x->checkpointer);
	db_close(x->reader);
	db_close(s->lanes[0]);
	pthread_mutex_destroy(&x->reader_lock);
	s->magic = 0;
	free(x);
}

/* The writer first: it makes the file and migrates it. The helpers' threads come after, with
 * connections of their own. */
static int open_parts(struct sqlite_store *x, const struct store_config *config, struct problem *p)
{
	char path[DATADIR_PATH_MAX];
	int r = datadir_file(x->data_dir, DATADIR_DATABASE, path);

	if (r < 0)
		return problem_set(p, r, "data_dir", "data_dir is too long");
	struct db_config db = { .path = path,
				.clock = config->clock,
				.durable = strcmp(config->settings->sqlite_synchronous, "off") != 0,
				.lazy = true,
				.busy_timeout_ms = WRITER_BUSY_MS };
	r = db_open(&db, &x->head.lanes[0], p);
	if (r == LAPSE_OK)
		r = migrate(x->head.lanes[0], p);
	db.clock = &CLOCK_SYSTEM; /* other threads read the machine's clock only */
	db.busy_timeout_ms = READER_BUSY_MS;
	if (r == LAPSE_OK)
		r = checkpointer_start(&db, x->head.lanes[0], config->settings->wal_max_bytes,
				       &x->checkpointer, p);
	if (r == LAPSE_OK)
		r = syncer_start(path, db.durable, &x->syncer, p);
	db.read_only = true;
	if (r == LAPSE_OK)
		r = db_open(&db, &x->reader, p);
	return r;
}

int sqlite_store_open(const struct store_config *config, struct store **ret, struct problem *p)
{
	struct sqlite_store *x = mem_zalloc(1, sizeof(*x));

	x->head = (struct store){ .magic = STORE_MAGIC, .ops = &SQLITE_STORE, .lanes_count = 1 };
	x->data_dir = config->settings->data_dir;
	pthread_mutex_init(&x->reader_lock, NULL);
	int r = open_parts(x, config, p);
	if (r < 0) {
		sqlite_store_close(&x->head);
		return r;
	}
	*ret = &x->head;
	return LAPSE_OK;
}

static const struct store_ops SQLITE_STORE = {
	.begin = sqlite_store_begin,
	.commit = sqlite_store_commit,
	.rollback = sqlite_store_rollback,
	.sync = sqlite_store_sync,
	.sync_start = sqlite_store_sync_start,
	.take_reader = sqlite_store_take_reader,
	.give_reader = sqlite_store_give_reader,
	.bytes = sqlite_store_bytes,
	.backup = sqlite_store_backup,
	.write_metrics = sqlite_store_write_metrics,
	.close = sqlite_store_close,
};
