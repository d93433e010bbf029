/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/housekeeping.h"

#include "base/settings.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "store/migrate.h"

#include <assert.h>

void events_forget(struct engine *e, int64_t seq)
{
	if (seq <= e->ring.pruned)
		return;
	e->ring.pruned = seq;
	ring_forget(&e->ring, seq);
}

static void prune_ring(struct engine *e, void *arg)
{
	events_forget(e, *(const int64_t *)arg);
}

int events_note_pruned(struct tx *tx, int64_t seq)
{
	int64_t *last = tx_alloc(tx, sizeof(*last));

	assert(tx_can_write(tx));
	if (seq <= tx->engine->ring.pruned)
		return LAPSE_OK;
	*last = seq;
	tx_effect(tx, prune_ring, last);
	return meta_set(tx->db, "events_pruned", seq);
}

static int settle_events(struct tx *tx, const struct pruned *rows, size_t n)
{
	int64_t last = 0;

	assert(n > 0);
	for (size_t i = 0; i < n; i++)
		last = rows[i].id > last ? rows[i].id : last;
	return events_note_pruned(tx, last);
}

/* An event's `seq` is an id like every other, so the key itself orders by time. */
const struct bound_spec EVENT_BOUND = {
	.name = "events",
	.scheduler = "housekeeping",
	.bounded_by = "event_keep_ms after at",
	.due_when = "now - at > event_keep_ms",
	.safety_rule = "A reader that resumes inside the window misses nothing.",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.key = BOUND_KEY({ "seq", BOUND_INT }),
	.key_is_id = true,
	.walk = WALK_KEY,
	.time = "at",
	.window = "event_keep_ms",
	.event = NULL, /* an event about removed events would feed itself */
	.owner = "owner",
	.settle = settle_events,
};

const struct bound_spec SWEEP_BOUND = {
	.name = "sweeps",
	.scheduler = "housekeeping",
	.bounded_by = "sweep_keep_ms after ended_at",
	.due_when = "now - ended_at > sweep_keep_ms",
	.safety_rule = "none",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "ended_at",
	.window = "sweep_keep_ms",
	.event = "housekeeping.lifecycle_pruned",
	.reason = "older than sweep_keep_ms",
};
