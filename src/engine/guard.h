/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: whether it is safe to remove anything now. Pure decisions; the sweep asks before
 * every slice.
 */
#ifndef LAPSE_ENGINE_GUARD_H
#define LAPSE_ENGINE_GUARD_H

#include <stdbool.h>

#include "base/clock.h"

/* After a restore every bound gets one grace period: its own window, or a day where rows hold
 * their own deadline. `restored_at` 0 = never restored. */
bool guard_in_grace(lapse_ms restored_at, lapse_ms window, lapse_ms now);

#endif
