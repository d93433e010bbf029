/* SPDX-License-Identifier: Apache-2.0 */
#include "http/aside.h"

#include <assert.h>

#include "http/request.h"
#include "http/server.h"
#include "http/turn.h"

#define ASIDE_MAX_US INT64_C(2000000)  /* a request waits for its row no longer */
#define ASIDE_PAUSE_US INT64_C(100000) /* from one try to the next, whoever's it is */

void aside_init(struct aside *a)
{
	list_init(&a->requests);
	a->next = 0;
}

static bool aside_is_over(const struct request *r, lapse_us now)
{
	return now - r->aside_since >= ASIDE_MAX_US;
}

static void answer_locked(struct request *r)
{
	turn_answer(r, problem_set(&r->call.problem, LAPSE_EUNAVAILABLE, NULL,
				   "another client of the database has locked a row that this "
				   "needs: nothing was done, send it again later"));
}

void aside_add(struct server *s, struct request *r)
{
	const lapse_us now = clock_mono(s->engine->clock);

	assert(r->state == REQUEST_QUEUED && !list_is_linked(&r->link));
	if (!r->aside_since)
		r->aside_since = now;
	if (aside_is_over(r, now)) {
		answer_locked(r);
		return;
	}
	if (list_empty(&s->aside.requests))
		s->aside.next = now + ASIDE_PAUSE_US;
	list_append(&s->aside.requests, &r->link);
}

static void aside_end_late(struct server *s, lapse_us now)
{
	struct list *l = s->aside.requests.next;

	while (l != &s->aside.requests) {
		struct request *r = CONTAINER_OF(l, struct request, link);
		l = l->next;
		if (!aside_is_over(r, now))
			continue;
		list_remove(&r->link);
		answer_locked(r);
	}
}

bool aside_run(struct server *s)
{
	const lapse_us now = clock_mono(s->engine->clock);

	if (list_empty(&s->aside.requests) || now < s->aside.next)
		return false;
	s->aside.next = now + ASIDE_PAUSE_US;
	aside_end_late(s, now);
	if (list_empty(&s->aside.requests))
		return true;
	struct request *r = CONTAINER_OF(list_shift(&s->aside.requests), struct request, link);
	r->alone = true;
	fair_put_back(&s->queue, r);
	return true;
}

void aside_release(struct server *s)
{
	while (!list_empty(&s->aside.requests)) {
		/* From the end, each to the front: they keep their order. */
		struct list *last = s->aside.requests.prev;
		struct request *r = CONTAINER_OF(last, struct request, link);
		list_remove(last);
		r->alone = false;
		fair_put_back(&s->queue, r);
	}
}
