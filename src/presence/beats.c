/* SPDX-License-Identifier: Apache-2.0 */
#include "presence/beats.h"

#include <string.h>

#include "base/mem.h"

/* Lines that are looked up together, so that the memory of one is fetched while others are read:
 * with a large fleet nothing else costs as much. */
#define TOGETHER 16

bool beat_line_read(const char **at, const char *end, struct beat_line *ret)
{
	const char *line = *at;
	const char *stop = memchr(line, '\n', (size_t)(end - line));

	*at = stop ? stop + 1 : end;
	if (!stop)
		stop = end;
	if (stop > line && stop[-1] == '\r')
		stop--;
	const char *comma = memchr(line, ',', (size_t)(stop - line));
	if (!comma)
		return false;
	*ret = (struct beat_line){ .agent = line,
				   .agent_len = (size_t)(comma - line),
				   .cluster = comma + 1,
				   .cluster_len = (size_t)(stop - comma - 1) };
	return !memchr(ret->cluster, ',', ret->cluster_len);
}

struct group {
	struct beat_line lines[TOGETHER];
	uint32_t hashes[TOGETHER];
	size_t n;
};

static bool read_group(const struct fleet *f, const struct scope *s, const char **at,
		       const char *end, struct group *g)
{
	for (g->n = 0; g->n < TOGETHER && *at < end; g->n++) {
		struct beat_line *l = &g->lines[g->n];
		if (!beat_line_read(at, end, l))
			return false;
		g->hashes[g->n] = fleet_hash(s, l->agent, l->agent_len);
		FLEET_FETCH_BUCKET(f, g->hashes[g->n]);
	}
	return true;
}

/* The agent of a line, when all the line says is that it lives; else 0. */
static uint32_t find_quiet(const struct fleet *f, const struct scope *s, const struct beat_line *l,
			   uint32_t hash, lapse_ms now)
{
	uint32_t i = fleet_find_hashed(f, s->owner, l->agent, l->agent_len, hash);

	if (!i)
		return 0;
	const struct agent *a = fleet_at(f, i);
	const struct profile *p = f->by_index[a->profile];
	bool quiet = !presence_is_due(a->base, f->evict_after, fleet_time(f, now)) &&
		     p->cluster_len == l->cluster_len &&
		     memcmp(p->cluster, l->cluster, l->cluster_len) == 0;
	__builtin_prefetch(fleet_at(f, a->next), 1);
	__builtin_prefetch(fleet_at(f, a->prev), 1);
	return quiet ? i : 0;
}

static bool find_group(const struct fleet *f, const struct scope *s, const struct group *g,
		       lapse_ms now, uint32_t *ret_agents)
{
	for (size_t i = 0; i < g->n; i++)
		FLEET_FETCH_AGENT(f, g->hashes[i]);
	for (size_t i = 0; i < g->n; i++) {
		ret_agents[i] = find_quiet(f, s, &g->lines[i], g->hashes[i], now);
		if (!ret_agents[i])
			return false;
	}
	return true;
}

bool beats_touch(struct fleet *f, const char *owner, const char *text, size_t len, lapse_ms now,
		 int64_t *ret_n)
{
	uint32_t *CLEANUP(mem_freep) agents = mem_alloc((BEATS_MAX + TOGETHER) * sizeof(*agents));
	const struct scope s = fleet_scope(f, owner);
	const char *at = text, *end = text + len;
	struct group g;
	size_t n = 0;

	if (memchr(text, '"', len)) /* no quotes, even where a known agent has one */
		return false;
	while (at < end) {
		if (!read_group(f, &s, &at, end, &g) || !find_group(f, &s, &g, now, &agents[n]))
			return false;
		n += g.n;
		if (n > BEATS_MAX)
			return false;
	}
	for (size_t i = 0; i < n; i++)
		fleet_touch(f, agents[i], now);
	*ret_n = (int64_t)n;
	return true;
}
