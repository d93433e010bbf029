/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times without a store. While no transaction can begin, because the database is away, what reaches
 * us cannot be kept: the silence of an agent then says nothing about the agent. So every outage
 * that lasted is counted, and who judges by silence asks about it (presence/presence.c).
 *
 * engine/tx.c tells how each transaction begins; the loop's thread only. Times are trusted time.
 */
#ifndef LAPSE_ENGINE_OUTAGE_H
#define LAPSE_ENGINE_OUTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define OUTAGE_MIN_MS 1000 /* shorter ones cost at most a repetition */

struct outage {
	bool is_on;
	lapse_ms since; /* the first refusal of this one, or of the last that counted */
	int64_t count;  /* outages that lasted, and are over */
};

/* A transaction began (LAPSE_OK), or failed to. Only LAPSE_EUNAVAILABLE means that the database is
 * away. */
void outage_note(struct outage *o, int err, lapse_ms now);

#endif
