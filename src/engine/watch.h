/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes down what the guard does: a log line and an event for every leap and every acceptance, and
 * the high-water mark of trusted time once a minute.
 */
#ifndef LAPSE_ENGINE_WATCH_H
#define LAPSE_ENGINE_WATCH_H

#include "base/clock.h"

struct engine;

struct watch {
	int64_t jumps, accepts; /* of the guard's that have been written down */
	lapse_us store_at;      /* monotonic: when the high-water mark is stored next */
};

int watch_load(struct engine *e); /* raises trusted time to the stored mark */
void watch_tick(struct engine *e);
lapse_us watch_next_us(const struct engine *e);

#endif
