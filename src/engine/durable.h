/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durability that no request waits for. A turn of requests syncs the store itself; what the engine
 * commits on its own (an intent of the cleaner, a mark of the guard) becomes durable with the next
 * such sync, or, when no turn syncs, with one that is started here, off the loop. A sync lasts as
 * long as the disk likes: the loop never waits for it.
 *
 * To wait until a commit is durable, take store_mark() after it and call durable_want(mark) at each
 * tick until it returns true.
 */
#ifndef LAPSE_ENGINE_DURABLE_H
#define LAPSE_ENGINE_DURABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/offload.h"

struct engine;

struct durable {
	struct offload job; /* the sync, while it is under way */
	bool busy;
	int64_t mark; /* the store's mark that it makes durable */
};

/* Whether commits up to the mark are durable. Starts a sync when they are not and none is under
 * way; without a loop that is done when it returns. */
bool durable_want(struct engine *e, int64_t mark);

/* Whether durable_want() would only wait: there is no need to tick before the sync has ended. */
bool durable_waits(const struct engine *e, int64_t mark);

#endif
