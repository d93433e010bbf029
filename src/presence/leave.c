/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How agents leave, evicted or suspected: their rows and their event in the transaction; by an
 * effect after it the memory, the lag and the log line.
 *
 * Agents without capabilities, as most are, leave together: one statement removes their rows and a
 * few write their events, which costs half of what they cost one by one. It is all of them or none,
 * and the caller takes the group apart when it fails.
 */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "presence/presence.h"
#include "presence/suspect.h"

/* Rows */

static const struct db_stmt CAPABILITIES_OF = {
	"SELECT capabilities FROM agents WHERE id = $1 AND last_seen < $2"
};
/* Without capabilities, as many are: one statement instead of two. */
static const struct db_stmt DELETE_BARE = {
	"DELETE FROM agents WHERE id = $1 AND last_seen < $2 AND capabilities = '[]'"
};
static const struct db_stmt DELETE = { "DELETE FROM agents WHERE id = $1 AND last_seen < $2" };

/* 1 = there is such a row; the set in the transaction's memory. */
static int capabilities_of(struct tx *tx, int64_t id, lapse_ms cutoff, const char **ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CAPABILITIES_OF);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, cutoff);
	int r = db_step(&q);
	if (r > 0)
		*ret = arena_strdup(&tx->arena, db_text(&q, 0));
	return r;
}

/* 1 = the row went, 0 = there is none that the statement means. */
static int delete_agent_row(struct tx *tx, const struct db_stmt *stmt, int64_t id, lapse_ms cutoff)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, cutoff);
	int r = db_run(&q);
	if (r < 0 || db_changed(&q) == 0)
		return r;
	tx_count(tx, &AGENT_BOUND, -1);
	return 1;
}

int presence_remove_rows(struct tx *tx, int64_t id, const char *owner, const char *agent,
			 lapse_ms cutoff)
{
	const char *capabilities = "[]";
	int r = delete_agent_row(tx, &DELETE_BARE, id, cutoff);

	if (r != 0)
		return r;
	r = capabilities_of(tx, id, cutoff, &capabilities);
	if (r <= 0)
		return r;
	r = presence_change_capabilities(tx, owner, agent, capabilities, "[]");
	return r < 0 ? r : delete_agent_row(tx, &DELETE, id, cutoff);
}

/* What the memory learns, and the log, once the transaction has committed. */

struct farewell {
	int64_t id;     /* 0 = the memory never had it, or forgot it before */
	uint32_t index; /* where the memory had it, 0 = unknown */
	const char *owner, *agent, *cluster;
	lapse_ms last_seen;
	lapse_ms deadline;     /* LAPSE_NEVER = its lag is not measured here */
	enum event_kind event; /* of the log line; EVENT_NONE = it was deleted on request */
};

struct farewells {
	struct buf *lines; /* keeps the log lines; NULL = they are written at once */
	size_t n;
	struct farewell all[];
};

/* No row has the id 0, which fills the places of a smaller group. */
#define TOGETHER 32
static const struct db_stmt DELETE_MANY = {
	"DELETE FROM agents WHERE id IN ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
	"$15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, "
	"$33) AND last_seen < $1 AND capabilities = '[]'"
};

static int delete_rows(struct tx *tx, const struct farewells *all, lapse_ms cutoff)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DELETE_MANY);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, cutoff);
	for (size_t i = 0; i < TOGETHER; i++)
		db_bind_int(&q, (int)i + 2, i < all->n ? all->all[i].id : 0);
	tx_count(tx, &AGENT_BOUND, -(int64_t)all->n);
	return db_post(&q, DB_ROWS_OR((int64_t)all->n, LAPSE_ERETRY)); /* memory and table agree */
}

/* The event */

static void write_event(struct buf *out, const char *agent, const char *cluster, lapse_ms last_seen)
{
	json_begin(out, '{');
	json_put_text(out, "agent_id", agent);
	json_put_text(out, "cluster_id", cluster);
	json_put_time(out, "last_seen", last_seen);
	json_end(out, '}');
}

