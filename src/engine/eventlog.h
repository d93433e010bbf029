/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events read back in the order of their sequences, wherever they are stored: as rows of `events`,
 * or as rows of a room that are events themselves (struct event_rows), which saves the room a
 * second row for each fact.
 *
 * A room that has such rows: 1. fills `events` of its struct room; 2. tells of a new row with
 * event_tell(); 3. when a row goes before its event is past its lifetime, leaves the event behind
 * with event_leave(), and otherwise notes that it is gone with events_note_pruned().
 */
#ifndef LAPSE_ENGINE_EVENTLOG_H
#define LAPSE_ENGINE_EVENTLOG_H

#include <stdbool.h>

#include "base/buf.h"
#include "engine/events.h"
#include "store/db.h"

struct engine;

struct event_rows {
	enum event_kind kind;

	/* $1 after, $2 up to, $3 limit → sequence, time, owner, and more columns for write_data;
	 * in the order of the sequence, which is an id like that of every event; and the same
	 * with the newest first. */
	const struct db_stmt *stretch, *stretch_back;

	/* Appends the event's data, a JSON object. */
	void (*write_data)(const struct db_query *q, struct buf *out);
};

/* Lives until the function it was given to returns. */
struct event_row {
	int64_t seq;
	lapse_ms at;
	const char *owner, *kind;

	/* For event_row_data(). */
	const struct db_query *query;
	const struct event_rows *rows; /* NULL = a row of `events` */
	struct buf *scratch;
};

const char *event_row_data(const struct event_row *row);

typedef bool event_row_fn(void *arg, const struct event_row *row); /* false = enough */

/* Shows the events after `after` and up to `upto`, at most `limit`. *ret_end = everything up to it
 * was shown, or, with the newest first, everything from it on. On any connection; outside of a
 * transaction it makes one of its own. */
struct event_stretch {
	int64_t after, upto, limit;
	bool newest_first;
};
int eventlog_walk(const struct engine *e, struct db *db, const struct event_stretch *s,
		  event_row_fn *fn, void *arg, int64_t *ret_end);

#endif
