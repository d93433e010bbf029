/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/yield.h"

#include <assert.h>

/*
 * SQLite has one lock for all writers, and a writer that finds it taken sleeps: 1 ms, then 2, 5,
 * 10, … A cut shorter than the first sleep and a rest longer than it let that writer in at its
 * second try, whenever it came.
 *
 * PostgreSQL's writers do not wait for the cut itself; it competes with them for processors and for
 * the log. Cuts of 4 ms and longer made them wait twice as long as cuts of 2 ms with as much rest,
 * and shorter ones removed fewer rows in the same time, because each statement costs 0.25 ms. What
 * these figures and others did to the p99 of other sessions: docs/adr/0037.
 */
static const struct {
	lapse_us cut_us, rest_least_us;
	int rest_percent; /* of what the cut took */
} MANNERS[] = {
	[FOREIGN_SQLITE] = { .cut_us = 800, .rest_percent = 150, .rest_least_us = 1100 },
	[FOREIGN_POSTGRES] = { .cut_us = 1800, .rest_percent = 145, .rest_least_us = 0 },
};

void yield_note(struct yield *y, bool met_writer, lapse_us now)
{
	if (met_writer)
		y->met_at = now;
}

bool yield_is_giving_way(const struct yield *y, lapse_us now)
{
	return y->met_at != INT64_MIN && now - y->met_at < YIELD_FOR_US;
}

lapse_us yield_cut_us(const struct yield *y, lapse_us now)
{
	lapse_us shortest = MANNERS[y->engine].cut_us;

	assert(y->slice_us > 0);
	return yield_is_giving_way(y, now) && shortest < y->slice_us ? shortest : y->slice_us;
}

int64_t yield_rows(int64_t rows, bool full, lapse_us took, lapse_us wanted)
{
	assert(rows > 0 && wanted > 0);
	if (took > wanted)
		rows = took > 2 * wanted ? rows / 2 : rows * wanted / took;
	else if (full)
		rows = took * 2 < wanted ? rows * 2 : rows * wanted / (took + 1);
	return rows < YIELD_ROWS_LEAST ? YIELD_ROWS_LEAST
	       : rows > YIELD_ROWS_MAX ? YIELD_ROWS_MAX
				       : rows;
}

lapse_us yield_rest_us(const struct yield *y, lapse_us took, lapse_us now)
{
	if (!yield_is_giving_way(y, now))
		return 0;
	const lapse_us least = MANNERS[y->engine].rest_least_us;
	const lapse_us rest = took * MANNERS[y->engine].rest_percent / 100;
	return rest > least ? rest : least;
}
