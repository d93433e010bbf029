/* SPDX-License-Identifier: Apache-2.0 */
#include "api/state.h"

#include <string.h>

#include "api/idempotency.h"
#include "base/mem.h"
#include "engine/tx.h"

static int api_load(struct tx *tx)
{
	struct api *a = mem_zalloc(1, sizeof(*a));

	a->magic = API_MAGIC;
	list_init(&a->keys);
	waits_init(&a->waits);
	engine_set_room(tx->engine, ROOM_API, a);
	return idempotency_recover(tx);
}

static void api_done(struct engine *e)
{
	struct api *a = engine_room(e, ROOM_API);

	if (!a)
		return;
	assert(list_empty(&a->keys) && a->waiting == 0); /* every request has been answered */
	waits_done(&a->waits);
	free(a);
	engine_set_room(e, ROOM_API, NULL);
}

static void api_tick(struct engine *e)
{
	waits_expire(&api_of(e)->waits, clock_mono(e->clock));
}

static lapse_us api_next_us(const struct engine *e)
{
	return waits_next_us(&api_of(e)->waits, clock_mono(e->clock));
}

/* A call that waits here may wait for what another replica did. */
static int api_news(struct tx *tx, const char *topic, const char *key, lapse_ms at)
{
	(void)at;
	if (strcmp(topic, WAIT_TOPIC) == 0)
		waiters_wake(tx->engine, key);
	return LAPSE_OK;
}

const struct room API_ROOM = {
	.id = ROOM_API,
	.load = api_load,
	.tick = api_tick,
	.next_us = api_next_us,
	.done = api_done,
	.news = api_news,
	.replica_gone = idempotency_replica_gone,
};
