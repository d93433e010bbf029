/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that gives way does so alone. */
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include "base/thread.h"
#include "unit.h"

struct manners {
	int policy, nice;
};

static struct manners manners_of_this_thread(void)
{
	return (struct manners){ .policy = sched_getscheduler(0),
				 .nice = getpriority(PRIO_PROCESS, 0) };
}

static void *work(void *arg)
{
	struct manners *seen = arg;

	thread_give_way();
	thread_give_way();
	*seen = manners_of_this_thread();
	return NULL;
}

static void only_the_calling_thread_gives_way(void **state)
{
	const struct manners before = manners_of_this_thread();
	struct manners seen = { 0 };
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, work, &seen), 0);
	pthread_join(thread, NULL);
	assert_int_equal(seen.policy, SCHED_BATCH);
	assert_int_equal(seen.nice, before.nice > 10 ? before.nice : 10);
	const struct manners after = manners_of_this_thread();
	assert_int_equal(after.policy, before.policy);
	assert_int_equal(after.nice, before.nice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_calling_thread_gives_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
