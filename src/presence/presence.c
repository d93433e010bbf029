/* SPDX-License-Identifier: Apache-2.0 */
#include "presence/presence.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/json.h"
#include "engine/engine.h"
#include "presence/suspect.h"

struct fleet *presence_fleet(struct engine *e)
{
	struct fleet *f = fleet_of(e);

	f->known_through = cluster_known_through(&e->cluster);
	f->gathering = cluster_has_others(&e->cluster);

	if (f->leaps != e->guard.accepts) {
		f->leaps = e->guard.accepts;
		fleet_rebase(f, clock_wall(e->clock));
	}
	if (f->outages != e->outage.count) {
		f->outages = e->outage.count;
		fleet_spare(f, e->outage.since, clock_wall(e->clock));
	}
	return f;
}

/* Capabilities as JSON */

static int by_name(const void *x, const void *y)
{
	return strcmp(*(const char *const *)x, *(const char *const *)y);
}

const char *presence_pack(struct arena *arena, const char **names, size_t n)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	if (n > 0)
		qsort(names, n, sizeof(*names), by_name);
	json_begin(&out, '[');
	for (size_t i = 0; i < n; i++)
		json_text(&out, names[i]);
	json_end(&out, ']');
	return arena_strndup(arena, out.data, out.len);
}

uint64_t presence_metadata_hash(const char *json)
{
	return XXH3_64bits(json, strlen(json));
}

static bool array_has(const json_t *array, const char *name)
{
	size_t i;
	json_t *v;

	json_array_foreach (array, i, v)
		if (strcmp(json_string_value(v), name) == 0)
			return true;
	return false;
}

static const struct db_stmt CAPABILITY_ADD = {
	"INSERT INTO capabilities (owner, name, agent) VALUES ($1, $2, $3)"
};
static const struct db_stmt CAPABILITY_DROP = {
	"DELETE FROM capabilities WHERE owner = $1 AND name = $2 AND agent = $3"
};
static const struct db_stmt COUNT_IN = {
	"INSERT INTO capability_counts (owner, name, agents) VALUES ($1, $2, 1) "
	"ON CONFLICT (owner, name) DO UPDATE SET agents = capability_counts.agents + 1"
};
static const struct db_stmt COUNT_OUT = {
	"UPDATE capability_counts SET agents = agents - 1 WHERE owner = $1 AND name = $2"
};
static const struct db_stmt COUNT_END = {
	"DELETE FROM capability_counts WHERE owner = $1 AND name = $2 AND agents = 0"
};

static int run_named(struct tx *tx, const struct db_stmt *stmt, const char *owner, const char *name,
		     const char *agent)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, name);
	if (agent)
		db_bind_text(&q, 3, agent);
	return db_post(&q, DB_ANY);
}

static int add_capability(struct tx *tx, const char *owner, const char *agent, const char *name)
{
	int r = run_named(tx, &CAPABILITY_ADD, owner, name, agent);

	return r < 0 ? r : run_named(tx, &COUNT_IN, owner, name, NULL);
}

static int drop_capability(struct tx *tx, const char *owner, const char *agent, const char *name)
{
	int r = run_named(tx, &CAPABILITY_DROP, owner, name, agent);

	if (r == LAPSE_OK)
		r = run_named(tx, &COUNT_OUT, owner, name, NULL);
	return r < 0 ? r : run_named(tx, &COUNT_END, owner, name, NULL);
}

int presence_change_capabilities(struct tx *tx, const char *owner, const char *agent,
				 const char *from, const char *to)
{
	size_t i;
	json_t *v;
	int r = LAPSE_OK;

	if (strcmp(from, to) == 0)
		return LAPSE_OK;
	json_t *CLEANUP(json_freep) old = json_loads(from, 0, NULL);
	json_t *CLEANUP(json_freep) new = json_loads(to, 0, NULL);
	if (!old || !new)
		return LAPSE_ECORRUPT;
	json_array_foreach (old, i, v)
		if (r == LAPSE_OK && !array_has(new, json_string_value(v)))
			r = drop_capability(tx, owner, agent, json_string_value(v));
	json_array_foreach (new, i, v)
		if (r == LAPSE_OK && !array_has(old, json_string_value(v)))
			r = add_capability(tx, owner, agent, json_string_value(v));
	return r;
}

/* Rows */

struct row {
	int64_t id;
	const char *cluster, *capabilities, *metadata;
	lapse_ms first_seen, last_seen;
};

static const struct db_stmt FIND = {
	"SELECT id, cluster_id, capabilities, metadata, first_seen, last_seen FROM agents "
	"WHERE owner = $1 AND agent = $2"
};

