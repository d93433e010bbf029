/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store whose commit fails at random, as PostgreSQL's does after a serialization failure, a
 * deadlock or a lost connection: nothing was written, and everything must be tried again.
 *
 *	DOUBLE_SEED     (1)  the random numbers
 *	DOUBLE_PERCENT  (30)  of the commits fail
 *
 * One transaction is refused less often than a job is tried, so that a request must never notice.
 * A turn of several requests may be refused every time: then each runs alone. When the daemon ends,
 * no Idempotency-Key may be under way.
 */
#include "double.h"
#include "engine/job.h"
#include "store/driver.h"

static const struct store_ops *real;
static struct store_ops ops;
static const struct db_driver *real_driver;
static struct db_driver driver;

static uint64_t percent;
static int streak; /* refusals since the last commit that went well */
static int steps;  /* of the transaction under way */

static int retry_savepoint(struct db *db)
{
	steps++;
	return real_driver->savepoint(db);
}

static int retry_begin(struct store *s, struct db *lane, enum store_mode mode, lapse_ms *ret_now)
{
	steps = 0;
	return real->begin(s, lane, mode, ret_now);
}

static bool is_refused(void)
{
	int most = double_state.turns > 0 && steps > 1 ? JOB_TRIES : JOB_TRIES - 1;

	return double_state.server && streak < most && double_random() % 100 < percent;
}

static int retry_commit(struct store *s, struct db *lane, enum store_mode mode)
{
	if (is_refused()) {
		streak++;
		return LAPSE_ERETRY;
	}
	streak = 0;
	return real->commit(s, lane, mode);
}

static void retry_close(struct store *s)
{
	static const struct db_stmt UNDER_WAY = {
		"SELECT count(*) FROM idempotency_keys WHERE status = 0"
	};
	struct db_query q = db_query(store_db(s), &UNDER_WAY);

	if (db_step(&q) > 0 && db_int(&q, 0) > 0)
		double_fail("an Idempotency-Key is under way at the end");
	db_finish(&q);
	real->close(s);
}

static void retry_opened(struct store *s, const struct store_config *config)
{
	(void)config;
	double_seed(double_number("DOUBLE_SEED", 1));
	percent = double_number("DOUBLE_PERCENT", 30);
	real = s->ops;
	ops = *real;
	ops.begin = retry_begin;
	ops.commit = retry_commit;
	ops.close = retry_close;
	s->ops = &ops;
	real_driver = store_db(s)->driver;
	driver = *real_driver;
	driver.savepoint = retry_savepoint;
	store_db(s)->driver = &driver;
}

const struct double_hooks DOUBLE = { .opened = retry_opened };
