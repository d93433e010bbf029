/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/follow.h"

#include <stdlib.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

struct followed {
	struct map_node node;
	char *target;
};

void follower_init(struct engine *e, struct cleanup_follower *f)
{
	map_init(&f->targets);
	list_append(&e->cleaner.followers, &f->link);
}

static void forget(struct map *m, struct map_node *node)
{
	struct followed *x = CONTAINER_OF(node, struct followed, node);

	map_remove(m, node);
	free(x->target);
	free(x);
}

static void forget_one(struct map_node *node, void *targets)
{
	forget(targets, node);
}

void follower_done(struct cleanup_follower *f)
{
	list_remove(&f->link);
	map_each(&f->targets, forget_one, &f->targets);
	map_done(&f->targets);
}

/* Effects */

struct begun {
	struct cleanup_follower *follower;
	const char *target;
};

static void add(struct engine *e, void *arg)
{
	const struct begun *b = arg;

	(void)e;
	if (map_find(&b->follower->targets, b->target))
		return;
	struct followed *x = mem_zalloc(1, sizeof(*x));
	x->target = mem_strdup(b->target);
	map_insert(&b->follower->targets, &x->node, x->target);
}

void follow_target(struct tx *tx, struct cleanup_follower *f, const char *target)
{
	if (!f)
		return;
	struct begun *b = tx_alloc(tx, sizeof(*b));
	*b = (struct begun){ f, arena_strdup(&tx->arena, target) };
	tx_effect(tx, add, b);
}

struct ended {
	const char *target;
	enum cleanup_state state;
};

static void count(struct cleanup_follower *f, const struct ended *x)
{
	struct map_node *node = map_find(&f->targets, x->target);

	if (!node)
		return;
	forget(&f->targets, node);
	f->cleaned += x->state == CLEANUP_DONE;
	f->failed += x->state == CLEANUP_PENDING;
	f->dead += x->state == CLEANUP_DEAD;
	f->settled(f);
}

static void tell(struct engine *e, void *arg)
{
	struct list *all = &e->cleaner.followers;

	for (struct list *l = all->next, *next; l != all; l = next) {
		next = l->next;
		count(CONTAINER_OF(l, struct cleanup_follower, link), arg);
	}
}

void follow_settled(struct tx *tx, const char *target, enum cleanup_state state)
{
	if (list_empty(&tx->engine->cleaner.followers))
		return;
	struct ended *x = tx_alloc(tx, sizeof(*x));
	*x = (struct ended){ arena_strdup(&tx->arena, target), state };
	tx_effect(tx, tell, x);
}
