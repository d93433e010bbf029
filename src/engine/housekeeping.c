/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/housekeeping.h"

#include "base/settings.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "store/migrate.h"

static void prune_ring(struct engine *e, void *arg)
{
	e->ring.pruned = *(const int64_t *)arg;
	ring_forget(&e->ring, e->ring.pruned);
}

/* Remembers up to where events may be missing, so that a reader which resumes before it is told. */
static int settle_events(struct tx *tx, const struct pruned *rows, size_t n)
{
	int64_t *last = tx_alloc(tx, sizeof(*last));

	*last = tx->engine->ring.pruned;
	for (size_t i = 0; i < n; i++)
		*last = rows[i].id > *last ? rows[i].id : *last;
	tx_effect(tx, prune_ring, last);
	return meta_set(tx->db, "events_pruned", *last);
}

/* An event's `seq` is made like every other id, so the sequence itself orders by time. */
const struct bound EVENT_BOUND = {
	.table = "events",
	.scheduler = "housekeeping",
	.bounded_by = "event_keep_ms after at",
	.due_when = "now - at > event_keep_ms",
	.safety_rule = "A reader that resumes inside the window misses nothing.",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.window = offsetof(struct settings, event_keep_ms),
	.event = EVENT_NONE, /* an event about removed events would feed itself */
	.newest = { "SELECT coalesce(max(seq), 0) FROM events" },
	.due = { "SELECT count(*), min(at) FROM "
		 "(SELECT at FROM events WHERE at < $1 AND seq < $1 * 2097152 ORDER BY seq LIMIT "
		 "$2)" },
	.prune = { "DELETE FROM events WHERE seq IN (SELECT seq FROM events "
		   "WHERE at < $1 AND seq < $1 * 2097152 AND seq > $3 AND $2 <= at "
		   "ORDER BY seq LIMIT $4) RETURNING at, seq, owner, '', 0" },
	.settle = settle_events,
};

const struct bound SWEEP_BOUND = {
	.table = "sweeps",
	.scheduler = "housekeeping",
	.bounded_by = "sweep_keep_ms after ended_at",
	.due_when = "now - ended_at > sweep_keep_ms",
	.safety_rule = "none",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.window = offsetof(struct settings, sweep_keep_ms),
	.event = EVENT_HOUSEKEEPING_PRUNED,
	.reason = "older than sweep_keep_ms",
	.newest = { "SELECT coalesce(max(id), 0) FROM sweeps" },
	.due = { "SELECT count(*), min(at) FROM "
		 "(SELECT ended_at AS at FROM sweeps WHERE ended_at < $1 ORDER BY 1 LIMIT $2)" },
	.prune = { "DELETE FROM sweeps WHERE ended_at < $1 AND id IN (SELECT id FROM sweeps "
		   "WHERE ended_at < $1 AND (ended_at, id) > ($2, $3) "
		   "ORDER BY ended_at, id LIMIT $4) RETURNING ended_at, id, '', '', 0" },
};
