/* SPDX-License-Identifier: Apache-2.0 */
#include "shake.h"

#include <string.h>

#include "api/state.h"
#include "base/mem.h"
#include "double.h"
#include "engine/engine.h"
#include "presence/presence.h"

#define SLAB_MOVES_ONE_IN 8  /* a slab is large */
#define AGENTS_MOVED_MAX 512 /* more would make tests of large fleets crawl */

/* The same bytes at another place; the old place is poisoned until it is used again. */
static void *move(void *from, size_t size)
{
	void *to = mem_zalloc(1, size ? size : 1);

	if (!from)
		return to;
	memcpy(to, from, size);
	free(from);
	return to;
}

static void shake_map(struct map *m)
{
	if (m->buckets)
		m->buckets = move(m->buckets, (m->mask + 1) * sizeof(*m->buckets));
}

static void shake_slabs(struct fleet *f)
{
	f->slabs = move(f->slabs, f->slabs_count * sizeof(*f->slabs));
	if (f->used > AGENTS_MOVED_MAX || double_random() % SLAB_MOVES_ONE_IN != 0)
		return;
	struct agent *to = mem_aligned(64, SLAB_AGENTS * sizeof(*to));
	memcpy(to, f->slabs[0], f->used * sizeof(*to));
	free(f->slabs[0]);
	f->slabs[0] = to;
}

static void shake_names(struct fleet *f)
{
	for (uint32_t i = 0; i < f->used && i < AGENTS_MOVED_MAX; i++) {
		struct agent *a = fleet_at(f, i);
		if (a->id && a->len >= AGENT_NAME_INLINE) {
			char **name = (char **)(void *)(a->name + 2);
			*name = move(*name, (size_t)a->len + 1);
		}
	}
}

static size_t profile_size(const struct profile *p)
{
	const char *end = p->cluster + p->cluster_len + 1; /* the last of its texts */

	return (size_t)(end - (const char *)p);
}

static const char *moved(const char *text, const struct profile *from, const struct profile *to)
{
	return (const char *)to + (text - (const char *)from);
}

static void shake_profile(struct fleet *f, uint32_t i)
{
	struct profile *from = f->by_index[i], *to;
	const char *key = from->node.key;

	map_remove(&f->profiles, &from->node);
	to = mem_zalloc(1, profile_size(from));
	memcpy(to, from, profile_size(from));
	to->owner = moved(from->owner, from, to);
	to->cluster = moved(from->cluster, from, to);
	to->capabilities = moved(from->capabilities, from, to);
	map_insert(&f->profiles, &to->node, moved(key, from, to));
	f->by_index[i] = to;
	if (f->last == from)
		f->last = to;
	free(from);
}

static void shake_fleet(struct fleet *f)
{
	shake_slabs(f);
	shake_names(f);
	f->buckets = move(f->buckets, f->buckets_room * sizeof(*f->buckets));
	if (f->profiles_cap)
		f->by_index = move(f->by_index, f->profiles_cap * sizeof(*f->by_index));
	for (uint32_t i = 0; i < f->profiles_used && i < AGENTS_MOVED_MAX; i++)
		if (f->by_index[i])
			shake_profile(f, i);
	shake_map(&f->profiles);
}

void shake(struct engine *e)
{
	shake_fleet(fleet_of(e));
	shake_map(&e->tokens.by_prefix);
	shake_map(&api_of(e)->waits.keys);
	shake_map(&e->ring.chains);
}
