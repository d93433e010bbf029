/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/clock.h"

#include <assert.h>

#define SAMPLE_MAX_US INT64_C(1000000)

static lapse_us pg_clock_mono(void *ctx)
{
	const struct pg_clock *c = ctx;

	return clock_mono(c->system);
}

static lapse_ms pg_clock_wall(void *ctx)
{
	const struct pg_clock *c = ctx;

	return (clock_mono(c->system) + c->offset) / 1000;
}

void pg_clock_init(struct pg_clock *c, const struct clock *system)
{
	*c = (struct pg_clock){ .clock = { pg_clock_wall, pg_clock_mono, c }, .system = system };
	c->offset = clock_wall(system) * 1000 - clock_mono(system);
}

void pg_clock_sample(struct pg_clock *c, lapse_us before, lapse_us sampled, lapse_us after)
{
	if (after < before || after - before > SAMPLE_MAX_US)
		return; /* it says too little */
	lapse_us least = sampled - after, most = sampled - before;
	if (!c->sampled || c->offset < least || c->offset > most)
		c->offset = least;
	c->sampled = true;
	assert(c->offset >= least && c->offset <= most);
}