/* 1 = found, its texts in the transaction's memory; 0 = there is none. */
static int find_agent_row(struct tx *tx, const char *owner, const char *agent, struct row *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FIND);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	int r = db_step(&q);
	if (r <= 0)
		return r;
	*ret = (struct row){ .id = db_int(&q, 0),
			     .cluster = arena_strdup(&tx->arena, db_text(&q, 1)),
			     .capabilities = arena_strdup(&tx->arena, db_text(&q, 2)),
			     .metadata = arena_strdup(&tx->arena, db_text(&q, 3)),
			     .first_seen = db_int(&q, 4),
			     .last_seen = db_int(&q, 5) };
	return 1;
}

static const struct db_stmt HELD = {
	"SELECT 1 FROM holds WHERE owner = $1 AND tbl = 'agents' AND key = $2 AND until > $3"
};

int presence_is_held(struct tx *tx, const char *owner, const char *agent)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HELD);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, tx->now);
	return db_step(&q);
}

/* What the memory learns once the transaction has committed. */

struct memo {
	int64_t id;
	struct traits traits;
	const char *agent;
	lapse_ms seen; /* 0 = it was no heartbeat */
};

static void remember(struct engine *e, void *arg)
{
	const struct memo *m = arg;
	struct fleet *f = fleet_of(e);
	uint32_t i = fleet_find(f, m->traits.owner, m->agent);

	if (i && fleet_at(f, i)->id != m->id) { /* a later life of the same name */
		fleet_remove(f, i);
		i = 0;
	}
	if (!i) {
		if (m->seen)
			fleet_add(f, m->agent, &m->traits, m->id, m->seen, m->seen);
		return;
	}
	fleet_set(f, i, &m->traits);
	if (m->seen)
		fleet_touch(f, i, m->seen);
}

static void remember_later(struct tx *tx, const char *owner, const char *agent,
			   const struct row *row, lapse_ms seen)
{
	struct memo *m = tx_alloc(tx, sizeof(*m));

	*m = (struct memo){ .id = row->id,
			    .traits = { .owner = arena_strdup(&tx->arena, owner),
					.cluster = row->cluster,
					.capabilities = row->capabilities,
					.metadata = presence_metadata_hash(row->metadata) },
			    .agent = arena_strdup(&tx->arena, agent),
			    .seen = seen };
	tx_effect(tx, remember, m);
	presence_tell(tx, owner, agent, seen != 0);
}

/* A heartbeat that changes no row. It is not to be durable, but a check that comes before the
 * transaction is must know of it: no row says that the agent was heard of. */
struct touch {
	int64_t id;
	uint32_t index;
	lapse_ms seen;
};

static void touch_effect(struct engine *e, void *arg)
{
	const struct touch *t = arg;

	if (fleet_at(fleet_of(e), t->index)->id == t->id)
		fleet_touch(fleet_of(e), t->index, t->seen);
}

static bool touch_later(struct tx *tx, const char *owner, const char *agent, int64_t id)
{
	const struct fleet *f = fleet_of(tx->engine);
	uint32_t i = fleet_find(f, owner, agent);

	if (!i || fleet_at(f, i)->id != id)
		return false;
	struct touch *t = tx_alloc(tx, sizeof(*t));
	*t = (struct touch){ id, i, tx->now };
	tx_effect_early(tx, touch_effect, t);
	return true;
}

/* Heartbeats */

bool presence_is_quiet(struct fleet *f, uint32_t i, const struct beat *b, lapse_ms now)
{
	const struct profile *p = fleet_profile(f, i);

	return strcmp(p->cluster, b->cluster) == 0 &&
	       (!b->capabilities || strcmp(p->capabilities, b->capabilities) == 0) &&
	       (!b->metadata || p->metadata == presence_metadata_hash(b->metadata)) &&
	       fleet_fate(f, i, now) != AGENT_EVICTED;
}

static const struct db_stmt INSERT = {
	"INSERT INTO agents (id, owner, agent, cluster_id, capabilities, metadata, first_seen, "
	"last_seen) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (owner, agent) DO NOTHING"
};

static int check_agent_limit(struct tx *tx, const char *owner, struct problem *p)
{
	const struct engine *e = tx->engine;
	int64_t own = fleet_count_of(fleet_of(e), owner) + tx_owned(tx, &AGENT_BOUND, owner);

	if (tx_live(tx, &AGENT_BOUND) >= e->settings->agents_max)
		return problem_set(p, LAPSE_ELIMIT, NULL,
				   "there are %" PRId64 " agents already (agents_max)",
				   e->settings->agents_max);
	return own < quota_of(e, owner, QUOTA_AGENTS) ? LAPSE_OK
						      : quota_refuse(e, owner, QUOTA_AGENTS, p);
}

