/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of lapse's own tables that have no operations of their own. */
#ifndef LAPSE_ENGINE_HOUSEKEEPING_H
#define LAPSE_ENGINE_HOUSEKEEPING_H

#include "engine/matrix.h"

extern const struct bound EVENT_BOUND;
extern const struct bound SWEEP_BOUND;

#endif
