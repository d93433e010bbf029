/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of times: the earliest comes first, whatever was added and taken out in between. */
#include <stdlib.h>

#include "base/heap.h"
#include "unit.h"

#define NODES 2000

static void nodes_come_out_in_order(void **state)
{
	static struct heap_node nodes[NODES];
	struct heap h = { 0 };
	int64_t last = INT64_MIN;
	size_t left = NODES;
	unsigned seed = 7;

	(void)state;
	assert_null(heap_first(&h));
	for (size_t i = 0; i < NODES; i++)
		heap_add(&h, &nodes[i], rand_r(&seed) % 500); /* many are equal */
	for (size_t i = 0; i < NODES; i += 3) {
		heap_remove(&h, &nodes[i]);
		heap_remove(&h, &nodes[i]); /* harmless */
		left--;
	}
	for (struct heap_node *n; (n = heap_first(&h)); left--) {
		assert_true(n->at >= last);
		last = n->at;
		heap_remove(&h, n);
		assert_int_equal(n->index, 0);
	}
	assert_int_equal(left, 0);
	heap_done(&h);
}

/* A step is one of adding or taking out a random node; the smallest is looked for by hand. */
static void the_first_is_always_the_smallest(void **state)
{
	static struct heap_node nodes[64];
	struct heap h = { 0 };
	unsigned seed = 42;

	(void)state;
	for (int step = 0; step < 20000; step++) {
		struct heap_node *n = &nodes[rand_r(&seed) % 64];
		int64_t least = INT64_MAX;
		if (n->index)
			heap_remove(&h, n);
		else
			heap_add(&h, n, rand_r(&seed) % 100);
		for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
			if (nodes[i].index && nodes[i].at < least)
				least = nodes[i].at;
		assert_int_equal(h.count > 0 ? heap_first(&h)->at : INT64_MAX, least);
	}
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		heap_remove(&h, &nodes[i]);
	heap_done(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_come_out_in_order),
		cmocka_unit_test(the_first_is_always_the_smallest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
