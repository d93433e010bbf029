/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of lapse's own tables that have no operations of their own. */
#ifndef LAPSE_ENGINE_HOUSEKEEPING_H
#define LAPSE_ENGINE_HOUSEKEEPING_H

#include "engine/bound.h"

struct tx;
struct engine;

/* Events up to `seq` may be gone: a reader that resumes before it is told. */
int events_note_pruned(struct tx *tx, int64_t seq);

/* The memory's part of it. */
void events_forget(struct engine *e, int64_t seq);

extern const struct bound_spec EVENT_BOUND;
extern const struct bound_spec SWEEP_BOUND;

#endif
