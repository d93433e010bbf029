/* SPDX-License-Identifier: Apache-2.0 */
/* All rooms put together: the whole matrix, all schedulers, all kinds of deletions outside, and
 * what is kept in memory. */
#ifndef LAPSE_ROOMS_H
#define LAPSE_ROOMS_H

#include "engine/engine.h"

extern const struct bound_spec *const ROOM_BOUNDS[];     /* ends with NULL */
extern const struct scheduler_def ROOM_SCHEDULERS[];     /* ends with a row without a name */
extern const struct cleanup_kind *const ROOM_CLEANUPS[]; /* ends with NULL */
extern const struct owned *const ROOM_OWNED[];           /* ends with NULL */
extern const struct room *const ROOMS[];                 /* ends with NULL */

#endif
