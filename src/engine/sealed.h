/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets in the store, whose rooms seal them with one key (base/seal.h). A key is made only while
 * it hides nothing: one that was lost must be missed.
 */
#ifndef LAPSE_ENGINE_SEALED_H
#define LAPSE_ENGINE_SEALED_H

#include "base/seal.h"

struct db;
struct engine;

/* Whether the store has a sealed secret: 1 or 0. */
int sealed_any(struct db *db);

/* Finds the key, or makes one. LAPSE_ENOTFOUND: it is missing, and secrets were sealed with it. */
int sealed_key(struct engine *e, struct seal *ret, struct problem *p);

#endif
