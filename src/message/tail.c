/* SPDX-License-Identifier: Apache-2.0 */
#include "message/tail.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ROOM_KEPT 4 /* for messages, in an inbox that is empty */

struct tail *tail_new(int64_t max)
{
	struct tail *t = mem_zalloc(1, sizeof(*t));

	assert(max >= 0);
	t->magic = TAIL_MAGIC;
	t->max = max;
	t->dice = 2463534242u;
	map_init(&t->inboxes);
	list_init(&t->dirty);
	return t;
}

static int64_t inbox_bytes(const struct tail_inbox *i)
{
	return (int64_t)(sizeof(*i) + (size_t)i->levels * sizeof(i->next[0]) + strlen(i->node.key) +
			 strlen(i->owner) + 2 + i->room * sizeof(i->entries[0]));
}

static void inbox_free(struct tail *t, struct tail_inbox *i)
{
	t->bytes -= inbox_bytes(i);
	map_remove(&t->inboxes, &i->node);
	list_remove(&i->dirty);
	free(i->entries);
	free((void *)(uintptr_t)i->node.key);
	free((void *)(uintptr_t)i->owner);
	free(i);
}

void tail_free(struct tail *t)
{
	if (!t)
		return;
	assert(t->magic == TAIL_MAGIC);
	while (t->heads[0]) {
		struct tail_inbox *i = t->heads[0];
		t->heads[0] = i->next[0];
		inbox_free(t, i);
	}
	assert(t->bytes == 0);
	map_done(&t->inboxes);
	known_done(&t->known);
	t->magic = 0;
	free(t);
}

/* Inboxes */

static void tail_name(char name[TAIL_NAME_BYTES], const char *owner, const char *agent)
{
	size_t n = strlen(owner), m = strlen(agent);

	assert(n + 1 + m < TAIL_NAME_BYTES); /* both are ids */
	memcpy(name, owner, n + 1);
	name[n] = '\1'; /* where the end was */
	memcpy(name + n + 1, agent, m + 1);
}

struct tail_inbox *tail_find(const struct tail *t, const char *owner, const char *agent)
{
	char name[TAIL_NAME_BYTES];

	assert(t->magic == TAIL_MAGIC);
	if (t->inboxes.count == 0)
		return NULL;
	tail_name(name, owner, agent);
	struct map_node *n = map_find(&t->inboxes, name);
	return n ? CONTAINER_OF(n, struct tail_inbox, node) : NULL;
}

/* The links of each level that lead to the first inbox with this name or a later one. */
static void tail_seek(struct tail *t, const char *name, struct tail_inbox **links[TAIL_LEVELS])
{
	struct tail_inbox **from = t->heads;

	for (int level = TAIL_LEVELS - 1; level >= 0; level--) {
		while (from[level] && strcmp(from[level]->node.key, name) < 0)
			from = from[level]->next;
		links[level] = &from[level];
	}
}

/* One of four inboxes is also on the next level. */
static int throw_levels(struct tail *t)
{
	int levels = 1;

	t->dice ^= t->dice << 13;
	t->dice ^= t->dice >> 17;
	t->dice ^= t->dice << 5;
	for (uint32_t d = t->dice; levels < TAIL_LEVELS && (d & 3) == 0; d >>= 2)
		levels++;
	return levels;
}

struct tail_inbox *tail_open(struct tail *t, const char *owner, const char *agent,
			     int64_t filed_unread)
{
	int levels = throw_levels(t);
	struct tail_inbox *i = mem_zalloc(1, sizeof(*i) + (size_t)levels * sizeof(i->next[0]));
	struct tail_inbox **links[TAIL_LEVELS];
	char name[TAIL_NAME_BYTES];

	assert(t->max > 0 && !tail_find(t, owner, agent));
	tail_name(name, owner, agent);
	char *key = mem_strdup(name);
	i->owner = mem_strdup(owner);
	i->agent = key + strlen(owner) + 1;
	i->filed_unread = filed_unread;
	i->levels = levels;
	list_init(&i->dirty);
	map_insert(&t->inboxes, &i->node, key);
	tail_seek(t, key, links);
	for (int level = 0; level < levels; level++) {
		i->next[level] = *links[level];
		*links[level] = i;
	}
	t->bytes += inbox_bytes(i);
	return i;
}

