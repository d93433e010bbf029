/* SPDX-License-Identifier: Apache-2.0 */
/* The containers: buffer, arena, map, list; and the list of errors. */
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/map.h"
#include "unit.h"

static void a_buffer_is_always_a_string(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_string_equal(buf_text(&b), "");
	buf_puts(&b, "ab");
	buf_putc(&b, 'c');
	buf_add(&b, "d\0e", 3);
	buf_puts(&b, "");
	assert_int_equal(b.len, 6);
	assert_memory_equal(buf_text(&b), "abcd\0e", 7);
	buf_done(&b);
	assert_string_equal(buf_text(&b), "");
	buf_printf(&b, "%s-%d", "x", 5);
	assert_string_equal(buf_text(&b), "x-5");
	buf_done(&b);
}

static void a_buffer_grows(void **state)
{
	struct buf b = { 0 };

	(void)state;
	for (int i = 0; i < 10000; i++) {
		buf_printf(&b, "%04d", i);
		assert_int_equal(b.len, strlen(b.data));
		assert_true(b.len <= b.cap);
	}
	assert_memory_equal(b.data + 4 * 9999, "9999", 5);
	assert_memory_equal(b.data + 4 * 64, "0064", 4);
	buf_done(&b);
	buf_reserve(&b, 100000);
	assert_true(b.cap >= 100000);
	assert_int_equal(b.len, 0);
	buf_done(&b);
}

static void a_buffer_can_be_taken(void **state)
{
	struct buf b = { 0 };

	(void)state;
	char *empty = buf_take(&b);
	assert_string_equal(empty, "");
	free(empty);
	buf_puts(&b, "mine");
	char *text = buf_take(&b);
	assert_string_equal(text, "mine");
	assert_int_equal(b.len, 0);
	assert_null(b.data);
	free(text);
}

static void a_buffer_writes_numbers(void **state)
{
	static const int64_t cases[] = { 0, 1, -1, 9, 10, -10, INT64_MAX, INT64_MIN };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf CLEANUP(buf_done) b = { 0 };
		char want[32];
		snprintf(want, sizeof(want), "%lld", (long long)cases[i]);
		buf_int(&b, cases[i]);
		assert_string_equal(buf_text(&b), want);
	}
}