int presence_announce(struct tx *tx, enum event_kind kind, const char *owner, const char *agent,
		      const char *cluster, lapse_ms last_seen)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	write_event(&data, agent, cluster, last_seen);
	return event_add(tx, owner, kind, &data);
}

static enum event_kind event_of(enum agent_fate fate)
{
	assert(fate == AGENT_EVICTED || fate == AGENT_SUSPECTED);
	return fate == AGENT_EVICTED ? EVENT_AGENT_EVICTED : EVENT_AGENT_SUSPECTED;
}

static int announce_many(struct tx *tx, const struct farewells *all)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	struct event_fact facts[TOGETHER];

	assert(all->n > 0 && all->n <= TOGETHER);
	for (size_t i = 0; i < all->n; i++) {
		const struct farewell *g = &all->all[i];
		buf_clear(&data);
		write_event(&data, g->agent, g->cluster, g->last_seen);
		facts[i] = (struct event_fact){ g->owner,
						arena_strndup(&tx->arena, data.data, data.len) };
	}
	return events_add(tx, all->all[0].event, facts, all->n);
}

static void remove_from_memory(struct fleet *f, const struct farewell *g)
{
	uint32_t i = g->index;

	if (!i || fleet_at(f, i)->id != g->id)
		i = fleet_find(f, g->owner, g->agent);
	if (!i || fleet_at(f, i)->id != g->id)
		return;
	if (g->event == EVENT_AGENT_SUSPECTED)
		fleet_breaker_of(f, i)->suspected++;
	fleet_remove(f, i);
}

static void log_farewell(const struct log *log, const struct farewell *g, struct buf *lines)
{
	struct buf line;

	log_open(log, &line, LOG_INFO, event_name(g->event));
	json_put_text(&line, "agent_id", g->agent);
	json_put_time(&line, "last_seen", g->last_seen);
	json_put_text(&line, "owner", g->owner);
	if (lines)
		log_keep(log, &line, lines);
	else
		log_close(log, &line);
}

static void forget(struct engine *e, void *arg)
{
	const struct farewells *all = arg;
	lapse_ms now = clock_wall(e->clock);
	struct bound *agents = matrix_find(e, "agents");

	for (size_t i = 0; i < all->n; i++) {
		const struct farewell *g = &all->all[i];
		if (g->id)
			remove_from_memory(fleet_of(e), g);
		if (g->deadline != LAPSE_NEVER)
			engine_note_lag(e, agents, time_sub(now, g->deadline));
		if (g->event != EVENT_NONE)
			log_farewell(e->log, g, all->lines);
	}
}

static struct farewells *farewells_new(struct tx *tx, size_t n, struct buf *lines)
{
	struct farewells *all = tx_alloc(tx, sizeof(*all) + n * sizeof(all->all[0]));

	all->lines = lines;
	all->n = n;
	return all;
}

static struct farewells *forget_later(struct tx *tx, size_t n, struct buf *lines)
{
	struct farewells *all = farewells_new(tx, n, lines);

	tx_effect(tx, forget, all);
	return all;
}

/* Everything is copied: the memory may change at every call of the store, and before the effects
 * run. */
static struct farewell make_farewell(struct tx *tx, const struct fleet *f, uint32_t i,
				     enum agent_fate fate)
{
	const struct agent *a = fleet_at(f, i);

	FLEET_FETCH_BUCKET(f, a->hash); /* it will be looked into after the commit */
	return (struct farewell){ .id = a->id,
				  .index = i,
				  .owner = arena_strdup(&tx->arena, fleet_profile(f, i)->owner),
				  .agent = arena_strndup(&tx->arena, agent_name(a), a->len),
				  .cluster = arena_strdup(&tx->arena, fleet_profile(f, i)->cluster),
				  .last_seen = a->last_seen,
				  .deadline = presence_deadline(a->base, f->evict_after),
				  .event = event_of(fate) };
}

