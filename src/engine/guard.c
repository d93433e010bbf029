/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/guard.h"

#define GRACE_WITHOUT_WINDOW_MS INT64_C(86400000)

bool guard_in_grace(lapse_ms restored_at, lapse_ms window, lapse_ms now)
{
	lapse_ms grace = window > 0 ? window : GRACE_WITHOUT_WINDOW_MS;

	return restored_at > 0 && now < time_add(restored_at, grace);
}
