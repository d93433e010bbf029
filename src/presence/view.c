/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading presence: the rows in the order of their names, completed by what the memory knows. Who
 * is past its deadline is not shown, whether a check has met it or not.
 */
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "presence/presence.h"

/* Fills in what the memory knows; false = it is not to be shown. A row the memory does not know
 * was written by this very transaction, and is live. */
static bool complete_view(struct tx *tx, const char *owner, struct agent_view *v)
{
	struct fleet *f = presence_fleet(tx->engine);
	uint32_t i = fleet_find(f, owner, v->agent);

	if (!i) {
		v->expires_at = presence_deadline(v->last_seen, f->evict_after);
		return true;
	}
	enum agent_fate fate = fleet_fate(f, i, tx->now);
	/* The row decides too: this very transaction may have heard of it. */
	if (fate == AGENT_EVICTED && presence_is_due(v->last_seen, f->evict_after, tx->now))
		return false;
	const struct agent *a = fleet_at(f, i);
	v->last_seen = a->last_seen > v->last_seen ? a->last_seen : v->last_seen;
	v->expires_at = presence_deadline(a->base, f->evict_after);
	v->suspect = fate == AGENT_SUSPECTED;
	return true;
}

#define VIEW "a.agent, a.cluster_id, a.capabilities, a.first_seen, a.last_seen"

static const struct db_stmt GET = { "SELECT " VIEW " FROM agents AS a WHERE a.owner = $1 "
				    "AND a.agent = $2" };

static struct agent_view read_view(const struct db_query *q)
{
	return (struct agent_view){ .agent = db_text(q, 0),
				    .cluster = db_text(q, 1),
				    .capabilities = db_text(q, 2),
				    .first_seen = db_int(q, 3),
				    .last_seen = db_int(q, 4) };
}

int presence_get(struct tx *tx, const char *owner, const char *agent, agent_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	struct agent_view v = read_view(&q);
	if (!complete_view(tx, owner, &v))
		return LAPSE_ENOTFOUND;
	fn(arg, &v);
	return LAPSE_OK;
}

static const struct db_stmt LIST = { "SELECT " VIEW " FROM agents AS a WHERE a.owner = $1 "
				     "AND a.agent > $2 ORDER BY a.agent" };
static const struct db_stmt LIST_CLUSTER = {
	"SELECT " VIEW " FROM agents AS a WHERE a.owner = $1 AND a.agent > $2 "
	"AND a.cluster_id = $3 ORDER BY a.agent"
};
/* Of both filters one is the statement's: no index knows them together. */
static const struct db_stmt LIST_ABLE = {
	"SELECT " VIEW " FROM capabilities AS c JOIN agents AS a ON a.owner = c.owner "
	"AND a.agent = c.agent WHERE c.owner = $1 AND c.agent > $2 AND c.name = $3 "
	"ORDER BY c.agent"
};

static struct db_query list_query(struct tx *tx, const char *owner, const struct agent_filter *f,
				  const char *after)
{
	const struct db_stmt *stmt = f->capability ? &LIST_ABLE
				     : f->cluster  ? &LIST_CLUSTER
						   : &LIST;
	struct db_query q = db_query(tx->db, stmt);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, after);
	if (f->capability || f->cluster)
		db_bind_text(&q, 3, f->capability ? f->capability : f->cluster);
	return q;
}

int presence_list(struct tx *tx, const char *owner, const struct agent_filter *filter,
		  struct arena *arena, const char **after, agent_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = list_query(tx, owner, filter, *after);
	int64_t looks = 0;
	int r;

	while ((r = db_step(&q)) > 0) {
		struct agent_view v = read_view(&q);
		bool fits = !filter->cluster || strcmp(v.cluster, filter->cluster) == 0;
		if (fits && complete_view(tx, owner, &v) && !fn(arg, &v))
			return LAPSE_OK;
		if (++looks == filter->looks_max) {
			*after = arena_strdup(arena, db_text(&q, 0));
			return 1;
		}
	}
	return r;
}

/* Capabilities and who has them */

static const struct db_stmt NAMES = {
	"SELECT name, agents FROM capability_counts WHERE owner = $1 AND name > $2 ORDER BY name"
};
static const struct db_stmt AGENTS_WITH = {
	"SELECT agent FROM capabilities WHERE owner = $1 AND name = $2 ORDER BY agent"
};

#define CORRECTED_MAX 10000 /* agents that are due and not yet removed, looked at for a count */

/* What follows the JSON string that begins here. */
static const char *skip_string(const char *quote)
{
	const char *at = quote + 1;

	while (*at && *at != '"')
		at += *at == '\\' && at[1] ? 2 : 1;
	return *at ? at + 1 : at;
}

/* Whether a set, as a profile has it, holds the name, which is quoted as it is in it. */
static bool set_has(const char *set, const char *quoted, size_t n)
{
	for (const char *at = set + 1; *at == '"';) {
		const char *end = skip_string(at);
		if ((size_t)(end - at) == n && memcmp(at, quoted, n) == 0)
			return true;
		at = *end == ',' ? end + 1 : end;
	}
	return false;
}

static bool is_due_with(struct fleet *f, uint32_t i, const char *owner, const struct buf *quoted,
			lapse_ms now)
{
	const struct profile *p = fleet_profile(f, i);

	return strcmp(p->owner, owner) == 0 &&
	       set_has(p->capabilities, quoted->data, quoted->len) &&
	       fleet_fate(f, i, now) == AGENT_EVICTED;
}

/* Of the agents that the table has for a capability, those past their deadline: they stand at the
 * front of the list, or are parked. */
static int64_t count_gone(struct tx *tx, const char *owner, const char *name)
{
	struct fleet *f = presence_fleet(tx->engine);
	struct buf CLEANUP(buf_done) quoted = { 0 };
	int64_t gone = 0;
	int left = CORRECTED_MAX;

	json_text(&quoted, name);
	for (uint32_t i = fleet_first(f); i && left-- > 0; i = fleet_next(f, i)) {
		if (!presence_is_due(fleet_at(f, i)->base, f->evict_after, tx->now))
			break;
		gone += is_due_with(f, i, owner, &quoted, tx->now);
	}
	for (uint32_t i = fleet_first_parked(f); i && left-- > 0; i = fleet_next(f, i))
		gone += is_due_with(f, i, owner, &quoted, tx->now);
	return gone;
}

static int read_names(struct tx *tx, const char *owner, const char *capability,
		      const struct capability_reader *reader)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &AGENTS_WITH);
	int64_t left = reader->names_max;
	int r = LAPSE_OK;

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, capability);
	while (left > 0 && (r = db_step(&q)) > 0) {
		struct agent_view v = { .agent = db_text(&q, 0) };
		if (!complete_view(tx, owner, &v))
			continue;
		reader->name(reader->arg, v.agent);
		left--;
	}
	return r < 0 ? r : LAPSE_OK;
}

int presence_capabilities(struct tx *tx, const char *owner, const char *after,
			  const struct capability_reader *reader)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &NAMES);
	int r;

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, after);
	while ((r = db_step(&q)) > 0) {
		const char *name = db_text(&q, 0);
		int64_t agents = db_int(&q, 1) - count_gone(tx, owner, name);
		if (agents <= 0)
			continue;
		if (!reader->begin(reader->arg, name, agents))
			return LAPSE_OK;
		r = read_names(tx, owner, name, reader);
		if (r < 0)
			return r;
		reader->end(reader->arg);
	}
	return r;
}
