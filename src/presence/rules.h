/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When an agent is gone, and when it is likelier that we are deaf: pure decisions, no clock, no
 * store, no memory.
 *
 * An agent's silence counts from its base: its last heartbeat, or later, when it was given one more
 * threshold (after a restart, or as a suspect).
 */
#ifndef LAPSE_PRESENCE_RULES_H
#define LAPSE_PRESENCE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* Limits of what callers give, whichever way they come. */
#define CAPABILITIES_MAX 64 /* of an agent */
#define BEATS_MAX 10000     /* heartbeats of one request */

#define BREAKER_LEAST 10 /* fewer agents falling silent together are no sign of anything */

/* Silent for more than `evict_after`; exactly so long is not yet. */
bool presence_is_due(lapse_ms base, lapse_ms evict_after, lapse_ms now);

/* The first millisecond at which presence_is_due(). */
lapse_ms presence_deadline(lapse_ms base, lapse_ms evict_after);

/* How long somebody is silent before the breaker counts it: the threshold minus one check, of which
 * a check longer than half the threshold counts as that half. */
lapse_ms presence_silent_after(lapse_ms evict_after, lapse_ms check_ms);

/* The breaker. Closed, it trips when somebody is due while more than half of the fleet, and at
 * least BREAKER_LEAST agents, are silent. Open, nobody is evicted who was no suspect before. It
 * closes by itself: one threshold after it tripped, or when no suspect is left. */
struct breaker_view {
	lapse_ms opened_at; /* LAPSE_NEVER = it is closed */
	uint32_t tracked;   /* agents, all of them */
	uint32_t silent;    /* of them silent, suspects not counted: they had their chance */
	uint32_t suspects;
};

enum breaker_step { BREAKER_STAYS_CLOSED, BREAKER_TRIPS, BREAKER_STAYS_OPEN, BREAKER_RELEASES };

enum breaker_step breaker_judge(const struct breaker_view *v, lapse_ms evict_after, lapse_ms now);

/* What becomes of one agent. */
enum agent_fate { AGENT_STAYS, AGENT_SUSPECTED, AGENT_EVICTED };

enum agent_fate agent_judge(lapse_ms base, bool suspect, bool breaker_open, lapse_ms evict_after,
			    lapse_ms now);

#endif
