/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When an agent is gone, and when it is likelier that heartbeats do not reach us: pure decisions
 * without clock, store or memory.
 *
 * An agent's silence counts from its base: its last heartbeat, or later, when it was given one more
 * threshold after a restart.
 */
#ifndef LAPSE_PRESENCE_RULES_H
#define LAPSE_PRESENCE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* Limits of what callers give, whichever way they come. */
#define CAPABILITIES_MAX 64 /* of an agent */
#define BEATS_MAX 10000     /* heartbeats of one request */

/* Capabilities that one request may change: each costs up to 10 us, and all are one transaction. */
#define BEATS_CAPABILITIES_MAX 2000

/* Silent for more than `evict_after`; exactly so long is not yet. */
bool presence_is_due(lapse_ms base, lapse_ms evict_after, lapse_ms now);

/* The first millisecond at which presence_is_due(). */
lapse_ms presence_deadline(lapse_ms base, lapse_ms evict_after);

/* How long an agent is silent before the breaker counts it: the threshold minus one check. A check
 * longer than half the threshold counts as half the threshold. */
lapse_ms presence_silent_after(lapse_ms evict_after, lapse_ms check_ms);

/* The breaker of one owner. It trips when an agent is due while more than `percent` of the owner's
 * agents, and at least `least` of them, are silent. While it is open, agents that fall due become
 * suspects instead of being evicted. It closes one threshold after it tripped. */
struct breaker_rule {
	int64_t percent; /* 0 = never trip */
	int64_t least;
};

struct breaker_view {
	lapse_ms opened_at; /* LAPSE_NEVER = it is closed */
	uint32_t tracked;   /* live agents of the owner */
	uint32_t silent;    /* how many of them are silent */
};

enum breaker_step { BREAKER_STAYS_CLOSED, BREAKER_TRIPS, BREAKER_STAYS_OPEN, BREAKER_RELEASES };

enum breaker_step breaker_judge(const struct breaker_rule *rule, const struct breaker_view *v,
				lapse_ms evict_after, lapse_ms now);

/* What becomes of one agent. A suspect is as absent as an evicted agent, but its record is kept for
 * one more threshold. An overdue agent was due before and could not go then: it is never suspected.
 */
enum agent_fate { AGENT_STAYS, AGENT_SUSPECTED, AGENT_EVICTED };

enum agent_fate agent_judge(lapse_ms base, bool overdue, bool breaker_open, lapse_ms evict_after,
			    lapse_ms now);

#endif