/* LAPSE_ECONFLICT = there is one already. */
static int insert_agent_row(struct tx *tx, const char *owner, const char *agent,
			    const struct row *row)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, row->id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, agent);
	db_bind_text(&q, 4, row->cluster);
	db_bind_text(&q, 5, row->capabilities);
	db_bind_text(&q, 6, row->metadata);
	db_bind_int(&q, 7, row->first_seen);
	db_bind_int(&q, 8, row->last_seen);
	return db_post_row(&q, DB_ONE_OR(LAPSE_ECONFLICT));
}

/* Takes back what is kept of a suspect with this name into *row. A record that was kept long enough
 * is evicted instead, whether a check has met it or not. */
static int take_back(struct tx *tx, const char *owner, const char *agent, struct row *row)
{
	struct suspect s;
	int r = tx_live(tx, &SUSPECT_BOUND) > 0 ? suspect_find(tx, owner, agent, &s) : 0;

	if (r <= 0)
		return r;
	if (suspect_is_over(tx, &s)) {
		r = presence_end_suspect(tx, owner, agent, s.cluster, s.last_seen);
		return r < 0 ? r : suspect_drop(tx, s.id);
	}
	row->capabilities = s.capabilities;
	row->metadata = s.metadata;
	row->first_seen = s.first_seen;
	return suspect_drop(tx, s.id);
}

static const char *newer(struct tx *tx, const char *given, const char *kept)
{
	return given && strcmp(given, kept) != 0 ? arena_strdup(&tx->arena, given) : kept;
}

static int add_agent(struct tx *tx, const char *owner, const struct beat *b, struct problem *p)
{
	int r = check_agent_limit(tx, owner, p);

	if (r < 0)
		return r;
	struct row row = { .id = id_next(&tx->engine->ids, tx->now),
			   .cluster = arena_strdup(&tx->arena, b->cluster),
			   .capabilities = "[]",
			   .metadata = "{}",
			   .first_seen = tx->now,
			   .last_seen = tx->now };
	r = take_back(tx, owner, b->agent, &row);
	row.capabilities = newer(tx, b->capabilities, row.capabilities);
	row.metadata = newer(tx, b->metadata, row.metadata);
	if (r == LAPSE_OK)
		r = insert_agent_row(tx, owner, b->agent, &row);
	if (r == LAPSE_OK)
		r = presence_change_capabilities(tx, owner, b->agent, "[]", row.capabilities);
	if (r == LAPSE_OK)
		r = presence_announce(tx, EVENT_AGENT_SEEN, owner, b->agent, b->cluster, tx->now);
	if (r < 0)
		return r;
	tx_count(tx, &AGENT_BOUND, 1);
	tx_count_owned(tx, &AGENT_BOUND, owner, 1);
	remember_later(tx, owner, b->agent, &row, tx->now);
	return LAPSE_OK;
}

static const struct db_stmt UPDATE = {
	"UPDATE agents SET cluster_id = $2, capabilities = $3, metadata = $4, last_seen = $5 "
	"WHERE id = $1"
};

static int update_row(struct tx *tx, const struct row *row)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &UPDATE);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, row->id);
	db_bind_text(&q, 2, row->cluster);
	db_bind_text(&q, 3, row->capabilities);
	db_bind_text(&q, 4, row->metadata);
	db_bind_int(&q, 5, row->last_seen);
	return db_post(&q, DB_ANY);
}

static int change_agent(struct tx *tx, const char *owner, const struct beat *b,
			const struct row *old)
{
	struct row row = *old;
	int r = LAPSE_OK;

	row.cluster = newer(tx, b->cluster, old->cluster);
	row.capabilities = newer(tx, b->capabilities, old->capabilities);
	row.metadata = newer(tx, b->metadata, old->metadata);
	row.last_seen = tx->now;
	bool quiet = row.cluster == old->cluster && row.capabilities == old->capabilities &&
		     row.metadata == old->metadata;
	if (quiet && touch_later(tx, owner, b->agent, row.id))
		return LAPSE_OK;
	if (!quiet) {
		r = presence_change_capabilities(tx, owner, b->agent, old->capabilities,
						 row.capabilities);
		if (r == LAPSE_OK)
			r = update_row(tx, &row);
	}
	remember_later(tx, owner, b->agent, &row, tx->now);
	return r;
}

/* Whether the agent is past its deadline and may go: 1 or 0. The row decides too, since another
 * request of this transaction may have heard of it; a held one never goes. */
