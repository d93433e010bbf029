/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slice of filing: the messages that come next in a pass become rows, in a transaction of their
 * own.
 *
 *	slice_file → COMMIT → slice_settle
 *
 * slice_file() reads the tail, and writes rows and counters. slice_settle() takes the messages
 * that were written out of the tail. So a transaction that fails has nothing to undo.
 */
#ifndef LAPSE_MESSAGE_SLICE_H
#define LAPSE_MESSAGE_SLICE_H

#include "message/tail.h"
#include "store/db.h"

#define SLICE_INBOXES 512

/* How many messages of an inbox, its oldest ones, were written. */
struct slice_part {
	struct tail_inbox *inbox;
	size_t n;
};

struct slice {
	const struct clock *clock;
	lapse_us stop;         /* when its time is over */
	struct tail_pass pass; /* where it is after the slice */
	struct slice_part parts[SLICE_INBOXES];
	size_t parts_count;
	int64_t written, flushed; /* messages; the latter without those that the store gathers */
};

/* Writes what comes next, and begins a pass where there is none; at least one inbox, then until
 * `budget` is over. */
int slice_file(struct slice *s, const struct tail *t, struct db *db, const struct clock *clock,
	       lapse_us budget);

/* After the commit. */
void slice_settle(const struct slice *s, struct tail *t);

#endif
