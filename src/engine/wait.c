/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/wait.h"

#include <assert.h>

#include "base/mem.h"

struct wait_key {
	struct map_node node;
	struct list waiters;
	char *text;
};

void waits_init(struct waits *w)
{
	map_init(&w->keys);
}

void waits_done(struct waits *w)
{
	assert(w->keys.count == 0);
	map_done(&w->keys);
}

static struct wait_key *find(struct waits *w, const char *key)
{
	struct map_node *n = map_find(&w->keys, key);

	return n ? CONTAINER_OF(n, struct wait_key, node) : NULL;
}

static void drop(struct waits *w, struct wait_key *k)
{
	map_remove(&w->keys, &k->node);
	free(k->text);
	free(k);
}

void wait_add(struct waits *w, const char *key, struct waiter *waiter)
{
	struct wait_key *k = find(w, key);

	if (!k) {
		k = mem_zalloc(1, sizeof(*k));
		k->text = mem_strdup(key);
		list_init(&k->waiters);
		map_insert(&w->keys, &k->node, k->text);
	}
	waiter->key = k;
	list_append(&k->waiters, &waiter->link);
}

void wait_remove(struct waits *w, struct waiter *waiter)
{
	struct wait_key *k = waiter->key;

	list_remove(&waiter->link);
	waiter->key = NULL;
	if (k && list_empty(&k->waiters))
		drop(w, k);
}

void wait_wake(struct waits *w, const char *key)
{
	struct wait_key *k = find(w, key);
	struct list woken, *l;

	if (!k)
		return;
	list_init(&woken);
	list_move_all(&woken, &k->waiters);
	drop(w, k);
	/* One who is woken may take out another, so nobody may point at the key any more. */
	for (l = woken.next; l != &woken; l = l->next)
		CONTAINER_OF(l, struct waiter, link)->key = NULL;
	while ((l = list_shift(&woken))) {
		struct waiter *waiter = CONTAINER_OF(l, struct waiter, link);
		waiter->wake(waiter);
	}
}
