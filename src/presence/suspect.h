/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suspects: agents that left at their deadline while their owner's breaker was open.
 *
 * A suspect is not live. Its row has moved from `agents` to `suspects`, its capabilities are out of
 * the map, and the fleet in memory has forgotten it, exactly as if it had been evicted. The record
 * is kept for one more threshold: a heartbeat that comes in that time brings the agent back with
 * the capabilities, the metadata and the first_seen it had. After that it is evicted.
 */
#ifndef LAPSE_PRESENCE_SUSPECT_H
#define LAPSE_PRESENCE_SUSPECT_H

#include "presence/presence.h"

struct suspect {
	int64_t id;
	const char *cluster, *capabilities, *metadata;
	lapse_ms first_seen, last_seen, suspected_at;
};

/* 1 = found, its texts in the transaction's memory; 0 = there is none. */
int suspect_find(struct tx *tx, const char *owner, const char *agent, struct suspect *ret);

/* Whether its record was kept long enough. */
bool suspect_is_over(struct tx *tx, const struct suspect *s);

/* Copies the row of the agent with this id, last seen before `cutoff`, to `suspects`. 1 = done,
 * 0 = there is no such row. The caller removes the agent. */
int suspect_keep(struct tx *tx, int64_t id, lapse_ms last_seen, lapse_ms cutoff);

int suspect_drop(struct tx *tx, int64_t id);

/* After an accepted leap of the clock: every record is kept one threshold from now. */
int suspect_renew_all(struct tx *tx);

extern const struct bound_spec SUSPECT_BOUND;

#endif
