/* SPDX-License-Identifier: Apache-2.0 */
/* Agents of one owner become another's: engine/adopt.h. */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "engine/adopt.h"
#include "engine/engine.h"
#include "presence/presence.h"

#define SLICE_AGENTS 200
#define SLICE_CAPABILITY_BYTES 4096 /* of their JSON; the last agent may go beyond it */

static const struct db_stmt CLASH_AGENTS = {
	"SELECT agent FROM agents WHERE owner = $1 AND agent IN "
	"(SELECT agent FROM agents WHERE owner = $2 UNION ALL "
	"SELECT agent FROM suspects WHERE owner = $2) LIMIT 1"
};
#define AGENTS_CHOSEN                                                                              \
	"(SELECT id, agent, capabilities FROM agents WHERE owner = $1 ORDER BY agent LIMIT $2)"

static const struct db_stmt READ_AGENTS = {
	"SELECT p.id, p.agent, p.capabilities FROM " AGENTS_CHOSEN " AS p ORDER BY p.agent"
};
static const struct db_stmt MOVE_AGENTS = {
	"UPDATE agents SET owner = $3 WHERE id IN (SELECT p.id FROM " AGENTS_CHOSEN " AS p)"
};
/* A held agent is held all the time. Holds of rows with a number are found without their owner, and
 * move at the end. */
static const struct db_stmt MOVE_AGENT_HOLDS = {
	"UPDATE holds SET owner = $3 WHERE owner = $1 AND tbl = 'agents' AND key IN "
	"(SELECT p.agent FROM " AGENTS_CHOSEN " AS p)"
};
static const struct db_stmt CLASH_SUSPECTS = {
	"SELECT agent FROM suspects WHERE owner = $1 AND agent IN "
	"(SELECT agent FROM suspects WHERE owner = $2 UNION ALL "
	"SELECT agent FROM agents WHERE owner = $2) LIMIT 1"
};
static const struct db_stmt MOVE_SUSPECTS = {
	"UPDATE suspects SET owner = $3 WHERE id IN "
	"(SELECT id FROM suspects WHERE owner = $1 ORDER BY agent LIMIT $2)"
};

static const struct owned_step SUSPECT_SLICE[] = { { &MOVE_SUSPECTS, "suspects" }, { 0 } };

/* Agents that move in one transaction. */
struct movers {
	const char *from, *to;
	int64_t n;
	struct mover {
		int64_t id;
		const char *agent, *capabilities;
	} all[SLICE_AGENTS];
};

/* The next agents with their capabilities, each of which costs several statements. */
static int read_movers(struct tx *tx, struct movers *m)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &READ_AGENTS);
	size_t bytes = 0;
	int r = LAPSE_OK;

	db_bind_text(&q, 1, m->from);
	db_bind_int(&q, 2, SLICE_AGENTS);
	while (bytes < SLICE_CAPABILITY_BYTES && (r = db_step(&q)) > 0) {
		assert(m->n < SLICE_AGENTS);
		struct mover *a = &m->all[m->n++];
		a->id = db_int(&q, 0);
		a->agent = arena_strdup(&tx->arena, db_text(&q, 1));
		a->capabilities = arena_strdup(&tx->arena, db_text(&q, 2));
		bytes += strlen(a->capabilities) - strlen("[]");
	}
	return r < 0 ? r : LAPSE_OK;
}

/* How many rows it changed, or an error. */
static int64_t move_chosen(struct tx *tx, const struct db_stmt *stmt, const struct movers *m)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	assert(tx_can_write(tx) && m->n > 0);
	db_bind_text(&q, 1, m->from);
	db_bind_int(&q, 2, m->n);
	db_bind_text(&q, 3, m->to);
	int r = db_run(&q);
	return r < 0 ? r : db_changed(&q);
}

static int move_capabilities(struct tx *tx, const struct movers *m, struct adoption *a)
{
	int r = LAPSE_OK;

	for (const struct mover *x = m->all; r == LAPSE_OK && x < m->all + m->n; x++) {
		if (strcmp(x->capabilities, "[]") == 0)
			continue;
		json_t *CLEANUP(json_freep) set = json_loads(x->capabilities, 0, NULL);
		adoption_count(a, "capabilities", (int64_t)json_array_size(set));
		r = presence_change_capabilities(tx, m->from, x->agent, x->capabilities, "[]");
		if (r == LAPSE_OK)
			r = presence_change_capabilities(tx, m->to, x->agent, "[]",
							 x->capabilities);
	}
	return r;
}

/* The memory follows: at once, so that the next transaction finds rows and memory agree; and again
 * when this one is durable, for agents that the memory has learned of in between. */
static void move_in_memory(struct engine *e, void *arg)
{
	const struct movers *m = arg;

	for (const struct mover *x = m->all; x < m->all + m->n; x++)
		fleet_move(fleet_of(e), m->from, m->to, x->agent, x->id);
}

static int move_agents(struct tx *tx, const char *from, const char *to, struct adoption *a)
{
	struct movers *m = tx_alloc(tx, sizeof(*m));

	m->from = arena_strdup(&tx->arena, from);
	m->to = arena_strdup(&tx->arena, to);
	m->n = 0;
	int r = read_movers(tx, m);
	if (r < 0 || m->n == 0)
		return r;
	int64_t held = move_chosen(tx, &MOVE_AGENT_HOLDS, m);
	int64_t moved = held < 0 ? held : move_chosen(tx, &MOVE_AGENTS, m);
	if (moved < 0)
		return (int)moved;
	assert(moved == m->n && held <= moved); /* those that were read */
	adoption_count(a, "agents", moved);
	adoption_count(a, "holds", held);
	tx_effect_early(tx, move_in_memory, m);
	tx_effect(tx, move_in_memory, m);
	return move_capabilities(tx, m, a);
}

const struct owned PRESENCE_OWNED[] = {
	{ .table = "agents", .clash = &CLASH_AGENTS, .run = move_agents },
	{ .table = "suspects",
	  .clash = &CLASH_SUSPECTS,
	  .slice = SUSPECT_SLICE,
	  .slice_rows = SLICE_AGENTS },
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
