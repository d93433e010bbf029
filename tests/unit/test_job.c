/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: tried again as a whole, effects once, nothing left behind by a run that was undone. */
#include "engine/job.h"
#include "unit.h"

/* A store whose commit refuses the first `refusals` times. */
static int refusals;
static const struct store_ops *real_ops;
static struct store_ops ops;

static int commit_later(struct store *s, struct db *lane, enum store_mode mode)
{
	return refusals-- > 0 ? LAPSE_ERETRY : real_ops->commit(s, lane, mode);
}

static int setup(void **state)
{
	world_setup(state);
	struct store *s = ((struct world *)*state)->engine.store;

	refusals = 0;
	real_ops = s->ops;
	ops = *real_ops;
	ops.commit = commit_later;
	s->ops = &ops;
	return 0;
}

struct trial {
	struct job job;
	int runs, rewinds, effects, finished;
	int fails; /* runs whose body fails, */
	int err;   /* with this */
};

static void count_effect(struct engine *e, void *arg)
{
	(void)e;
	++*(int *)arg;
}

static int body(struct job *j, struct tx *tx)
{
	struct trial *t = CONTAINER_OF(j, struct trial, job);

	t->runs++;
	tx_effect(tx, count_effect, &t->effects);
	int r = db_script(tx->db, "INSERT INTO meta (key, value) VALUES ('trial', 1)");
	return r < 0 || t->runs > t->fails ? r : t->err;
}

static void count_rewind(struct job *j)
{
	CONTAINER_OF(j, struct trial, job)->rewinds++;
}

static void count_finish(struct job *j)
{
	struct trial *t = CONTAINER_OF(j, struct trial, job);

	assert_int_equal(t->effects, 1); /* they have run */
	t->finished++;
}

static struct trial make_trial(void)
{
	return (struct trial){ .job = { .magic = JOB_MAGIC,
					.run = body,
					.rewind = count_rewind,
					.finish = count_finish } };
}

static int run_trial(struct world *w, struct trial *t)
{
	int r = job_run(&t->job, &w->engine, w->engine.db, STORE_WRITE);

	assert_false(db_in_transaction(w->engine.db));
	if (r == LAPSE_OK)
		job_finish(&t->job);
	return r;
}

static int64_t rows(struct world *w)
{
	return side_int(w, "SELECT count(*) FROM meta WHERE key = 'trial'");
}

static void a_refused_commit_is_tried_again(void **state)
{
	for (int n = 0; n < JOB_TRIES; n++) {
		struct world *w = *state;
		struct trial t = make_trial();
		refusals = n;
		assert_int_equal(run_trial(w, &t), LAPSE_OK);
		assert_int_equal(t.runs, n + 1);
		assert_int_equal(t.rewinds, n);
		assert_int_equal(t.effects, 1);
		assert_int_equal(t.finished, 1);
		assert_int_equal(rows(w), 1);
		side_run(w, "DELETE FROM meta WHERE key = 'trial'");
	}
}

static void it_gives_up_in_the_end(void **state)
{
	struct world *w = *state;
	struct trial t = make_trial();

	refusals = 1000;
	assert_int_equal(run_trial(w, &t), LAPSE_ERETRY);
	assert_int_equal(t.runs, JOB_TRIES);
	assert_int_equal(t.rewinds, JOB_TRIES);
	assert_int_equal(t.effects, 0);
	assert_int_equal(rows(w), 0);
	refusals = 0;
	t.runs = 0;
	assert_int_equal(run_trial(w, &t), LAPSE_OK); /* and can be run anew */
	assert_int_equal(rows(w), 1);
}

static void a_body_that_must_be_retried_is(void **state)
{
	struct world *w = *state;
	struct trial t = make_trial();

	t.fails = 2;
	t.err = LAPSE_ERETRY;
	assert_int_equal(run_trial(w, &t), LAPSE_OK);
	assert_int_equal(t.runs, 3);
	assert_int_equal(t.effects, 1);
	assert_int_equal(rows(w), 1);
}

static void another_error_ends_it(void **state)
{
	struct world *w = *state;
	struct trial t = make_trial();

	t.fails = 1;
	t.err = LAPSE_EFULL;
	assert_int_equal(run_trial(w, &t), LAPSE_EFULL);
	assert_int_equal(t.runs, 1);
	assert_int_equal(t.rewinds, 1);
	assert_int_equal(t.effects, 0);
	assert_int_equal(rows(w), 0);
}

/* A body that was only to show what it would do. */
static void undone_on_purpose_is_no_failure(void **state)
{
	struct world *w = *state;
	struct trial t = make_trial();

	t.fails = 1;
	t.err = JOB_UNDO;
	assert_int_equal(run_trial(w, &t), JOB_UNDO);
	assert_int_equal(t.rewinds, 0);
	assert_int_equal(t.effects + t.finished, 0);
	assert_int_equal(rows(w), 0);
}

/* A store that is not there is not waited for. */
static void a_begin_that_fails_is_not_repeated(void **state)
{
	struct world *w = *state;
	struct trial t = make_trial();

	store_fails(w);
	assert_int_equal(run_trial(w, &t), LAPSE_ERETRY);
	store_is_back(w);
	assert_int_equal(t.runs, 0);
	assert_int_equal(t.rewinds, 1);
}

static int small_body(struct tx *tx, void *arg)
{
	tx_effect(tx, count_effect, arg);
	return LAPSE_OK;
}

static void a_small_job_is_done_when_it_returns(void **state)
{
	struct world *w = *state;
	struct store *s = w->engine.store;
	int ran = 0;

	refusals = 1;
	assert_int_equal(job_do(&w->engine, JOB_LAZY, small_body, &ran), LAPSE_OK);
	assert_int_equal(ran, 1);
	assert_false(store_is_durable(s, store_mark(s)));
	assert_int_equal(job_do(&w->engine, JOB_DURABLE, small_body, &ran), LAPSE_OK);
	assert_int_equal(ran, 2);
	assert_true(store_is_durable(s, store_mark(s)));
}

static uint64_t lags_noted(const struct world *w)
{
	uint64_t n = 0;

	for (size_t i = 0; i <= HISTOGRAM_BUCKETS; i++)
		n += w->engine.expiry_lag.counts[i];
	return n;
}

/* A sweep whose commit is refused removes each row once, and counts it once. */
static void a_sweep_is_retried_from_where_it_was(void **state)
{
	struct world *w = *state;
	struct sweep done;

	make_read_messages(w, 120, NOW);
	w->engine.store->ops = &ops; /* making them has opened the store again */
	fake_clock_advance(&w->time, w->settings.message_ttl_ms + 1);
	refusals = 2;
	run_sweep(w, "messages", false, &done);
	assert_true(refusals < 0);
	assert_int_equal(done.total, 120);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages"), 0);
	assert_int_equal(lags_noted(w), 120);
	world_check_counters(w);
}

#define JOB_TEST(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		JOB_TEST(a_refused_commit_is_tried_again),
		JOB_TEST(it_gives_up_in_the_end),
		JOB_TEST(a_body_that_must_be_retried_is),
		JOB_TEST(another_error_ends_it),
		JOB_TEST(undone_on_purpose_is_no_failure),
		JOB_TEST(a_begin_that_fails_is_not_repeated),
		JOB_TEST(a_small_job_is_done_when_it_returns),
		JOB_TEST(a_sweep_is_retried_from_where_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
