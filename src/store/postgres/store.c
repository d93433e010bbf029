/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/store.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/metrics.h"
#include "base/secret.h"
#include "store/migrate.h"
#include "store/postgres/db.h"
#include "store/postgres/lock.h"
#include "store/postgres/move.h"
#include "store/postgres/uri.h"

#define LANE_STATEMENT_MS 15000 /* statements of a turn are short; the loop waits for them */
#define READER_STATEMENT_MS 60000
#define STEPS_MAX 32 /* more than 64 subtransactions overflow PostgreSQL's cache of them */

struct pg_store {
	struct store head;
	struct pg_clock time;
	struct buf uri; /* may hold a password */
	struct db *reader;
	pthread_mutex_t reader_lock; /* held by the worker that uses the reader */
};

static const struct store_ops PG_STORE;

static struct pg_store *pg_store_of(struct store *s)
{
	assert(s->magic == STORE_MAGIC);
	return CONTAINER_OF(s, struct pg_store, head);
}

static int pg_store_begin(struct store *s, struct db *lane, enum store_mode mode, lapse_ms *ret_now)
{
	(void)s;
	return mode == STORE_READ ? db_begin_read(lane, ret_now) : db_begin(lane, ret_now);
}

static int pg_store_commit(struct store *s, struct db *lane, enum store_mode mode)
{
	(void)s;
	(void)mode;
	return db_commit(lane);
}

static void pg_store_rollback(struct store *s, struct db *lane, enum store_mode mode)
{
	(void)s;
	(void)mode;
	db_rollback(lane);
}

static void pg_store_sync(struct store *s)
{
	(void)s; /* what was committed is durable */
}

static void pg_store_sync_start(struct store *s, void (*done)(void *arg), void *arg)
{
	(void)s;
	done(arg);
}

static struct db *pg_store_take_reader(struct store *s, bool wait)
{
	struct pg_store *x = pg_store_of(s);

	if (!wait)
		return pthread_mutex_trylock(&x->reader_lock) == 0 ? x->reader : NULL;
	pthread_mutex_lock(&x->reader_lock);
	return x->reader;
}

static void pg_store_give_reader(struct store *s, struct db *reader)
{
	struct pg_store *x = pg_store_of(s);

	assert(reader == x->reader);
	pthread_mutex_unlock(&x->reader_lock);
}

static int pg_store_backup(struct store *s, const struct clock *clock, struct backup *ret,
			   struct problem *p)
{
	(void)s;
	(void)clock;
	(void)ret;
	return problem_set(p, LAPSE_ECONFLICT, NULL,
			   "the store is a PostgreSQL database: back it up with pg_dump or the "
			   "server's own tools, and the files below data_dir beside it");
}

static int64_t pg_store_bytes(struct store *s)
{
	static const struct db_stmt SIZE = { "SELECT pg_database_size(current_database())" };
	struct db *reader = store_take_reader(s);
	int64_t bytes = 0;

	{
		struct db_query CLEANUP(db_finish) q = db_query(reader, &SIZE);
		if (db_step(&q) > 0)
			bytes = db_int(&q, 0);
	}
	store_give_reader(s, reader);
	return bytes;
}

static void pg_store_write_metrics(struct store *s, struct buf *out)
{
	int64_t n = 0;

	for (int i = 0; i < s->lanes_count; i++)
		n += pg_reconnects(s->lanes[i]);
	metrics_family(out, METRIC_STORE_RECONNECTS);
	metrics_sample(out, METRIC_STORE_RECONNECTS, "", n);
}

static void pg_store_close(struct store *s)
{
	struct pg_store *x = pg_store_of(s);

	db_close(x->reader);
	for (int i = 0; i < s->lanes_count; i++)
		db_close(s->lanes[i]);
	pthread_mutex_destroy(&x->reader_lock);
	secret_wipe(&x->uri);
	s->magic = 0;
	free(x);
}

/* Opening */

/* What a move left unfinished is a part of a store. */
static int refuse_unfinished(struct db *lane, struct problem *p)
{
	bool unfinished = false;
	int r = move_is_unfinished(lane, &unfinished);

	if (r < 0)
		return problem_set(p, r, "store", "%.200s", db_error(lane));
	return unfinished ? problem_set(p, LAPSE_ECONFLICT, "store",
					"a move into this database was not finished: run lapse "
					"migrate again, or use another database")
			  : LAPSE_OK;
}

