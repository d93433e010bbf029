/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that runs another job at every step of a statement, as lanes will: while one waits for
 * the server's answer, another has the engine. On one thread, so that a failure can be run again.
 *
 *	DOUBLE_SEED  (1)  the random numbers
 *
 * The other job is, each time: the engine's memory moves (shake.c), so that AddressSanitizer finds
 * a pointer kept across a call of db.h. And while a turn reads, the next turn in the queue runs on
 * a second lane from begin to commit, with its effects and answers; every request makes a turn by
 * itself, so that there is one. SQLite has one writer, so a turn that writes is not interrupted by
 * another turn.
 */
#include "double.h"
#include "shake.h"
#include "store/datadir.h"
#include "store/driver.h"

static const struct store_ops *real;
static struct store_ops ops;
static const struct db_driver *real_driver;
static struct db_driver driver;

static bool writing; /* a write transaction is open */
static bool nested;  /* the other job runs */

static int interleave_begin(struct store *s, struct db *lane, enum store_mode mode,
			    lapse_ms *ret_now)
{
	int r = real->begin(s, lane, mode, ret_now);

	if (r == LAPSE_OK && mode == STORE_WRITE)
		writing = true;
	return r;
}

static int interleave_commit(struct store *s, struct db *lane, enum store_mode mode)
{
	int r = real->commit(s, lane, mode);

	if (r == LAPSE_OK && mode == STORE_WRITE)
		writing = false;
	return r;
}

static void interleave_rollback(struct store *s, struct db *lane, enum store_mode mode)
{
	real->rollback(s, lane, mode);
	if (mode == STORE_WRITE)
		writing = false;
}

static void run_another_job(void)
{
	struct server *s = double_state.server;

	nested = true;
	shake(s->engine);
	if (!writing && double_state.turns > 0)
		turn_run(s);
	nested = false;
}

static int interleave_step(struct db *db, struct db_prepared *prepared)
{
	if (double_state.server && !nested)
		run_another_job();
	return real_driver->step(db, prepared);
}

static void interleave_close(struct store *s)
{
	while (s->lanes_count > 1)
		db_close(s->lanes[--s->lanes_count]);
	real->close(s);
}

static void add_lane(struct store *s, const struct store_config *config)
{
	char path[DATADIR_PATH_MAX];
	struct db_config db = {
		.path = path, .clock = config->clock, .durable = true, .lazy = true
	};
	struct problem p = { 0 };

	if (datadir_file(config->settings->data_dir, DATADIR_DATABASE, path) < 0 ||
	    db_open(&db, &s->lanes[s->lanes_count], &p) < 0)
		double_fail("cannot open the second lane");
	s->lanes_count++;
}

static void interleave_opened(struct store *s, const struct store_config *config)
{
	double_seed(double_number("DOUBLE_SEED", 1));
	real = s->ops;
	ops = *real;
	ops.begin = interleave_begin;
	ops.commit = interleave_commit;
	ops.rollback = interleave_rollback;
	ops.close = interleave_close;
	s->ops = &ops;
	add_lane(s, config);
	real_driver = store_db(s)->driver;
	driver = *real_driver;
	driver.step = interleave_step;
	store_db(s)->driver = &driver;
}

static void make_alone(struct request *r)
{
	r->alone = true;
}

const struct double_hooks DOUBLE = { .opened = interleave_opened, .queued = make_alone };
