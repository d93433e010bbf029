/* SPDX-License-Identifier: Apache-2.0 */
#include "http/park.h"

#include <assert.h>

#include "http/request.h"
#include "http/server.h"
#include "http/turn.h"

struct park_timer {
	uv_timer_t timer;
	struct request *request; /* NULL once it does not wait any more */
};

static void free_timer(uv_handle_t *h)
{
	free(CONTAINER_OF(h, struct park_timer, timer));
}

void park_stop(struct request *r)
{
	wait_remove(&r->server->engine->waits, &r->waiter);
	if (r->timer) {
		r->timer->request = NULL;
		uv_close((uv_handle_t *)&r->timer->timer, free_timer);
		r->timer = NULL;
	}
	list_remove(&r->link);
}

static void wake(struct request *r)
{
	assert(r->state == REQUEST_WAITING);
	park_stop(r);
	turn_enqueue(r->server, r);
}

void park_wake_call(struct call *c)
{
	wake(request_of_call(c));
}

static void wake_waiter(struct waiter *w)
{
	wake(CONTAINER_OF(w, struct request, waiter));
}

static void on_timeout(uv_timer_t *t)
{
	struct request *r = CONTAINER_OF(t, struct park_timer, timer)->request;

	if (!r)
		return;
	r->call.timed_out = true;
	wake(r);
}

static void park(struct request *r)
{
	struct park_timer *t = mem_zalloc(1, sizeof(*t));

	r->waiter.wake = wake_waiter;
	wait_add(&r->server->engine->waits, r->call.park_key, &r->waiter);
	t->request = r;
	r->timer = t;
	uv_timer_init(r->server->loop, &t->timer);
	uv_timer_start(&t->timer, on_timeout, (uint64_t)(r->call.park_ms > 0 ? r->call.park_ms : 0),
		       0);
}

static void do_work(uv_work_t *w)
{
	struct request *r = CONTAINER_OF(w, struct request, work);

	r->call.work(&r->call);
}

static void after_work(uv_work_t *w, int status)
{
	struct request *r = CONTAINER_OF(w, struct request, work);

	(void)status;
	r->call.work = NULL;
	wake(r);
}

void park_start_work(struct request *r)
{
	if (r->call.work)
		uv_queue_work(r->server->loop, &r->work, do_work, after_work);
}

void park_start(struct request *r)
{
	r->state = REQUEST_WAITING;
	list_append(&r->server->waiting, &r->link);
	if (r->call.park_key)
		park(r);
	r->call.park_key = NULL;
}

void park_wake_all(struct server *s)
{
	struct list *l, *next;

	for (l = s->waiting.next; l != &s->waiting; l = next) {
		struct request *r = CONTAINER_OF(l, struct request, link);
		next = l->next;
		r->call.stopping = true;
		if (r->timer)
			wake(r);
	}
}
