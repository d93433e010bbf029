/* SPDX-License-Identifier: Apache-2.0 */
#include "presence/suspect.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

static const struct db_stmt SUSPECT_FIND = {
	"SELECT id, cluster_id, capabilities, metadata, first_seen, last_seen, suspected_at "
	"FROM suspects WHERE owner = $1 AND agent = $2"
};

int suspect_find(struct tx *tx, const char *owner, const char *agent, struct suspect *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SUSPECT_FIND);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	int r = db_step(&q);
	if (r <= 0)
		return r;
	*ret = (struct suspect){ .id = db_int(&q, 0),
				 .cluster = arena_strdup(&tx->arena, db_text(&q, 1)),
				 .capabilities = arena_strdup(&tx->arena, db_text(&q, 2)),
				 .metadata = arena_strdup(&tx->arena, db_text(&q, 3)),
				 .first_seen = db_int(&q, 4),
				 .last_seen = db_int(&q, 5),
				 .suspected_at = db_int(&q, 6) };
	assert(ret->id > 0);
	return 1;
}

bool suspect_is_over(struct tx *tx, const struct suspect *s)
{
	const struct fleet *f = presence_fleet(tx->engine);

	return f->suspect_leaps == f->leaps &&
	       presence_is_due(s->suspected_at, f->evict_after, tx->now);
}

/* The row's last_seen is written now and then only: the memory knows better. */
static const struct db_stmt SUSPECT_KEEP = {
	"INSERT INTO suspects (id, owner, agent, cluster_id, capabilities, metadata, first_seen, "
	"last_seen, suspected_at) SELECT id, owner, agent, cluster_id, capabilities, metadata, "
	"first_seen, $3, $4 FROM agents WHERE id = $1 AND last_seen < $2"
};

int suspect_keep(struct tx *tx, int64_t id, lapse_ms last_seen, lapse_ms cutoff)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SUSPECT_KEEP);

	assert(tx_can_write(tx));
	assert(last_seen < cutoff);
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, cutoff);
	db_bind_int(&q, 3, last_seen);
	db_bind_int(&q, 4, tx->now);
	int r = db_run(&q);
	if (r < 0 || db_changed(&q) == 0)
		return r;
	tx_count(tx, &SUSPECT_BOUND, 1);
	return 1;
}

static const struct db_stmt SUSPECT_DROP = { "DELETE FROM suspects WHERE id = $1" };

int suspect_drop(struct tx *tx, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SUSPECT_DROP);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	int r = db_post(&q, DB_ONE);
	if (r == LAPSE_OK)
		tx_count(tx, &SUSPECT_BOUND, -1);
	return r;
}

static const struct db_stmt SUSPECT_RENEW = {
	"UPDATE suspects SET suspected_at = $1 WHERE suspected_at < $1"
};

static void renewed_effect(struct engine *e, void *arg)
{
	fleet_of(e)->suspect_leaps = *(int64_t *)arg;
}

int suspect_renew_all(struct tx *tx)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SUSPECT_RENEW);
	int64_t *leaps = tx_alloc(tx, sizeof(*leaps));

	assert(tx_can_write(tx));
	*leaps = fleet_of(tx->engine)->leaps;
	tx_effect(tx, renewed_effect, leaps);
	db_bind_int(&q, 1, tx->now);
	return db_post(&q, DB_ANY);
}

/* The bound: a record that was kept long enough is an eviction, with its event and its log line. */

static int settle_suspects(struct tx *tx, const struct pruned *rows, size_t n)
{
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < n; i++)
		r = presence_end_suspect(tx, rows[i].owner, rows[i].more[0], rows[i].more[1],
					 strtoll(rows[i].more[2], NULL, 10));
	return r;
}

const struct bound_spec SUSPECT_BOUND = {
	.name = "suspects",
	.scheduler = "agents",
	.bounded_by = "agent_evict_after_ms after suspected_at",
	.due_when = "now - suspected_at > agent_evict_after_ms",
	.safety_rule = "A heartbeat that comes first brings the agent back with its capabilities.",
	.action = "delete row, log",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "suspected_at",
	.window = "agent_evict_after_ms",
	.owner = "owner",
	.known_by = "t.agent = $2",
	.shown = BOUND_COLUMNS("agent", "cluster_id"),
	.more = BOUND_COLUMNS("agent", "cluster_id", "last_seen"),
	.settle = settle_suspects, /* writes one event for each agent */
};
