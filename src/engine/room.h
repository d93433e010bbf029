/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A room as the engine sees it: a slot for what it keeps in memory, and the moments at which it
 * wants to be called. The engine knows neither what lies in a slot nor what a room does.
 *
 * To add a room that keeps something in memory: 1. its slot in enum room_id; 2. a `const struct
 * room` in its folder, and a function that returns engine_room() as the type it is; 3. its line in
 * src/rooms.c.
 */
#ifndef LAPSE_ENGINE_ROOM_H
#define LAPSE_ENGINE_ROOM_H

#include "base/clock.h"

enum room_id {
	ROOM_API,
	ROOM_PRESENCE,
	ROOM_MAILBOX,
	ROOM_ATTACHMENT,
	ROOM_WEBHOOK,
	ROOM_CONTRACT,
	ROOM_MESSAGE,
	ROOMS_COUNT
};

struct tx;
struct engine;
struct buf;
struct problem;
struct event_rows;

/* All functions run on the loop's thread. Only `load` and `done` must be there. */
struct room {
	enum room_id id;

	/* Once, when the engine opens: fills the slot (engine_set_room) from the store. */
	int (*load)(struct tx *tx);

	/* What there is to do, when next_us() says so. INT64_MAX = nothing until something else
	 * happens; 0 = now. */
	void (*tick)(struct engine *e);
	lapse_us (*next_us)(const struct engine *e);

	/* At a clean stop, before `done`. */
	void (*stop)(struct engine *e);

	/* At the end: frees the slot, which is empty when load() was never called. */
	void (*done)(struct engine *e);

	/* Everything of one owner becomes another's (engine/adopt.h). Whether that is possible now,
	 * with the reason if it is not; in each of its transactions, before rows move (TX_AGAIN:
	 * commit, and ask again in the next one); and, as soon as they have moved, the memory's
	 * part. `whole`: it was the last transaction. */
	int (*owner_movable)(struct engine *e, const char *from, const char *to, struct problem *p);
	int (*owner_moves)(struct tx *tx, const char *from, const char *to);
	void (*owner_moved)(struct engine *e, const char *from, const char *to, bool whole);

	void (*write_metrics)(const struct engine *e, struct buf *out);

	/* In a cluster (engine/cluster.h). `news`: another replica has changed something, told with
	 * this topic and key; the transaction may only read. `tell`: what the room gathers for the
	 * others, every second or so. `replica_gone`: what a replica had under way is void. */
	int (*news)(struct tx *tx, const char *topic, const char *key, lapse_ms at);
	int (*tell)(struct tx *tx);
	int (*replica_gone)(struct tx *tx, int64_t number);

	/* Its rows that are events themselves (engine/eventlog.h). */
	const struct event_rows *events;
};

#endif
