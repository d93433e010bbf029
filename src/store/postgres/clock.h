/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The database's clock, as a clock. Every transaction samples it as it begins; between two samples
 * it goes on with the machine's monotonic clock. So all who share a database share its time, and a
 * machine whose own clock is wrong does no harm.
 *
 * It is never read while a sample is taken: the engine's lock sees to that.
 */
#ifndef LAPSE_STORE_POSTGRES_CLOCK_H
#define LAPSE_STORE_POSTGRES_CLOCK_H

#include <stdbool.h>

#include "base/clock.h"

struct pg_clock {
	struct clock clock;
	const struct clock *system; /* whose monotonic clock it goes by; borrowed */
	lapse_us offset;            /* the database's time minus the monotonic one */
	bool sampled;
};

/* Until the first sample it is the machine's own wall clock. `c` must not move after it. */
void pg_clock_init(struct pg_clock *c, const struct clock *system);

/* The database said `sampled` (since 1970) at some moment between the two monotonic times. The
 * clock is set only by a sample that contradicts it, so a slow answer does not shake it. It is set
 * to the least that the sample leaves open: never ahead of the database, so that what one process
 * leased has not ended early for another. A sample that took longer than a second is dropped. */
void pg_clock_sample(struct pg_clock *c, lapse_us before, lapse_us sampled, lapse_us after);

#endif
