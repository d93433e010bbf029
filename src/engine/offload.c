/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/offload.h"

#include <assert.h>

#include "engine/engine.h"

void offload_work(struct offload *o)
{
	assert(o->magic == OFFLOAD_MAGIC && o->state == OFFLOAD_WORKING);
	o->work(o);
	assert(o->magic == OFFLOAD_MAGIC && o->state == OFFLOAD_WORKING);
	o->state = OFFLOAD_WORKED;
}

void offload_end(struct offload *o)
{
	assert(o->magic == OFFLOAD_MAGIC && o->state == OFFLOAD_WORKED);
	o->magic = 0;
	o->state = OFFLOAD_IDLE;
	o->done(o);
}

void offload_start(struct engine *e, struct offload *o)
{
	assert(o->work && o->done);
	assert(o->magic == 0 && o->state == OFFLOAD_IDLE); /* not twice at once */
	o->magic = OFFLOAD_MAGIC;
	o->state = OFFLOAD_WORKING;
	o->engine = e;
	if (e->offloader.run) {
		e->offloader.run(e->offloader.ctx, o);
		return;
	}
	offload_work(o);
	offload_end(o);
}
