/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time that a restore has taken back. Readers of events, and of the outbox, keep their place as
 * an id. An id that was given out after the backup was made, and before it was restored, is a place
 * in a history that does not exist any more: its reader must be told that there is a gap, however
 * long after the restore it comes back.
 *
 * Ids grow with time, so that history is a range of ids. It is found at the first start after a
 * restore and kept in `meta`; the last restore counts.
 */
#ifndef LAPSE_ENGINE_UNDONE_H
#define LAPSE_ENGINE_UNDONE_H

#include <stdbool.h>
#include <stdint.h>

struct engine;

struct undone {
	int64_t after; /* the newest id of the restored store … */
	int64_t upto;  /* … and the first that it can have given out since; 0 = never restored */
};

/* In the transaction of the start, once the newest id is known. */
int undone_load(struct engine *e);

/* Whether the id is from a time that a restore has taken back. */
bool undone_has(const struct engine *e, int64_t id);

#endif
