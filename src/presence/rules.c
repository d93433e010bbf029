/* SPDX-License-Identifier: Apache-2.0 */
#include "presence/rules.h"

#include <assert.h>

bool presence_is_due(lapse_ms base, lapse_ms evict_after, lapse_ms now)
{
	return time_sub(now, base) > evict_after;
}

lapse_ms presence_deadline(lapse_ms base, lapse_ms evict_after)
{
	return time_add(time_add(base, evict_after), 1);
}

lapse_ms presence_silent_after(lapse_ms evict_after, lapse_ms check_ms)
{
	assert(evict_after > 0 && check_ms >= 0);
	return evict_after - (check_ms < evict_after / 2 ? check_ms : evict_after / 2);
}

enum breaker_step breaker_judge(const struct breaker_rule *rule, const struct breaker_view *v,
				lapse_ms evict_after, lapse_ms now)
{
	assert(v->silent <= v->tracked && rule->percent >= 0 && rule->least > 0);
	if (v->opened_at != LAPSE_NEVER)
		return presence_is_due(v->opened_at, evict_after, now) ? BREAKER_RELEASES
								       : BREAKER_STAYS_OPEN;
	bool enough = rule->percent > 0 && v->silent >= rule->least;
	return enough && v->silent * INT64_C(100) > v->tracked * rule->percent
		       ? BREAKER_TRIPS
		       : BREAKER_STAYS_CLOSED;
}

enum agent_fate agent_judge(lapse_ms base, bool overdue, bool breaker_open, lapse_ms evict_after,
			    lapse_ms now)
{
	if (!presence_is_due(base, evict_after, now))
		return AGENT_STAYS;
	return breaker_open && !overdue ? AGENT_SUSPECTED : AGENT_EVICTED;
}