/* Replicas that start together migrate one after the other. */
#define MIGRATE_KEY "7881706990341218407"
#define MIGRATE_LOCK_MS 5000 /* for tables that other replicas are reading */

static int migrate_alone(struct db *lane, bool rolling, struct problem *p)
{
	int r = pg_command(lane, "SET lock_timeout = 0; SELECT pg_advisory_lock(" MIGRATE_KEY ")");

	if (r < 0)
		return problem_set(p, LAPSE_EUNAVAILABLE, "store", "%.200s", db_error(lane));
	db_limit_lock_wait(lane, MIGRATE_LOCK_MS);
	r = rolling ? migrate_rolling(lane, p) : migrate(lane, p);
	db_limit_lock_wait(lane, 0);
	if (r == LAPSE_OK && pg_command(lane, "SELECT pg_advisory_unlock(" MIGRATE_KEY ")") < 0)
		r = problem_set(p, LAPSE_EUNAVAILABLE, "store", "%.200s", db_error(lane));
	return r;
}

/* A replica that stops in the middle of a transaction must not keep the others from their turn for
 * longer than they keep their leases: half a lease for its statement or its silence, and they wait
 * a little longer than that. */
static void limit_for_cluster(struct pg_config *db, const struct settings *set)
{
	if (!set->cluster)
		return;
	db->wire.idle_ms = set->cluster_lease_ms / 2;
	db->turn_ms = set->cluster_lease_ms * 3 / 4;
}

static int64_t lane_statement_ms(const struct settings *set)
{
	const int64_t half = set->cluster_lease_ms / 2;

	return set->cluster && half < LANE_STATEMENT_MS ? half : LANE_STATEMENT_MS;
}

/* The lane first: it takes the lock and migrates, which may last. */
static int pg_open_parts(struct pg_store *x, const struct store_config *config, struct problem *p)
{
	struct pg_config db = { .wire = { .uri = buf_text(&x->uri) },
				.clock = config->clock,
				.system = config->system,
				.time = &x->time,
				.greet = config->settings->cluster ? pg_lock_share : pg_lock_take };
	limit_for_cluster(&db, config->settings);
	int r = pg_open(&db, &x->head.lanes[0], p);

	if (r < 0)
		return r;
	x->head.lanes_count = 1;
	r = refuse_unfinished(x->head.lanes[0], p);
	if (r == LAPSE_OK)
		r = migrate_alone(x->head.lanes[0], config->settings->cluster, p);
	if (r == LAPSE_OK &&
	    pg_limit_statements(x->head.lanes[0], lane_statement_ms(config->settings)) < 0)
		r = problem_set(p, LAPSE_EUNAVAILABLE, "store", "%.200s",
				db_error(x->head.lanes[0]));
	db.clock = &CLOCK_SYSTEM; /* other threads read the machine's clock only */
	db.time = NULL;
	db.greet = NULL;
	db.turn_ms = 0;
	db.wire.read_only = true;
	db.wire.statement_ms = READER_STATEMENT_MS;
	return r < 0 ? r : pg_open(&db, &x->reader, p);
}

int pg_store_open(const struct store_config *config, struct store **ret, struct problem *p)
{
	struct pg_store *x = mem_zalloc(1, sizeof(*x));

	assert(config->system && config->clock);
	pg_clock_init(&x->time, config->system);
	x->head = (struct store){ .magic = STORE_MAGIC,
				  .ops = &PG_STORE,
				  .dialect = DIALECT_POSTGRES,
				  .clock = &x->time.clock,
				  .commits_are_durable = true,
				  .steps_max = STEPS_MAX };
	pthread_mutex_init(&x->reader_lock, NULL);
	int r = pg_uri_read(config->settings->store, &x->uri, p);
	if (r == LAPSE_OK)
		r = pg_open_parts(x, config, p);
	if (r < 0) {
		pg_store_close(&x->head);
		return r;
	}
	*ret = &x->head;
	return LAPSE_OK;
}

static const struct store_ops PG_STORE = {
	.begin = pg_store_begin,
	.commit = pg_store_commit,
	.rollback = pg_store_rollback,
	.sync = pg_store_sync,
	.sync_start = pg_store_sync_start,
	.take_reader = pg_store_take_reader,
	.give_reader = pg_store_give_reader,
	.backup = pg_store_backup,
	.bytes = pg_store_bytes,
	.write_metrics = pg_store_write_metrics,
	.close = pg_store_close,
};
