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

	/* Others go by this database's time too: then this clock is never ahead of it, so that
	 * what one of them leased has not ended early for another. Else it is in the middle of what
	 * a sample leaves open. */
	bool shared;
};

/* Until the first sample it is the machine's own wall clock. `c` must not move after it. */
void pg_clock_init(struct pg_clock *c, const struct clock *system);

/* The database said `sampled` (since 1970) at some moment between the two monotonic times. One that
 * took longer than a second is dropped. */
void pg_clock_sample(struct pg_clock *c, lapse_us before, lapse_us sampled, lapse_us after);

#endif
