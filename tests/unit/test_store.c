/* SPDX-License-Identifier: Apache-2.0 */
/* The store: what is committed and what is durable, its reader, and a double in its place. */
#include <pthread.h>
#include <unistd.h>

#include "unit.h"

static void commit_one(struct world *w)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(tx_commit_start(&tx), LAPSE_OK);
	tx_commit_finish(&tx);
}

static void a_commit_is_durable_after_a_sync(void **state)
{
	struct world *w = *state;
	struct store *s = w->engine.store;

	commit_one(w);
	int64_t first = store_mark(s);
	commit_one(w);
	assert_int_equal(store_mark(s), first + 1);
	assert_false(store_is_durable(s, first));
	store_sync(s);
	assert_true(store_is_durable(s, first + 1));
}

/* A sync that began earlier ends later: what the other one has made durable stays so. */
static void durability_does_not_go_back(void **state)
{
	struct world *w = *state;
	struct store *s = w->engine.store;
	int64_t before = store_mark(s);

	store_sync_blocking(s);
	commit_one(w);
	store_sync(s);
	store_note_durable(s, before);
	assert_true(store_is_durable(s, store_mark(s)));
}

static void mark_done(void *arg)
{
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

/* Only what was committed when the sync began is durable when it has ended. */
static void a_sync_in_the_background_covers_its_beginning(void **state)
{
	struct world *w = *state;
	struct store *s = w->engine.store;
	int done = 0;

	commit_one(w);
	int64_t covered = store_mark(s);
	store_sync_start(s, mark_done, &done);
	assert_true(store_is_syncing(s));
	commit_one(w);
	for (int i = 0; i < 5000 && !__atomic_load_n(&done, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	assert_int_equal(done, 1);
	assert_false(store_is_durable(s, covered)); /* not before the owner was told */
	store_sync_end(s);
	assert_false(store_is_syncing(s));
	assert_true(store_is_durable(s, covered));
	assert_false(store_is_durable(s, covered + 1));
}

static void reads_and_rollbacks_are_no_commits(void **state)
{
	struct world *w = *state;
	int64_t before = store_mark(w->engine.store);
	struct tx tx;

	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	tx_rollback(&tx);
	assert_int_equal(store_mark(w->engine.store), before);
}

static void *take_and_give(void *arg)
{
	struct store *s = arg;

	store_give_reader(s, store_take_reader(s));
	return NULL;
}

static void one_worker_at_a_time_has_the_reader(void **state)
{
	struct store *s = ((struct world *)*state)->engine.store;
	struct db *reader = store_take_reader(s);
	pthread_t other;

	assert_ptr_not_equal(reader, store_db(s));
	assert_int_equal(pthread_create(&other, NULL, take_and_give, s), 0);
	usleep(20000);
	assert_int_not_equal(pthread_tryjoin_np(other, NULL), 0);
	store_give_reader(s, reader);
	assert_int_equal(pthread_join(other, NULL), 0);
}

/* A double takes the place of the store's functions: a commit that must be retried. */
static int commits_refused;

static int refuse_commit(struct store *s, struct db *lane, enum store_mode mode)
{
	(void)s;
	(void)lane;
	(void)mode;
	commits_refused++;
	return LAPSE_ERETRY;
}

static void note_run(struct engine *e, void *arg)
{
	(void)e;
	++*(int *)arg;
}

static void a_double_can_refuse_a_commit(void **state)
{
	struct world *w = *state;
	struct store *s = w->engine.store;
	const struct store_ops *real = s->ops;
	struct store_ops ops = *real;
	int64_t before = store_mark(s);
	int ran = 0;
	struct tx tx;

	ops.commit = refuse_commit;
	s->ops = &ops;
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	tx_effect(&tx, note_run, &ran);
	assert_int_equal(tx_commit(&tx), LAPSE_ERETRY);
	s->ops = real;
	assert_int_equal(commits_refused, 1);
	assert_int_equal(ran, 0);
	assert_int_equal(store_mark(s), before);
	assert_false(db_in_transaction(store_db(s)));
	commit_one(w); /* and the next one finds the store as it was */
}

#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(a_commit_is_durable_after_a_sync),
		STORE_TEST(durability_does_not_go_back),
		STORE_TEST(a_sync_in_the_background_covers_its_beginning),
		STORE_TEST(reads_and_rollbacks_are_no_commits),
		STORE_TEST(one_worker_at_a_time_has_the_reader),
		STORE_TEST(a_double_can_refuse_a_commit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