/* Sizes around the first block, the usual block, and beyond it. */
static void an_arena_grows(void **state)
{
	static const size_t sizes[] = { 1,    15,    16,    17,    2000, 48,   1,
					4096, 16384, 16385, 50000, 8,    16000 };
	unsigned char *given[ARRAY_LEN(sizes)];
	struct arena a;

	(void)state;
	arena_init(&a);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		given[i] = arena_alloc(&a, sizes[i]);
		assert_int_equal((uintptr_t)given[i] % 16, 0);
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(given[i][k], 0);
		memset(given[i], (int)i + 1, sizes[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(given[i][k], i + 1);
	arena_done(&a);
}

static void an_arena_is_zeroed_after_a_reset(void **state)
{
	struct arena a;

	(void)state;
	arena_init(&a);
	memset(arena_alloc(&a, 2048), 0xff, 2048);
	memset(arena_alloc(&a, 9000), 0xff, 9000);
	arena_reset(&a);
	const char *p = arena_alloc(&a, 2048);
	assert_true(p >= a.first && p < a.first + sizeof(a.first));
	for (size_t k = 0; k < 2048; k++)
		assert_int_equal(p[k], 0);
	arena_done(&a);
}

static void an_arena_copies_texts(void **state)
{
	struct arena a;
	char longest[5001];

	(void)state;
	arena_init(&a);
	memset(longest, 'z', 5000);
	longest[5000] = '\0';
	assert_string_equal(arena_strdup(&a, "text"), "text");
	assert_string_equal(arena_strdup(&a, ""), "");
	assert_string_equal(arena_strndup(&a, "textual", 4), "text");
	assert_string_equal(arena_printf(&a, "%d/%s", 7, longest) + 2, longest);
	assert_string_equal(arena_strdup(&a, longest), longest);
	arena_done(&a);
}

#define NODES 1000

struct entry {
	struct map_node node;
	char key[16];
	int seen;
};

static void fill(struct map *m, struct entry *entries)
{
	for (int i = 0; i < NODES; i++) {
		snprintf(entries[i].key, sizeof(entries[i].key), "key-%d", i);
		map_insert(m, &entries[i].node, entries[i].key);
	}
}

static void see(struct map_node *n, void *arg)
{
	CONTAINER_OF(n, struct entry, node)->seen++;
	++*(int *)arg;
}

static void a_map_finds_after_growing(void **state)
{
	struct entry *entries = mem_zalloc(NODES, sizeof(*entries));
	struct map m;
	int total = 0;

	(void)state;
	map_init(&m);
	assert_null(map_find(&m, "key-0"));
	fill(&m, entries);
	assert_int_equal(m.count, NODES);
	assert_true(m.mask >= NODES - 1);
	for (int i = 0; i < NODES; i++)
		assert_ptr_equal(map_find(&m, entries[i].key), &entries[i].node);
	assert_null(map_find(&m, "key-1000"));
	assert_null(map_find(&m, ""));
	map_each(&m, see, &total);
	assert_int_equal(total, NODES);
	for (int i = 0; i < NODES; i++)
		assert_int_equal(entries[i].seen, 1);
	map_done(&m);
	free(entries);
}

static void a_map_forgets_what_is_removed(void **state)
{
	struct entry *entries = mem_zalloc(NODES, sizeof(*entries));
	struct map m;

	(void)state;
	map_init(&m);
	fill(&m, entries);
	for (int i = 0; i < NODES; i += 3)
		map_remove(&m, &entries[i].node);
	for (int i = 0; i < NODES; i++)
		assert_ptr_equal(map_find(&m, entries[i].key),
				 i % 3 ? (void *)&entries[i].node : NULL);
	assert_int_equal(m.count, NODES - (NODES + 2) / 3);
	map_insert(&m, &entries[0].node, entries[0].key);
	assert_ptr_equal(map_find(&m, "key-0"), &entries[0].node);
	map_done(&m);
	free(entries);
}

static void free_node(struct map_node *n, void *arg)
{
	map_remove(arg, n);
	free(CONTAINER_OF(n, struct entry, node));
}

static void a_map_can_be_emptied_while_walking(void **state)
{
	struct map m;

	(void)state;
	map_init(&m);
	for (int i = 0; i < 300; i++) {
		struct entry *e = mem_zalloc(1, sizeof(*e));
		snprintf(e->key, sizeof(e->key), "%d", i);
		map_insert(&m, &e->node, e->key);
	}
	map_each(&m, free_node, &m);
	assert_int_equal(m.count, 0);
	assert_null(map_find(&m, "7"));
	map_done(&m);
}

static void maps_are_seeded(void **state)
{
	struct map a, b;

	(void)state;
	map_init(&a);
	map_init(&b);
	assert_int_not_equal(a.seed, b.seed);
	map_done(&a);
	map_done(&b);
}

static void a_list_keeps_its_order(void **state)
{
	struct list head, nodes[4];

	(void)state;
	list_init(&head);
	assert_true(list_empty(&head));
	assert_null(list_shift(&head));
	for (int i = 0; i < 4; i++) {
		list_init(&nodes[i]);
		assert_false(list_is_linked(&nodes[i]));
		list_append(&head, &nodes[i]);
		assert_true(list_is_linked(&nodes[i]));
	}
	list_remove(&nodes[1]);
	list_remove(&nodes[1]); /* harmless */
	assert_false(list_is_linked(&nodes[1]));
	assert_ptr_equal(list_shift(&head), &nodes[0]);
	assert_ptr_equal(list_shift(&head), &nodes[2]);
	assert_ptr_equal(list_shift(&head), &nodes[3]);
	assert_true(list_empty(&head));
}

static void a_list_moves_into_another(void **state)
{
	struct list to, from, nodes[3];

	(void)state;
	list_init(&to);
	list_init(&from);
	list_move_all(&to, &from);
	assert_true(list_empty(&to));
	list_append(&to, &nodes[0]);
	list_append(&from, &nodes[1]);
	list_append(&from, &nodes[2]);
	list_move_all(&to, &from);
	assert_true(list_empty(&from));
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(list_shift(&to), &nodes[i]);
	assert_true(list_empty(&to));
}

static void errors_have_names(void **state)
{
	struct problem p = { 0 };

	(void)state;
	assert_string_equal(err_name(LAPSE_OK), "OK");
	assert_string_equal(err_name(LAPSE_EINVAL), "EINVAL");
	assert_string_equal(err_text(LAPSE_EFULL), "the disk is full");
	assert_string_equal(err_name(-999), "unknown error");
	assert_string_equal(err_text(7), "unknown error");
#define X(name, number, text)                                                                      \
	assert_int_equal(LAPSE_##name, -(number));                                                 \
	assert_string_equal(err_name(-(number)), #name);
	LAPSE_ERRORS(X)
#undef X
	assert_string_equal(problem_text(&p, LAPSE_EBUSY), err_text(LAPSE_EBUSY));
	assert_int_equal(problem_set(&p, LAPSE_EBUSY, "f", "%d", 5), LAPSE_EBUSY);
	assert_string_equal(problem_text(&p, LAPSE_EBUSY), "5");
	assert_string_equal(p.field, "f");
	problem_set(&p, LAPSE_EBUSY, NULL, "%300s", "x");
	assert_string_equal(p.field, "");
	assert_int_equal(strlen(p.message), sizeof(p.message) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_buffer_is_always_a_string),
		cmocka_unit_test(a_buffer_grows),
		cmocka_unit_test(a_buffer_can_be_taken),
		cmocka_unit_test(a_buffer_writes_numbers),
		cmocka_unit_test(an_arena_grows),
		cmocka_unit_test(an_arena_is_zeroed_after_a_reset),
		cmocka_unit_test(an_arena_copies_texts),
		cmocka_unit_test(a_map_finds_after_growing),
		cmocka_unit_test(a_map_forgets_what_is_removed),
		cmocka_unit_test(a_map_can_be_emptied_while_walking),
		cmocka_unit_test(maps_are_seeded),
		cmocka_unit_test(a_list_keeps_its_order),
		cmocka_unit_test(a_list_moves_into_another),
		cmocka_unit_test(errors_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
