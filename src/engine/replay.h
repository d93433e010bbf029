/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading events back from the table, for readers whose cursor is older than the ring.
 *
 * The table has no index by owner: it would cost every event 1 µs (one owner) to 6 µs (a thousand)
 * and ten times the log, for readers that were away. Instead one run over a stretch of the
 * table serves all readers whose cursor is not before its start: after a restart all readers come
 * back with about the same cursor, and one pass is enough for all. A stretch is bounded in rows, a
 * reader's share in bytes; both go on with the next run.
 *
 * For a worker thread: uses the engine's reader connection under its lock and nothing else.
 */
#ifndef LAPSE_ENGINE_REPLAY_H
#define LAPSE_ENGINE_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define REPLAY_READERS 256
#define REPLAY_ROWS 20000 /* a few milliseconds */
#define REPLAY_PAGE_BYTES                                                                          \
	(32 << 10) /* a reader waits for its client with no more, and one event                    \
		    */

struct engine;

struct replay_reader {
	/* Asked for. */
	char *owner;     /* owned */
	bool engine_too; /* events of owner "" as well */
	int64_t cursor;  /* after it; then: everything up to it is in `text` */
	int64_t partial; /* the event of which `offset` bytes were read already; */
	size_t offset;   /* 0 = none */

	/* Found. */
	struct buf text;
	uint64_t events;
	int64_t hidden; /* its newest event that is past its lifetime; 0 = none */
	bool lost;      /* the partial event is gone */

	struct replay_reader *same; /* the next one with this owner */
	bool full;
	void *tag; /* the caller's */
};

struct replay {
	struct replay_reader readers[REPLAY_READERS];
	size_t count;
	int64_t from; /* the stretch begins after it */
	int64_t upto; /* nothing later may be shown yet */
	int64_t due;  /* everything up to here is past its lifetime, swept or not */
	int err;
};

void replay_run(struct engine *e, struct replay *r);
void replay_done(struct replay *r); /* frees what the readers own */

#endif
