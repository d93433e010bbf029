/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/fleet: an owner's fleet at a glance, from memory alone. Agents of one cluster that have
 * the same capabilities share a profile, so counting looks at profiles; and the list of deadlines
 * begins with the agents that have been silent longest. */
#include <assert.h>
#include <string.h>

#include "presence/api.h"
#include "presence/presence.h"

#define PROFILES_LOOKED 100000 /* a few milliseconds, when they are all different */
#define AGENTS_LOOKED 20000    /* of all owners */
#define QUIETEST_SHOWN 100
#define CLUSTERS_SHOWN 500

struct agent_cluster {
	struct map_node node;
	const char *name;
	int64_t agents, silent;
	struct agent_cluster *next;
};

struct glance {
	const struct fleet *fleet;
	const char *owner;
	struct arena *arena;
	struct map clusters;
	struct agent_cluster *first;
	size_t clusters_count;
	uint32_t quietest[QUIETEST_SHOWN];
	size_t quietest_count;
	bool complete;
};

static struct agent_cluster *glance_cluster(struct glance *g, const struct profile *p)
{
	struct map_node *n = map_find(&g->clusters, p->cluster);

	if (n)
		return CONTAINER_OF(n, struct agent_cluster, node);
	struct agent_cluster *c = arena_alloc(g->arena, sizeof(*c));
	c->name = p->cluster;
	c->next = g->first;
	g->first = c;
	g->clusters_count++;
	map_insert(&g->clusters, &c->node, c->name);
	return c;
}

static void glance_count_clusters(struct glance *g)
{
	const struct fleet *f = g->fleet;
	uint32_t looked = 0;

	assert(f->magic == FLEET_MAGIC);
	for (uint32_t i = 0; i < f->profiles_used && looked < PROFILES_LOOKED; i++, looked++) {
		const struct profile *p = f->by_index[i];
		if (p && p->refs > 0 && strcmp(p->owner, g->owner) == 0)
			glance_cluster(g, p)->agents += p->refs;
	}
	g->complete = looked == f->profiles_used;
}

static void glance_find_quietest(struct glance *g)
{
	const struct fleet *f = g->fleet;
	uint32_t i = fleet_first(f);

	assert(g->quietest_count == 0);
	for (int looked = 0; i; i = fleet_next(f, i)) {
		bool silent = fleet_at(f, i)->flags & AGENT_SILENT;
		if (!silent && g->quietest_count == QUIETEST_SHOWN)
			return;
		if (looked++ == AGENTS_LOOKED) {
			g->complete = g->complete && !silent;
			return;
		}
		const struct profile *p = fleet_profile(f, i);
		if (strcmp(p->owner, g->owner) != 0)
			continue;
		glance_cluster(g, p)->silent += silent;
		if (g->quietest_count < QUIETEST_SHOWN)
			g->quietest[g->quietest_count++] = i;
	}
}

/* The ones with trouble first, then the largest. */
static int compare_clusters(const void *a, const void *b)
{
	const struct agent_cluster *x = *(struct agent_cluster *const *)a,
				   *y = *(struct agent_cluster *const *)b;

	if (x->silent != y->silent)
		return x->silent > y->silent ? -1 : 1;
	if (x->agents != y->agents)
		return x->agents > y->agents ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void glance_write_clusters(const struct glance *g, struct buf *out)
{
	struct agent_cluster **all = arena_alloc(g->arena, (g->clusters_count + 1) * sizeof(*all));
	size_t n = 0;

	for (struct agent_cluster *c = g->first; c; c = c->next)
		all[n++] = c;
	assert(n == g->clusters_count);
	qsort(all, n, sizeof(struct agent_cluster *), compare_clusters);
	json_key(out, "clusters");
	json_begin(out, '[');
	for (size_t i = 0; i < n && i < CLUSTERS_SHOWN; i++) {
		json_begin(out, '{');
		json_put_text(out, "cluster_id", all[i]->name);
		json_put_int(out, "agents", all[i]->agents);
		json_put_int(out, "silent", all[i]->silent);
		json_end(out, '}');
	}
	json_end(out, ']');
}

static void glance_write_quietest(const struct glance *g, struct buf *out)
{
	json_key(out, "quietest");
	json_begin(out, '[');
	for (size_t i = 0; i < g->quietest_count; i++) {
		const struct agent *a = fleet_at(g->fleet, g->quietest[i]);
		json_begin(out, '{');
		json_put_text(out, "agent_id", agent_name(a));
		json_put_text(out, "cluster_id", fleet_profile(g->fleet, g->quietest[i])->cluster);
		json_put_time(out, "last_seen", a->last_seen);
		json_put_time(out, "expires_at", time_add(a->base, g->fleet->evict_after));
		json_put_bool(out, "silent", a->flags & AGENT_SILENT);
		json_end(out, '}');
	}
	json_end(out, ']');
}

static void glance_write_breaker(const struct breaker *b, struct buf *out)
{
	bool open = b && b->opened_at != LAPSE_NEVER;

	assert(!b || b->silent <= b->count);
	json_key(out, "breaker");
	json_begin(out, '{');
	json_put_text(out, "state", open ? "open" : "closed");
	json_put_time(out, "opened_at", open ? b->opened_at : LAPSE_NEVER);
	json_put_int(out, "suspected", open ? b->suspected : 0);
	json_end(out, '}');
}

int fleet_api_get(struct call *c)
{
	struct fleet *f = presence_fleet(c->engine);
	struct glance *g = arena_alloc(&c->arena, sizeof(*g));
	const struct breaker *b = fleet_breaker_find(f, c->owner);

	fleet_catch_up(f, clock_wall(c->engine->clock));
	*g = (struct glance){ .fleet = f, .owner = c->owner, .arena = &c->arena };
	map_init(&g->clusters);
	glance_count_clusters(g);
	glance_find_quietest(g);
	json_begin(&c->reply, '{');
	json_put_int(&c->reply, "agents", b ? b->count : 0);
	json_put_int(&c->reply, "silent", b ? b->silent : 0);
	json_put_int(&c->reply, "silent_after_ms", f->silent_after);
	json_put_int(&c->reply, "evict_after_ms", f->evict_after);
	glance_write_breaker(b, &c->reply);
	glance_write_clusters(g, &c->reply);
	glance_write_quietest(g, &c->reply);
	json_put_bool(&c->reply, "complete", g->complete && g->clusters_count <= CLUSTERS_SHOWN);
	json_end(&c->reply, '}');
	map_done(&g->clusters);
	return LAPSE_OK;
}