static int is_gone(struct tx *tx, const char *owner, const char *agent, const struct row *row)
{
	struct fleet *f = presence_fleet(tx->engine);
	uint32_t i = fleet_find(f, owner, agent);

	if (!i || fleet_at(f, i)->id != row->id || fleet_fate(f, i, tx->now) != AGENT_EVICTED ||
	    !presence_is_due(row->last_seen, f->evict_after, fleet_time(f, tx->now)))
		return 0;
	int held = presence_is_held(tx, owner, agent);
	return held < 0 ? held : !held;
}

/* Whom the memory does not know has no row, unless another heartbeat of this transaction has just
 * written it, or it is a suspect that comes back. Then, and when there is no room for one more, the
 * row is looked for after all. */
static int add_unknown(struct tx *tx, const char *owner, const struct beat *b, struct problem *p)
{
	struct problem full = { 0 };

	if (fleet_find(fleet_of(tx->engine), owner, b->agent) || tx_live(tx, &SUSPECT_BOUND) > 0)
		return LAPSE_ECONFLICT;
	int r = add_agent(tx, owner, b, &full);
	if (r == LAPSE_ELIMIT)
		return LAPSE_ECONFLICT;
	if (r < 0)
		*p = full;
	return r;
}

int presence_beat(struct tx *tx, const char *owner, const struct beat *b, struct problem *p)
{
	struct fleet *f = presence_fleet(tx->engine);
	struct row row;
	int r = add_unknown(tx, owner, b, p);

	if (r != LAPSE_ECONFLICT)
		return r;
	r = find_agent_row(tx, owner, b->agent, &row);
	if (r == 0)
		return add_agent(tx, owner, b, p);
	if (r > 0)
		r = is_gone(tx, owner, b->agent, &row);
	if (r == 0)
		return change_agent(tx, owner, b, &row);
	if (r > 0)
		r = presence_leave(tx, f, fleet_find(f, owner, b->agent), AGENT_EVICTED, tx->now,
				   NULL);
	return r < 0 ? r : add_agent(tx, owner, b, p);
}

/* Changing by hand */

/* 1 = a live agent has this row, else LAPSE_ENOTFOUND. */
static int find_live(struct tx *tx, const char *owner, const char *agent, struct row *ret)
{
	struct fleet *f = presence_fleet(tx->engine);
	int r = find_agent_row(tx, owner, agent, ret);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	uint32_t i = fleet_find(f, owner, agent);
	if (i && fleet_at(f, i)->id == ret->id && fleet_fate(f, i, tx->now) != AGENT_STAYS &&
	    presence_is_due(ret->last_seen, f->evict_after, fleet_time(f, tx->now)))
		return LAPSE_ENOTFOUND;
	return 1;
}

int presence_set_capabilities(struct tx *tx, const char *owner, const char *agent,
			      const char *capabilities)
{
	struct row row;
	int r = find_live(tx, owner, agent, &row);

	if (r < 0)
		return r;
	r = presence_change_capabilities(tx, owner, agent, row.capabilities, capabilities);
	if (r < 0 || strcmp(row.capabilities, capabilities) == 0)
		return r;
	row.capabilities = arena_strdup(&tx->arena, capabilities);
	remember_later(tx, owner, agent, &row, 0);
	return update_row(tx, &row);
}

static int delete_suspect(struct tx *tx, const char *owner, const char *agent)
{
	struct suspect s;
	int r = suspect_find(tx, owner, agent, &s);

	if (r == 0 || (r > 0 && suspect_is_over(tx, &s)))
		return LAPSE_ENOTFOUND;
	if (r > 0)
		r = presence_announce(tx, EVENT_AGENT_DELETED, owner, agent, s.cluster,
				      s.last_seen);
	return r < 0 ? r : suspect_drop(tx, s.id);
}

int presence_delete(struct tx *tx, const char *owner, const char *agent)
{
	struct row row;
	int r = find_live(tx, owner, agent, &row);

	if (r == LAPSE_ENOTFOUND)
		return delete_suspect(tx, owner, agent);

	if (r > 0)
		r = presence_is_held(tx, owner, agent);
	if (r != 0)
		return r < 0 ? r : LAPSE_ECONFLICT;
	uint32_t i = fleet_find(fleet_of(tx->engine), owner, agent);
	lapse_ms last_seen = i ? fleet_at(fleet_of(tx->engine), i)->last_seen : row.last_seen;
	r = presence_remove_rows(tx, row.id, owner, agent, INT64_MAX);
	if (r > 0)
		r = presence_announce(tx, EVENT_AGENT_DELETED, owner, agent, row.cluster,
				      last_seen);
	if (r < 0)
		return r;
	presence_forget(tx, row.id, owner, agent);
	return LAPSE_OK;
}
