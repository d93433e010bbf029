/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading presence: the rows in the order of their names, completed by what the memory knows. An
 * agent past its deadline is not shown, whether a check has met it or not.
 */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "presence/presence.h"
#include "presence/suspect.h"

/* Fills in what the memory knows; false = it must not be shown. A row the memory does not know was
 * written by this very transaction, and is live. */
static bool complete_view(struct tx *tx, const char *owner, bool include_suspect,
			  struct agent_view *v)
{
	struct fleet *f = presence_fleet(tx->engine);
	uint32_t i = fleet_find(f, owner, v->agent);

	if (!i) {
		v->expires_at = presence_deadline(v->last_seen, f->evict_after);
		return true;
	}
	enum agent_fate fate = fleet_fate(f, i, tx->now);
	/* The row decides too: this very transaction may hold a heartbeat of it. */
	bool gone = fate != AGENT_STAYS &&
		    presence_is_due(v->last_seen, f->evict_after, fleet_time(f, tx->now));
	v->suspect = gone && fate == AGENT_SUSPECTED; /* no check has met it yet */
	if (gone && !(v->suspect && include_suspect))
		return false;
	const struct agent *a = fleet_at(f, i);
	v->last_seen = a->last_seen > v->last_seen ? a->last_seen : v->last_seen;
	v->expires_at = presence_deadline(v->suspect ? tx->now : a->base, f->evict_after);
	return true;
}

static const struct db_stmt GET = { "SELECT agent, cluster_id, capabilities, first_seen, last_seen "
				    "FROM agents WHERE owner = $1 AND agent = $2" };

static struct agent_view read_view(const struct db_query *q)
{
	return (struct agent_view){ .agent = db_text(q, 0),
				    .cluster = db_text(q, 1),
				    .capabilities = db_text(q, 2),
				    .first_seen = db_int(q, 3),
				    .last_seen = db_int(q, 4) };
}

static int get_suspect(struct tx *tx, const char *owner, const char *agent, agent_fn *fn, void *arg)
{
	const struct fleet *f = presence_fleet(tx->engine);
	struct suspect s;
	int r = suspect_find(tx, owner, agent, &s);

	if (r < 0)
		return r;
	if (r == 0 || suspect_is_over(tx, &s))
		return LAPSE_ENOTFOUND;
	fn(arg,
	   &(struct agent_view){ .agent = agent,
				 .cluster = s.cluster,
				 .capabilities = s.capabilities,
				 .first_seen = s.first_seen,
				 .last_seen = s.last_seen,
				 .expires_at = presence_deadline(s.suspected_at, f->evict_after),
				 .suspect = true });
	return LAPSE_OK;
}

int presence_get(struct tx *tx, const char *owner, const char *agent, bool include_suspect,
		 agent_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	int r = db_step(&q);
	if (r == 0 && include_suspect)
		return get_suspect(tx, owner, agent, fn, arg);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	struct agent_view v = read_view(&q);
	if (!complete_view(tx, owner, include_suspect, &v))
		return LAPSE_ENOTFOUND;
	fn(arg, &v);
	return LAPSE_OK;
}

/* Sets of capabilities as JSON */

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

/* Lists walk the names, which the indexes hold, and ask the memory who is in a cluster; a row is
 * read for each agent that is shown. An index by cluster would be quicker for a small one, but
 * every agent that comes or goes would pay for it. */

static const struct db_stmt NAMES_OF_ALL = {
	"SELECT agent FROM agents WHERE owner = $1 AND agent > $2 ORDER BY agent"
};
static const struct db_stmt NAMES_OF_ABLE = {
	"SELECT agent FROM capabilities WHERE owner = $1 AND agent > $2 AND name = $3 "
	"ORDER BY agent"
};

/* With suspects, whose capabilities are in their record only. */
static const struct db_stmt NAMES_WITH_SUSPECTS = {
	"SELECT agent FROM agents WHERE owner = $1 AND agent > $2 UNION ALL "
	"SELECT agent FROM suspects WHERE owner = $1 AND agent > $2 ORDER BY agent"
};

