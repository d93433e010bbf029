/* SPDX-License-Identifier: Apache-2.0 */
#include "http/pace.h"

#include <assert.h>

#include "http/request.h"
#include "http/server.h"

void pace_init(struct pace *p)
{
	list_init(&p->waiting);
	p->round = 1;
	p->places = PACE_PLACES;
}

static void pace_resume(struct pace *p, struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && r->state == REQUEST_RECEIVING);
	list_remove(&r->link);
	r->round = p->round;
	MHD_resume_connection(r->mhd);
}

void pace_begin(struct server *s)
{
	struct pace *p = &s->pace;

	p->round++;
	if (!list_empty(&p->waiting) && s->pumped < p->next && !s->stopping)
		return;
	p->places = PACE_PLACES;
	while (!list_empty(&p->waiting) && (p->places > 0 || s->stopping)) {
		pace_resume(p, CONTAINER_OF(p->waiting.next, struct request, link));
		p->places -= p->places > 0;
	}
}

void pace_end(struct server *s)
{
	struct pace *p = &s->pace;

	if (list_empty(&p->waiting) || s->pumped < p->next)
		return;
	lapse_us now = clock_mono(s->engine->clock), pause = PACE_PAUSES * (now - s->pumped);
	p->next = now + (pause < PACE_PAUSE_MAX_US ? pause : PACE_PAUSE_MAX_US);
}

bool pace_take(struct request *r)
{
	struct pace *p = &r->server->pace;
	const bool is_first = r->round == 0;

	assert(r->state == REQUEST_RECEIVING && !list_is_linked(&r->link));
	if (r->round == p->round || r->server->stopping)
		return true;
	if (!is_first && p->places == 0) {
		list_append(&p->waiting, &r->link);
		p->waited++;
		MHD_suspend_connection(r->mhd);
		return false;
	}
	p->places -= !is_first;
	r->round = p->round;
	return true;
}

int64_t pace_wait_ms(const struct server *s)
{
	const lapse_us left = s->pace.next - s->pumped;

	if (list_empty(&s->pace.waiting))
		return -1;
	return left > 0 && !s->stopping ? (left + 999) / 1000 : 0;
}
