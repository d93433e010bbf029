/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive hash table keyed by text, seeded at random because keys are hostile. The map owns
 * its buckets, never its nodes; the key of a node must stay in place while the node is in a map.
 */
#ifndef LAPSE_BASE_MAP_H
#define LAPSE_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_node {
	struct map_node *next;
	uint64_t hash;
	const char *key;
};

struct map {
	struct map_node **buckets;
	size_t mask; /* number of buckets - 1 */
	size_t count;
	uint64_t seed;
};

void map_init(struct map *m);
void map_done(struct map *m);
struct map_node *map_find(const struct map *m, const char *key);
void map_insert(struct map *m, struct map_node *node, const char *key); /* key must be new */
void map_remove(struct map *m, struct map_node *node);

/* Calls fn for every node; fn may remove and free that node, and no other. */
void map_each(struct map *m, void (*fn)(struct map_node *node, void *arg), void *arg);

#endif
