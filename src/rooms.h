/* SPDX-License-Identifier: Apache-2.0 */
/* All rooms put together: the whole matrix and all schedulers. */
#ifndef LAPSE_ROOMS_H
#define LAPSE_ROOMS_H

#include "engine/engine.h"

extern const struct bound *const ROOM_BOUNDS[];      /* ends with NULL */
extern const struct scheduler_def ROOM_SCHEDULERS[]; /* ends with a row without a name */

#endif
