/* SPDX-License-Identifier: Apache-2.0 */
/* What this layer keeps in memory, in the engine's slot ROOM_API: one for each open store. */
#ifndef LAPSE_API_STATE_H
#define LAPSE_API_STATE_H

#include <assert.h>

#include "api/wait.h"
#include "base/list.h"
#include "engine/engine.h"

#define API_MAGIC 0x4c415049u

struct api {
	uint32_t magic;
	struct list keys;   /* struct idempotency: keys under way in this process */
	struct waits waits; /* what calls wait for */
	int64_t waiting;    /* calls that wait, for whatever */
};

static inline struct api *api_of(const struct engine *e)
{
	struct api *a = engine_room(e, ROOM_API);

	assert(a && a->magic == API_MAGIC);
	return a;
}

extern const struct room API_ROOM;

#endif
