/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/offload.h"

#include "engine/engine.h"

void offload_start(struct engine *e, struct offload *o)
{
	o->engine = e;
	if (e->offloader.run) {
		e->offloader.run(e->offloader.ctx, o);
		return;
	}
	o->work(o);
	o->done(o);
}
