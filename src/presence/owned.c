/* SPDX-License-Identifier: Apache-2.0 */
/* Agents of one owner become another's: engine/adopt.h. */
#include "engine/adopt.h"
#include "engine/engine.h"
#include "presence/presence.h"

static const struct db_stmt CLASH_AGENTS = {
	"SELECT agent FROM agents WHERE owner = $1 AND agent IN "
	"(SELECT agent FROM agents WHERE owner = $2 UNION ALL "
	"SELECT agent FROM suspects WHERE owner = $2) LIMIT 1"
};
static const struct db_stmt MOVE_AGENTS = { "UPDATE agents SET owner = $2 WHERE owner = $1" };
static const struct db_stmt MOVE_CAPABILITIES = {
	"UPDATE capabilities SET owner = $2 WHERE owner = $1"
};
static const struct db_stmt MOVE_CAPABILITY_COUNTS = {
	"INSERT INTO capability_counts (owner, name, agents) "
	"SELECT $2, name, agents FROM capability_counts WHERE owner = $1 "
	"ON CONFLICT (owner, name) DO UPDATE SET agents = capability_counts.agents + "
	"excluded.agents"
};
static const struct db_stmt DROP_CAPABILITY_COUNTS = {
	"DELETE FROM capability_counts WHERE owner = $1"
};
static const struct db_stmt CLASH_SUSPECTS = {
	"SELECT agent FROM suspects WHERE owner = $1 AND agent IN "
	"(SELECT agent FROM suspects WHERE owner = $2 UNION ALL "
	"SELECT agent FROM agents WHERE owner = $2) LIMIT 1"
};
static const struct db_stmt MOVE_SUSPECTS = { "UPDATE suspects SET owner = $2 WHERE owner = $1" };

const struct owned PRESENCE_OWNED[] = {
	{ .table = "agents", .clash = &CLASH_AGENTS, .move = &MOVE_AGENTS },
	{ .table = "capabilities", .move = &MOVE_CAPABILITIES },
	{ .table = "capability_counts",
	  .move = &MOVE_CAPABILITY_COUNTS,
	  .drop = &DROP_CAPABILITY_COUNTS },
	{ .table = "suspects", .clash = &CLASH_SUSPECTS, .move = &MOVE_SUSPECTS },
	{ 0 },
};

/* An open breaker counts the suspects of its owner; it closes within one threshold. */
int presence_owner_movable(struct engine *e, const char *from, const char *to, struct problem *p)
{
	const char *const owners[] = { from, to };

	for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
		const struct breaker *b = fleet_breaker_find(fleet_of(e), owners[i]);
		if (b && b->opened_at != LAPSE_NEVER)
			return problem_set(p, LAPSE_ECONFLICT, NULL,
					   "the breaker of '%.128s' is open: wait until it closes",
					   owners[i]);
	}
	return LAPSE_OK;
}

void presence_owner_moved(struct engine *e, const char *from, const char *to, bool whole)
{
	if (whole) /* agents move in the last transaction */
		fleet_move_owner(fleet_of(e), from, to);
}