void presence_forget(struct tx *tx, int64_t id, const char *owner, const char *agent)
{
	forget_later(tx, 1, NULL)->all[0] =
		(struct farewell){ .id = id,
				   .owner = arena_strdup(&tx->arena, owner),
				   .agent = arena_strdup(&tx->arena, agent),
				   .deadline = LAPSE_NEVER,
				   .event = EVENT_NONE };
	presence_tell(tx, owner, agent, false);
}

int presence_end_suspect(struct tx *tx, const char *owner, const char *agent, const char *cluster,
			 lapse_ms last_seen)
{
	int r = presence_announce(tx, EVENT_AGENT_EVICTED, owner, agent, cluster, last_seen);

	if (r < 0)
		return r;
	forget_later(tx, 1, NULL)->all[0] =
		(struct farewell){ .owner = arena_strdup(&tx->arena, owner),
				   .agent = arena_strdup(&tx->arena, agent),
				   .last_seen = last_seen,
				   .deadline = LAPSE_NEVER,
				   .event = EVENT_AGENT_EVICTED };
	return LAPSE_OK;
}

int presence_leave(struct tx *tx, struct fleet *f, uint32_t i, enum agent_fate fate, lapse_ms now,
		   struct buf *lines)
{
	struct farewell g = make_farewell(tx, f, i, fate);
	lapse_ms cutoff = time_sub(now, f->evict_after);
	int done = fate == AGENT_SUSPECTED ? suspect_keep(tx, g.id, g.last_seen, cutoff) : 1;

	if (done > 0)
		done = presence_remove_rows(tx, g.id, g.owner, g.agent, cutoff);
	int r = done < 0 ? done : LAPSE_OK;
	if (done == 0) { /* only the memory still has it */
		g.deadline = LAPSE_NEVER;
		g.event = EVENT_NONE;
	}
	if (done > 0)
		r = presence_announce(tx, g.event, g.owner, g.agent, g.cluster, g.last_seen);
	if (r < 0)
		return r;
	forget_later(tx, 1, lines)->all[0] = g;
	presence_tell(tx, g.owner, g.agent, false);
	return done;
}

static int keep_group(struct tx *tx, const struct farewells *all, lapse_ms cutoff)
{
	for (size_t i = 0; i < all->n; i++) {
		int r = suspect_keep(tx, all->all[i].id, all->all[i].last_seen, cutoff);
		if (r <= 0)
			return r < 0 ? r : LAPSE_ERETRY;
	}
	return LAPSE_OK;
}

static int leave_group(struct tx *tx, struct fleet *f, const uint32_t *agents, size_t n,
		       enum agent_fate fate, lapse_ms now, struct buf *lines)
{
	lapse_ms cutoff = time_sub(now, f->evict_after);
	struct farewells *all = farewells_new(tx, n, lines);

	for (size_t i = 0; i < n; i++)
		all->all[i] = make_farewell(tx, f, agents[i], fate);
	int r = fate == AGENT_SUSPECTED ? keep_group(tx, all, cutoff) : LAPSE_OK;
	if (r == LAPSE_OK)
		r = delete_rows(tx, all, cutoff);
	if (r == LAPSE_OK)
		r = announce_many(tx, all);
	for (size_t i = 0; r == LAPSE_OK && i < n; i++)
		presence_tell(tx, all->all[i].owner, all->all[i].agent, false);
	if (r == LAPSE_OK)
		tx_effect(tx, forget, all);
	return r;
}

int presence_leave_together(struct tx *tx, struct fleet *f, const uint32_t *agents, size_t n,
			    enum agent_fate fate, lapse_ms now, struct buf *lines)
{
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < n; i += TOGETHER)
		r = leave_group(tx, f, agents + i, n - i < TOGETHER ? n - i : TOGETHER, fate, now,
				lines);
	return r;
}
