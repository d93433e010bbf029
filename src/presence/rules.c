/* SPDX-License-Identifier: Apache-2.0 */
#include "presence/rules.h"

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
	return evict_after - (check_ms < evict_after / 2 ? check_ms : evict_after / 2);
}

enum breaker_step breaker_judge(const struct breaker_view *v, lapse_ms evict_after, lapse_ms now)
{
	if (v->opened_at != LAPSE_NEVER)
		return v->suspects == 0 || presence_is_due(v->opened_at, evict_after, now)
			       ? BREAKER_RELEASES
			       : BREAKER_STAYS_OPEN;
	return v->silent >= BREAKER_LEAST && v->silent > v->tracked / 2 ? BREAKER_TRIPS
									: BREAKER_STAYS_CLOSED;
}

enum agent_fate agent_judge(lapse_ms base, bool suspect, bool breaker_open, lapse_ms evict_after,
			    lapse_ms now)
{
	if (!presence_is_due(base, evict_after, now))
		return AGENT_STAYS;
	return breaker_open && !suspect ? AGENT_SUSPECTED : AGENT_EVICTED;
}
