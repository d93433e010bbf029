/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/id.h"
#include "base/mem.h"

#define FIRST_BUCKETS 64

void map_init(struct map *m)
{
	*m = (struct map){ .mask = FIRST_BUCKETS - 1 };
	m->buckets = mem_zalloc(FIRST_BUCKETS, sizeof(struct map_node *));
	random_bytes(&m->seed, sizeof(m->seed));
}

void map_done(struct map *m)
{
	free(m->buckets);
	*m = (struct map){ 0 };
}

static uint64_t hash_of(const struct map *m, const char *key)
{
	return XXH3_64bits_withSeed(key, strlen(key), m->seed);
}

struct map_node *map_find(const struct map *m, const char *key)
{
	assert(m->buckets && key);
	uint64_t hash = hash_of(m, key);
	struct map_node *n = m->buckets[hash & m->mask];

	while (n && (n->hash != hash || strcmp(n->key, key) != 0))
		n = n->next;
	return n;
}

static void map_link(struct map *m, struct map_node *n)
{
	struct map_node **slot = &m->buckets[n->hash & m->mask];

	n->next = *slot;
	*slot = n;
}

static void grow(struct map *m)
{
	struct map_node **old = m->buckets;
	size_t old_mask = m->mask;

	assert(((old_mask + 1) & old_mask) == 0); /* a power of two */
	m->mask = (old_mask + 1) * 2 - 1;
	m->buckets = mem_zalloc(m->mask + 1, sizeof(struct map_node *));
	for (size_t i = 0; i <= old_mask; i++)
		for (struct map_node *n = old[i], *next; n; n = next) {
			next = n->next;
			map_link(m, n);
		}
	free(old);
}

void map_insert(struct map *m, struct map_node *node, const char *key)
{
	assert(m->buckets && key);
	if (m->count > m->mask)
		grow(m);
	node->key = key;
	node->hash = hash_of(m, key);
	map_link(m, node);
	m->count++;
}

void map_remove(struct map *m, struct map_node *node)
{
	struct map_node **slot = &m->buckets[node->hash & m->mask];

	assert(m->count > 0);
	while (*slot != node) {
		assert(*slot);
		slot = &(*slot)->next;
	}
	*slot = node->next;
	m->count--;
}

void map_each(struct map *m, void (*fn)(struct map_node *node, void *arg), void *arg)
{
	assert(m->buckets && fn);
	for (size_t i = 0; i <= m->mask; i++)
		for (struct map_node *n = m->buckets[i], *next; n; n = next) {
			next = n->next;
			fn(n, arg);
		}
}
