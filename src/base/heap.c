/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

#define FIRST_ROOM 64

void heap_done(struct heap *h)
{
	assert(h->count == 0);
	free(h->nodes);
	*h = (struct heap){ 0 };
}

static void heap_put(struct heap *h, struct heap_node *node, size_t i)
{
	assert(i >= 1 && i < h->room);
	h->nodes[i] = node;
	node->index = i;
}

/* Moves the hole at `i` towards the root until `node` fits into it. */
static void heap_rise(struct heap *h, struct heap_node *node, size_t i)
{
	for (; i > 1 && h->nodes[i / 2]->at > node->at; i /= 2)
		heap_put(h, h->nodes[i / 2], i);
	assert(i >= 1 && i <= h->count);
	heap_put(h, node, i);
}

/* Moves the hole at `i` towards the leaves until `node` fits into it. */
static void heap_sink(struct heap *h, struct heap_node *node, size_t i)
{
	for (size_t child; (child = 2 * i) <= h->count; i = child) {
		if (child < h->count && h->nodes[child + 1]->at < h->nodes[child]->at)
			child++;
		if (h->nodes[child]->at >= node->at)
			break;
		heap_put(h, h->nodes[child], i);
	}
	assert(i >= 1 && i <= h->count);
	heap_put(h, node, i);
}

void heap_add(struct heap *h, struct heap_node *node, int64_t at)
{
	assert(node->index == 0);
	if (h->count + 1 >= h->room) {
		h->room = h->room ? 2 * h->room : FIRST_ROOM;
		h->nodes = mem_realloc(h->nodes, h->room * sizeof(*h->nodes));
	}
	node->at = at;
	heap_rise(h, node, ++h->count);
}

void heap_remove(struct heap *h, struct heap_node *node)
{
	size_t i = node->index;

	if (i == 0)
		return;
	assert(i <= h->count && h->nodes[i] == node);
	struct heap_node *last = h->nodes[h->count--];
	node->index = 0;
	if (last == node)
		return;
	if (i > 1 && h->nodes[i / 2]->at > last->at)
		heap_rise(h, last, i);
	else
		heap_sink(h, last, i);
}
