/* SPDX-License-Identifier: Apache-2.0 */
#include "http/fairness.h"

#include <assert.h>

#include "http/request.h"

static struct request *request_at(const struct fair_queue *q, const struct list *l)
{
	return l == &q->requests ? NULL : CONTAINER_OF(l, struct request, link);
}

void fair_init(struct fair_queue *q)
{
	*q = (struct fair_queue){ 0 };
	list_init(&q->requests);
}

static uint64_t *owner_tag(struct fair_queue *q, const char *owner)
{
	uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */

	for (; owner && *owner; owner++)
		hash = (hash ^ (unsigned char)*owner) * UINT64_C(1099511628211);
	return &q->tags[(hash ^ hash >> 32) % FAIR_OWNERS];
}

void fair_add(struct fair_queue *q, struct request *r, const char *owner)
{
	uint64_t *last = owner_tag(q, owner);
	struct list *before = q->requests.prev;

	assert(r->magic == REQUEST_MAGIC && !list_is_linked(&r->link));
	*last = *last + 1 > q->served ? *last + 1 : q->served;
	r->tag = *last;
	while (before != &q->requests && request_at(q, before)->tag > r->tag)
		before = before->prev;
	list_prepend(before, &r->link);
	q->count++;
}

void fair_put_back(struct fair_queue *q, struct request *r)
{
	struct list *before = &q->requests;

	assert(r->magic == REQUEST_MAGIC && !list_is_linked(&r->link));
	while (before->next != &q->requests && request_at(q, before->next)->tag < r->tag)
		before = before->next;
	list_prepend(before, &r->link);
	q->count++;
}

void fair_remove(struct fair_queue *q, struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && list_is_linked(&r->link));
	assert(q->count > 0);
	list_remove(&r->link);
	q->count--;
	assert((q->count == 0) == list_empty(&q->requests));
}

struct request *fair_first(const struct fair_queue *q)
{
	return request_at(q, q->requests.next);
}

struct request *fair_after(const struct fair_queue *q, const struct request *r)
{
	assert(list_is_linked(&r->link));
	return request_at(q, r->link.next);
}

void fair_served(struct fair_queue *q, const struct request *r)
{
	/* It may be in the queue again: an effect of its turn can have woken it. */
	assert(r->magic == REQUEST_MAGIC);
	if (r->tag > q->served)
		q->served = r->tag;
}
