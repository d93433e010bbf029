/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/outage.h"

#include "base/err.h"

void outage_note(struct outage *o, int err, lapse_ms now)
{
	if (err == LAPSE_EUNAVAILABLE && !o->is_on) {
		o->is_on = true;
		o->since = now;
	} else if (err == LAPSE_OK && o->is_on) {
		o->is_on = false;
		o->count += now - o->since >= OUTAGE_MIN_MS;
	}
}