static struct db_query names_query(struct tx *tx, const char *owner,
				   const struct agent_filter *filter, const char *after)
{
	bool by_capability = filter->capability && !filter->include_suspect;
	struct db_query q = db_query(tx->db, filter->include_suspect ? &NAMES_WITH_SUSPECTS
					     : by_capability         ? &NAMES_OF_ABLE
								     : &NAMES_OF_ALL);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, after);
	if (by_capability)
		db_bind_text(&q, 3, filter->capability);
	return q;
}

static bool is_in_cluster(struct tx *tx, const char *owner, const char *agent, const char *cluster)
{
	const struct fleet *f = presence_fleet(tx->engine);
	uint32_t i = cluster ? fleet_find(f, owner, agent) : 0;

	return !i || strcmp(fleet_profile(f, i)->cluster, cluster) == 0;
}

struct shown {
	agent_fn *fn;
	void *arg;
	const struct agent_filter *filter;
	struct buf capability; /* as it stands in a set */
	bool enough;
};

static void shown_done(struct shown *s)
{
	buf_done(&s->capability);
}

static bool show_chosen(void *arg, const struct agent_view *v)
{
	struct shown *s = arg;
	const char *cluster = s->filter->cluster;
	bool chosen = (!cluster || strcmp(v->cluster, cluster) == 0) &&
		      (!s->filter->capability ||
		       set_has(v->capabilities, s->capability.data, s->capability.len));

	s->enough = chosen && !s->fn(s->arg, v);
	return !s->enough;
}

int presence_list(struct tx *tx, const char *owner, const struct agent_filter *filter,
		  struct arena *arena, const char **after, agent_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = names_query(tx, owner, filter, *after);
	struct shown CLEANUP(shown_done) shown = { .fn = fn, .arg = arg, .filter = filter };
	int64_t looks = 0;
	int r;

	assert(filter->looks_max > 0);
	if (filter->capability)
		json_text(&shown.capability, filter->capability);
	while ((r = db_step(&q)) > 0) {
		const char *agent = db_text(&q, 0);
		r = LAPSE_OK;
		if (is_in_cluster(tx, owner, agent, filter->cluster))
			r = presence_get(tx, owner, agent, filter->include_suspect, show_chosen,
					 &shown);
		if (shown.enough || (r < 0 && r != LAPSE_ENOTFOUND))
			return shown.enough ? LAPSE_OK : r;
		if (++looks == filter->looks_max) {
			*after = arena_strdup(arena, agent);
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

static bool is_able(const struct fleet *f, uint32_t i, const char *owner, const struct buf *quoted)
{
	const struct profile *p = fleet_profile(f, i);

	return strcmp(p->owner, owner) == 0 && set_has(p->capabilities, quoted->data, quoted->len);
}

/* How many agents that the table has for a capability are past their deadline: they stand at the
 * front of the list, or are parked. */
static int64_t count_gone(struct tx *tx, const char *owner, const char *name)
{
	struct fleet *f = presence_fleet(tx->engine);
	struct buf CLEANUP(buf_done) quoted = { 0 };
	int64_t gone = 0;
	int left = CORRECTED_MAX;

	json_text(&quoted, name);
	for (uint32_t i = fleet_first(f); i && left-- > 0; i = fleet_next(f, i)) {
		if (!presence_is_due(fleet_at(f, i)->base, f->evict_after, fleet_time(f, tx->now)))
			break;
		gone += is_able(f, i, owner, &quoted);
	}
	for (uint32_t i = fleet_first_parked(f); i && left-- > 0; i = fleet_next(f, i))
		gone += is_able(f, i, owner, &quoted);
	return gone;
}

static int read_names(struct tx *tx, const char *owner, const char *capability,
		      const struct capability_reader *reader)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &AGENTS_WITH);
	int64_t left = reader->names_max;
	int r = LAPSE_OK;

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, capability);
	while (left > 0 && (r = db_step(&q)) > 0) {
		struct agent_view v = { .agent = db_text(&q, 0) };
		if (!complete_view(tx, owner, false, &v))
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

	assert(tx_is_open(tx));
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
