/* SPDX-License-Identifier: Apache-2.0 */
#include "http/transfer.h"

#include "http/download.h"
#include "http/server.h"
#include "http/upload.h"

#include <assert.h>
#include <string.h>

#define ROUND_MS 200 /* how exactly clients that went or are stuck are noticed */

static void on_transfer_round(uv_timer_t *t)
{
	struct transfers *all = CONTAINER_OF(t, struct transfers, timer);
	struct server *s = CONTAINER_OF(all, struct server, transfers);
	lapse_us now = clock_mono(s->engine->clock);

	for (struct list *l = all->uploads.next; l != &all->uploads; l = l->next)
		upload_look(l);
	for (struct list *l = all->downloads.next; l != &all->downloads; l = l->next)
		download_look(l, now);
	if (list_empty(&all->uploads) && list_empty(&all->downloads))
		uv_timer_stop(t);
}

static bool has_place(const struct server *s, const char *owner)
{
	const struct list *all = &s->transfers.places;

	for (const struct list *l = all->next; l != all; l = l->next)
		if (strcmp(CONTAINER_OF(l, struct transfer_place, link)->owner, owner) == 0)
			return true;
	return false;
}

bool transfers_have_place(const struct server *s, const char *owner)
{
	const int64_t max = s->engine->settings->transfers_max, count = s->transfers.count;

	assert(count >= 0 && count <= max);
	return count < max - max / 4 || (count < max && !has_place(s, owner));
}

bool transfers_take_place(struct server *s, struct transfer_place *p, const char *owner)
{
	if (!transfers_have_place(s, owner))
		return false;
	*p = (struct transfer_place){ .owner = owner };
	list_append(&s->transfers.places, &p->link);
	s->transfers.count++;
	return true;
}

void transfers_give_back(struct server *s, struct transfer_place *p)
{
	assert(s->transfers.count > 0 && list_is_linked(&p->link));
	list_remove(&p->link);
	s->transfers.count--;
}

void transfers_watch(struct server *s)
{
	if (!uv_is_active((uv_handle_t *)&s->transfers.timer))
		uv_timer_start(&s->transfers.timer, on_transfer_round, ROUND_MS, ROUND_MS);
}

void transfers_init(struct server *s)
{
	s->transfers.writers_max = uv_available_parallelism();
	list_init(&s->transfers.places);
	list_init(&s->transfers.writes);
	list_init(&s->transfers.uploads);
	list_init(&s->transfers.flying);
	list_init(&s->transfers.downloads);
	uv_timer_init(s->loop, &s->transfers.timer);
}

void transfers_done(struct server *s)
{
	uv_close((uv_handle_t *)&s->transfers.timer, NULL);

	assert(list_empty(&s->transfers.flying) && s->transfers.jobs == 0);
	assert(list_empty(&s->transfers.writes) && s->transfers.writers == 0);
	assert(list_empty(&s->transfers.places) && s->transfers.count == 0);
}
