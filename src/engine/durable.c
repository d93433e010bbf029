/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/durable.h"

#include <assert.h>

#include "engine/engine.h"

static void durable_work(struct offload *o) /* on a worker */
{
	store_sync_blocking(o->engine->store);
}

static void durable_done(struct offload *o)
{
	struct engine *e = o->engine;

	assert(e->durable.mark <= store_mark(e->store));
	assert(e->durable.busy);
	e->durable.busy = false;
	store_note_durable(e->store, e->durable.mark);
}

bool durable_waits(const struct engine *e, int64_t mark)
{
	return !store_is_durable(e->store, mark) && (store_is_syncing(e->store) || e->durable.busy);
}

bool durable_want(struct engine *e, int64_t mark)
{
	assert(mark <= store_mark(e->store));
	if (!store_is_durable(e->store, mark) && !durable_waits(e, mark)) {
		assert(e->durable.job.state == OFFLOAD_IDLE);
		e->durable.busy = true;
		e->durable.mark = store_mark(e->store);
		e->durable.job = (struct offload){ .work = durable_work, .done = durable_done };
		offload_start(e, &e->durable.job);
	}
	return store_is_durable(e->store, mark);
}
