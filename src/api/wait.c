/* SPDX-License-Identifier: Apache-2.0 */
#include "api/wait.h"

#include <assert.h>

#include "api/call.h"
#include "api/state.h"
#include "base/mem.h"
#include "engine/tx.h"

struct wait_key {
	struct map_node node;
	struct list waiters;
	char *text;
};

void waits_init(struct waits *w)
{
	map_init(&w->keys);
	w->limits = (struct heap){ 0 };
}

void waits_done(struct waits *w)
{
	assert(w->keys.count == 0);
	map_done(&w->keys);
	heap_done(&w->limits);
}

static struct wait_key *wait_key_find(struct waits *w, const char *key)
{
	struct map_node *n = map_find(&w->keys, key);

	return n ? CONTAINER_OF(n, struct wait_key, node) : NULL;
}

static void wait_key_drop(struct waits *w, struct wait_key *k)
{
	assert(list_empty(&k->waiters));
	map_remove(&w->keys, &k->node);
	free(k->text);
	free(k);
}

void wait_add(struct waits *w, const char *key, lapse_us until, struct waiter *waiter)
{
	struct wait_key *k = wait_key_find(w, key);

	assert(waiter->wake && !waiter->key && !list_is_linked(&waiter->link));
	if (!k) {
		k = mem_zalloc(1, sizeof(*k));
		k->text = mem_strdup(key);
		list_init(&k->waiters);
		map_insert(&w->keys, &k->node, k->text);
	}
	waiter->key = k;
	list_append(&k->waiters, &waiter->link);
	if (until != LAPSE_NEVER)
		heap_add(&w->limits, &waiter->limit, until);
}

void wait_remove(struct waits *w, struct waiter *waiter)
{
	struct wait_key *k = waiter->key;

	list_remove(&waiter->link);
	heap_remove(&w->limits, &waiter->limit);
	waiter->key = NULL;
	if (k && list_empty(&k->waiters))
		wait_key_drop(w, k);
}

void wait_wake(struct waits *w, const char *key)
{
	struct wait_key *k = wait_key_find(w, key);
	struct list woken, *l;

	if (!k)
		return;
	list_init(&woken);
	list_move_all(&woken, &k->waiters);
	wait_key_drop(w, k);
	/* A wake() may take out another waiter, so none may point at the key any more. */
	for (l = woken.next; l != &woken; l = l->next)
		CONTAINER_OF(l, struct waiter, link)->key = NULL;
	while ((l = list_shift(&woken))) {
		struct waiter *waiter = CONTAINER_OF(l, struct waiter, link);
		heap_remove(&w->limits, &waiter->limit);
		waiter->wake(waiter);
	}
}

void waits_expire(struct waits *w, lapse_us now)
{
	struct heap_node *n;

	while ((n = heap_first(&w->limits)) && n->at <= now) {
		struct waiter *waiter = CONTAINER_OF(n, struct waiter, limit);
		wait_remove(w, waiter);
		waiter->wake(waiter);
	}
}

lapse_us waits_next_us(const struct waits *w, lapse_us now)
{
	const struct heap_node *n = heap_first(&w->limits);

	if (!n)
		return INT64_MAX;
	return n->at > now ? n->at - now : 0;
}

/* Calls */

void call_wait_stop(struct call *c)
{
	struct api *a = api_of(c->engine);

	assert(c->magic == CALL_MAGIC);
	assert(c->waiting && a->waiting > 0);
	c->waiting = false;
	a->waiting--;
	wait_remove(&a->waits, &c->waiter);
}

void call_wake(struct call *c)
{
	call_wait_stop(c);
	c->ready(c);
}

static void call_waiter_wake(struct waiter *w)
{
	call_wake(CONTAINER_OF(w, struct call, waiter));
}

void call_wait_start(struct call *c)
{
	struct api *a = api_of(c->engine);
	lapse_us us = (c->park_ms > 0 ? c->park_ms : 0) * 1000;

	assert(!c->waiting && c->ready);
	assert(!(c->park_key && c->work));
	c->waiting = true;
	a->waiting++;
	c->polled = c->park_key != NULL;
	if (!c->park_key)
		return;
	c->waiter.wake = call_waiter_wake;
	wait_add(&a->waits, c->park_key, clock_mono(c->engine->clock) + us, &c->waiter);
	c->park_key = NULL;
}

static void call_do_work(struct offload *o) /* on a worker */
{
	struct call *c = CONTAINER_OF(o, struct call, job);

	c->work(c);
}

static void call_work_done(struct offload *o)
{
	struct call *c = CONTAINER_OF(o, struct call, job);

	c->work = NULL;
	call_wake(c);
}

void call_wait_work(struct call *c)
{
	assert(c->waiting);
	if (!c->work)
		return;
	c->job = (struct offload){ .work = call_do_work, .done = call_work_done };
	offload_start(c->engine, &c->job);
}

void waiters_wake(struct engine *e, const char *key)
{
	wait_wake(&api_of(e)->waits, key);
}

bool waiters_exist(const struct engine *e)
{
	return api_of(e)->waits.keys.count > 0;
}

static void waiters_wake_effect(struct engine *e, void *key)
{
	waiters_wake(e, key);
}

/* Where telling fails, the transaction does. */
void waiters_wake_later(struct tx *tx, const char *key)
{
	if (waiters_exist(tx->engine))
		tx_effect(tx, waiters_wake_effect, (void *)(uintptr_t)key);
	cluster_tell(tx, WAIT_TOPIC, key);
}

bool waiters_may_exist(const struct engine *e)
{
	return waiters_exist(e) || cluster_has_others(&e->cluster);
}

void calls_wake_all(struct engine *e)
{
	struct waits *w = &api_of(e)->waits;

	for (struct heap_node *n; (n = heap_first(&w->limits));) {
		struct call *c = CONTAINER_OF(n, struct call, waiter.limit);
		c->stopping = true;
		call_wake(c);
	}
}

size_t calls_polling(const struct engine *e, struct call **ret, size_t max)
{
	const struct heap *limits = &api_of(e)->waits.limits;

	for (size_t i = 0; i < limits->count && i < max; i++)
		ret[i] = CONTAINER_OF(limits->nodes[i + 1], struct call, waiter.limit);
	return limits->count;
}

void call_end_poll(struct call *c)
{
	assert(c->waiting && c->polled);
	c->hurried = true;
	call_wake(c);
}

bool calls_are_waiting(const struct engine *e)
{
	return api_of(e)->waiting > 0;
}
