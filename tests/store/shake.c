/* SPDX-License-Identifier: Apache-2.0 */
#include "shake.h"

#include <string.h>

#include "api/state.h"
#include "base/mem.h"
#include "double.h"
#include "engine/engine.h"
#include "presence/presence.h"

/* A shake moves this much of each structure on average: more would make large fleets crawl. */
#define BYTES_MOVED (16 * 1024)
#define PIECES_MOVED 32

#define SLAB_MOVES_ONE_IN 8 /* a new slab is 2 MiB, however few live in it */

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

/* Small ones move at every shake, large ones the more seldom the larger they are. */
static bool moves_now(size_t size)
{
	return double_random() % (size / BYTES_MOVED + 1) == 0;
}

static void *move_at_times(void *from, size_t size)
{
	return moves_now(size) ? move(from, size) : from;
}

/* Where a run of PIECES_MOVED of @count begins: all of a few, any of many. */
static uint32_t first_piece(uint32_t count)
{
	return count > PIECES_MOVED ? (uint32_t)(double_random() % (count - PIECES_MOVED + 1)) : 0;
}

static void shake_map(struct map *m)
{
	if (m->buckets)
		m->buckets = move_at_times(m->buckets, (m->mask + 1) * sizeof(*m->buckets));
}

static void shake_slabs(struct fleet *f)
{
	f->slabs = move(f->slabs, f->slabs_count * sizeof(*f->slabs));
	if (f->used > SLAB_AGENTS || double_random() % SLAB_MOVES_ONE_IN != 0 ||
	    !moves_now(f->used * sizeof(struct agent)))
		return;
	struct agent *to = mem_aligned(64, SLAB_AGENTS * sizeof(*to));
	memcpy(to, f->slabs[0], f->used * sizeof(*to));
	free(f->slabs[0]);
	f->slabs[0] = to;
}

static void shake_names(struct fleet *f)
{
	uint32_t first = first_piece(f->used);

	for (uint32_t i = first; i < f->used && i < first + PIECES_MOVED; i++) {
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
	uint32_t first = first_piece(f->profiles_used);

	shake_slabs(f);
	shake_names(f);
	f->buckets = move_at_times(f->buckets, f->buckets_room * sizeof(*f->buckets));
	if (f->profiles_cap)
		f->by_index = move_at_times(f->by_index, f->profiles_cap * sizeof(*f->by_index));
	for (uint32_t i = first; i < f->profiles_used && i < first + PIECES_MOVED; i++)
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