void tail_close(struct tail *t, struct tail_inbox *i)
{
	struct tail_inbox **links[TAIL_LEVELS];

	assert(i->live == 0);
	tail_seek(t, i->node.key, links);
	for (int level = 0; level < i->levels; level++) {
		assert(*links[level] == i);
		*links[level] = i->next[level];
	}
	inbox_free(t, i);
}

struct tail_inbox *tail_after(const struct tail *t, const char *name)
{
	struct tail_inbox *const *from = t->heads;

	for (int level = TAIL_LEVELS - 1; level >= 0; level--)
		while (from[level] && strcmp(from[level]->node.key, name) <= 0)
			from = from[level]->next;
	return from[0];
}

/* Messages */

static void tail_grow(struct tail *t, struct tail_inbox *i)
{
	t->bytes -= inbox_bytes(i);
	i->room = i->room ? 2 * i->room : 2;
	i->entries = mem_realloc(i->entries, i->room * sizeof(i->entries[0]));
	t->bytes += inbox_bytes(i);
}

void tail_add(struct tail *t, struct tail_inbox *i, const struct tail_entry *e)
{
	assert(i->count == 0 || i->entries[i->count - 1].id < e->id);
	if (i->count == i->room)
		tail_grow(t, i);
	i->entries[i->count++] = *e;
	i->live++;
	t->count++;
	t->newest = e->id > t->newest ? e->id : t->newest;
}

void tail_take_back(struct tail *t, struct tail_inbox *i)
{
	assert(i->count > 0 && i->live > 0 && !i->entries[i->count - 1].hidden);
	i->count--;
	i->live--;
	t->count--;
}

static struct tail_entry *tail_entry_at(const struct tail_inbox *i, int64_t id)
{
	size_t low = i->first, high = i->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (i->entries[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < i->count && i->entries[low].id == id ? &i->entries[low] : NULL;
}

struct tail_entry *tail_entry_of(const struct tail_inbox *i, int64_t id)
{
	struct tail_entry *e = tail_entry_at(i, id);

	return e && !e->hidden ? e : NULL;
}

void tail_hide(struct tail *t, struct tail_inbox *i, int64_t id)
{
	struct tail_entry *e = tail_entry_at(i, id);

	assert(e && !e->hidden);
	e->hidden = true;
	i->live--;
	t->count--;
	if (!list_is_linked(&i->dirty))
		list_append(&t->dirty, &i->dirty);
}

void tail_show(struct tail *t, struct tail_inbox *i, int64_t id)
{
	struct tail_entry *e = tail_entry_at(i, id);

	assert(e && e->hidden);
	e->hidden = false;
	i->live++;
	t->count++;
}

void tail_file(struct tail *t, struct tail_inbox *i, size_t n)
{
	assert(n > 0 && n <= i->live);
	i->live -= n;
	t->count -= (int64_t)n;
	i->filed_unread += (int64_t)n;
	for (size_t k = i->first; n > 0; k++) {
		assert(k < i->count);
		n -= !i->entries[k].hidden;
		i->entries[k].hidden = true;
	}
	if (!list_is_linked(&i->dirty))
		list_append(&t->dirty, &i->dirty);
}

/* Moves what is left to the front once that is less than half. */
static void inbox_tidy(struct tail_inbox *i)
{
	while (i->first < i->count && i->entries[i->first].hidden)
		i->first++;
	if (i->live > i->count / 2)
		return;
	size_t n = 0;
	for (size_t k = i->first; k < i->count; k++)
		if (!i->entries[k].hidden)
			i->entries[n++] = i->entries[k];
	assert(n == i->live);
	i->count = n;
	i->first = 0;
}

/* An empty one keeps little memory. */
static void inbox_shrink(struct tail *t, struct tail_inbox *i)
{
	if (i->room <= ROOM_KEPT)
		return;
	t->bytes -= inbox_bytes(i);
	free(i->entries);
	i->entries = NULL;
	i->room = 0;
	t->bytes += inbox_bytes(i);
}

void tail_tidy(struct tail *t)
{
	while (!list_empty(&t->dirty)) {
		struct tail_inbox *i = CONTAINER_OF(t->dirty.next, struct tail_inbox, dirty);
		list_remove(&i->dirty);
		if (i->live == 0 && (int64_t)t->inboxes.count > t->max) {
			tail_close(t, i);
			continue;
		}
		inbox_tidy(i);
		if (i->live == 0)
			inbox_shrink(t, i);
	}
}
