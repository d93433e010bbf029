/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive binary heap ordered by time: the earliest node is found at once, any node can be
 * taken out. The heap owns its array, never its nodes. A node outside any heap has index 0, so
 * heap_remove() is harmless on it.
 */
#ifndef LAPSE_BASE_HEAP_H
#define LAPSE_BASE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_node {
	int64_t at;
	size_t index; /* in the array, from 1; 0 = in no heap */
};

struct heap {
	struct heap_node **nodes; /* nodes[0] is not used */
	size_t count, room;
};

void heap_done(struct heap *h); /* must be empty; a zeroed heap is an empty one */
void heap_add(struct heap *h, struct heap_node *node, int64_t at);
void heap_remove(struct heap *h, struct heap_node *node);

/* The node with the smallest `at`; NULL when there is none. */
static inline struct heap_node *heap_first(const struct heap *h)
{
	return h->count > 0 ? h->nodes[1] : NULL;
}

#endif
