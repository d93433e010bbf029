/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GIVE_WAY_NICE 10

/* Linux 6.12 and later let a thread that wakes up interrupt one that has asked for longer slices.
 * This is the longest; earlier versions ignore it. */
#define GIVE_WAY_SLICE_NS 100000000

/* The first version of the kernel's struct, which the C library does not declare. */
struct thread_attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice_ns, deadline_ns, period_ns;
};

void thread_give_way(void)
{
	static _Thread_local bool has_given_way;

	if (has_given_way)
		return;
	const int nice = getpriority(PRIO_PROCESS, 0); /* of this thread alone, on Linux */
	struct thread_attributes a = { .size = sizeof(a),
				       .policy = SCHED_BATCH,
				       .nice = nice > GIVE_WAY_NICE ? nice : GIVE_WAY_NICE,
				       .slice_ns = GIVE_WAY_SLICE_NS };
	if (syscall(SYS_sched_setattr, 0, &a, 0) < 0)
		setpriority(PRIO_PROCESS, 0, a.nice);
	has_given_way = true;
}
