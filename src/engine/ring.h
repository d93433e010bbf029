/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring: the newest events in memory, formatted once, for all readers that follow them live.
 *
 * It is one block of bytes used in a circle: an entry is a small header and the finished text of
 * one event, and the oldest entries make room for new ones. Positions only grow (the place in the
 * block is the remainder), so "is it still there" is one comparison and no reader has to be told
 * when something is overwritten.
 *
 * Who reads what. A fleet has a thousand owners with a stream each; if every stream walked over all
 * events, 50 000 events/s would be 50 000 000 looks per second. So the entries of one owner are a
 * chain: each knows the next and the previous one of its owner, and a map finds an owner's chain.
 *   - A new event costs one look into the map and one copy, and touches only readers of its own
 *     owner that have read everything and wait. Each of them is woken once, however many events
 *     follow before it reads.
 *   - A reader goes from entry to entry of its chain: it costs what it is sent. One that reads the
 *     engine's events too (owner "") merges two chains by their sequence.
 *   - Taking a place after a cursor walks the chain back from its newest entry, over exactly those
 *     entries that the reader is going to be sent.
 *   - A chain lives while it has entries or readers, so there are never more of them than that.
 *   - How far a reader is behind is the difference of two counters.
 * A reader whose next entry was overwritten is behind: it reads from the table (engine/replay.h)
 * and takes a place here when it has caught up.
 *
 * Order. An event must be seen only when it is durable, and readers rely on sequences that only
 * grow. But transactions can end in another order than they committed: while the log is synced for
 * one (http/turn.c), another commits and finishes. So every transaction holds the ring from its
 * commit to its end, and events are shown in their order once no transaction holds it. Removals
 * commit without a sync (tx_commit_lazy); their events may be seen before they are durable, as the
 * removal itself, which is found again and announced again after a power loss.
 *
 * Nobody reads. While there is no reader, texts are not even written: each event is left to the
 * table, and a reader that comes later with an older cursor gets it from there.
 *
 * One thread. A ring without memory (before ring_enable, or in a program without streams) keeps
 * nothing and costs nothing.
 */
#ifndef LAPSE_ENGINE_RING_H
#define LAPSE_ENGINE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"

struct ring {
	char *bytes; /* NULL = not enabled */
	size_t size;
	uint64_t head; /* where the next entry goes */
	uint64_t tail; /* the oldest entry; = head when there is none */
	uint64_t last; /* the newest entry; 0 = there is none */

	int64_t newest; /* sequence of the newest event that may be seen */
	int64_t floor;  /* everything after it, up to newest, is in the ring */
	int64_t pruned; /* events up to here may be gone from the table */

	struct map chains; /* owner → struct ring_chain */
	int readers;       /* from ring_join() to ring_leave() */
	int held;          /* transactions that have committed and not ended */
	struct ring_staged *staged;
	size_t staged_count, staged_room;
};

/* One reader's place in the chain of one owner. */
struct ring_place {
	struct list link; /* in the chain's list of readers that wait for its next event */
	struct ring_chain *chain;
	struct ring_reader *reader;
	uint64_t at; /* the entry to read next; 0 = it waits for one */
};

struct ring_reader {
	struct ring *ring;
	struct ring_place places[2]; /* its owner, and the engine where the reader may see it */
	int places_count;
	int64_t cursor;                      /* everything up to here was read */
	size_t offset;                       /* bytes read of the entry after it; 0 = none of it */
	int64_t partial;                     /* that entry's sequence, while offset is not 0 */
	uint64_t seen;                       /* events of its chains that it has read or given up */
	void (*wake)(struct ring_reader *r); /* there is something to read after RING_IDLE */
};

void ring_init(struct ring *r);
void ring_enable(struct ring *r, size_t size); /* gives it memory; before the first reader */
void ring_done(struct ring *r);                /* no reader may be left */

static inline bool ring_is_enabled(const struct ring *r)
{
	return r->bytes != NULL;
}

/* Whether the text of an event is wanted. */
static inline bool ring_is_followed(const struct ring *r)
{
	return r->readers > 0;
}

/* What the store knows at the start: nothing is in the ring. */
void ring_start(struct ring *r, int64_t newest, int64_t pruned);

/* Around the end of a transaction; see "Order". ring_add() is legal only in between; without a text
 * the event is left to the table. */
void ring_hold(struct ring *r);
void ring_release(struct ring *r);
void ring_add(struct ring *r, int64_t seq, const char *owner, const char *text, size_t n);

/* Drops events up to `seq`: they are past their lifetime. */
void ring_forget(struct ring *r, int64_t seq);

/* Joins with a cursor of the caller's choice and without a place: ring_seek() first. `wake` must
 * be set. */
void ring_join(struct ring *r, struct ring_reader *reader, const char *owner, bool engine_too);
void ring_leave(struct ring_reader *reader);

/* Takes the place after the cursor. False when the ring does not go back so far; the reader then
 * has no place and is not woken. */
bool ring_seek(struct ring_reader *reader);

enum ring_state {
	RING_MORE,   /* the buffer is full */
	RING_IDLE,   /* everything was read; wake() will be called */
	RING_BEHIND, /* what comes next was overwritten; the reader has lost its place */
};

/* Copies what is next to out[*n…max) and advances *n. An event that does not fit is split only
 * when the buffer is empty. */
enum ring_state ring_read(struct ring_reader *reader, char *out, size_t max, size_t *n);

/* How many events of its owner the reader has not read, counted from its first place. */
uint64_t ring_backlog(const struct ring_reader *reader);

/* Forgets the backlog: the reader goes on after the newest event. */
void ring_skip(struct ring_reader *reader);

#endif
