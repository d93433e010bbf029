/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that gives way, or hurries, does so alone. */
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "unit.h"

struct manners {
	int policy, nice;
	uint64_t slice_ns; /* 0 = this Linux does not tell */
};

static struct manners manners_of_this_thread(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t slice_ns, deadline_ns, period_ns;
	} a = { 0 };

	assert_int_equal(syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0), 0);
	return (struct manners){ .policy = sched_getscheduler(0),
				 .nice = getpriority(PRIO_PROCESS, 0),
				 .slice_ns = a.slice_ns };
}

static void *give_way(void *arg)
{
	struct manners *seen = arg;

	thread_give_way();
	thread_give_way();
	*seen = manners_of_this_thread();
	return NULL;
}

static void *hurry(void *arg)
{
	struct manners *seen = arg;

	thread_hurry();
	*seen = manners_of_this_thread();
	return NULL;
}

static struct manners manners_after(void *(*work)(void *))
{
	struct manners seen = { 0 };
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, work, &seen), 0);
	pthread_join(thread, NULL);
	return seen;
}

static void only_the_calling_thread_gives_way(void **state)
{
	const struct manners before = manners_of_this_thread();
	const struct manners seen = manners_after(give_way);

	(void)state;
	assert_int_equal(seen.policy, SCHED_BATCH);
	assert_int_equal(seen.nice, before.nice > 10 ? before.nice : 10);
	const struct manners after = manners_of_this_thread();
	assert_int_equal(after.policy, before.policy);
	assert_int_equal(after.nice, before.nice);
}

static void who_hurries_keeps_policy_and_priority(void **state)
{
	const struct manners before = manners_of_this_thread();
	const struct manners seen = manners_after(hurry);

	(void)state;
	assert_int_equal(seen.policy, before.policy);
	assert_int_equal(seen.nice, before.nice);
	if (before.slice_ns > 0 && before.policy == SCHED_OTHER)
		assert_int_equal(seen.slice_ns, 100000);
	assert_int_equal(manners_of_this_thread().slice_ns, before.slice_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_calling_thread_gives_way),
		cmocka_unit_test(who_hurries_keeps_policy_and_priority),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
