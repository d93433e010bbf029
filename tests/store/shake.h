/* SPDX-License-Identifier: Apache-2.0 */
/* Moves what the engine and its rooms keep in memory, without changing what it means. */
#ifndef LAPSE_TESTS_STORE_SHAKE_H
#define LAPSE_TESTS_STORE_SHAKE_H

struct engine;

void shake(struct engine *e);

#endif
