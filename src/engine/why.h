/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why is this thing here, when will it go, or where did it go? The answer for one name that a
 * person has: an id, an agent, an address, a checksum, a key.
 *
 * Two sources: the rows of every bound that know the name, judged by the bound's own rule; and the
 * events that mention it. Events have no index by what they mention (engine/replay.h says what one
 * would cost), so they are walked, newest first, up to WHY_EVENTS_LOOKED.
 *
 * Legal order: why_begin() on the loop, why_look() on any thread, why_judge_all() and the reading
 * of the result on the loop, why_end() on the loop.
 */
#ifndef LAPSE_ENGINE_WHY_H
#define LAPSE_ENGINE_WHY_H

#include "engine/hold.h"
#include "engine/matrix.h"

#define WHY_QUERY_MAX 600         /* bytes; a key of four parts as JSON */
#define WHY_THINGS_MAX 32         /* rows; a name is rarely known to more than three bounds */
#define WHY_EVENTS_MAX 200        /* events of an answer */
#define WHY_EVENTS_LOOKED 1000000 /* about a second of a worker */

enum why_state {
	WHY_LIVE,       /* it goes at its deadline */
	WHY_DUE,        /* its deadline has passed, and nothing keeps it */
	WHY_HELD,       /* a hold keeps it */
	WHY_PROTECTED,  /* the bound's tests keep it: its safety rule */
	WHY_REFERENCED, /* other rows keep it */
	WHY_KEPT,       /* it has no deadline */
};

const char *why_state_name(enum why_state state);

/* What is known of a row. */
struct why_facts {
	lapse_ms time; /* what the window is counted from; LAPSE_NEVER = it has none */
	lapse_ms window;
	enum bound_op op;
	bool allowed;        /* by the bound's tests */
	bool referenced;     /* by rows that keep it */
	lapse_ms held_until; /* 0 = not held */
};

/* Pure. *ret_goes_at = when it goes, or went from being live to being due; LAPSE_NEVER =
 * it cannot be told. */
enum why_state why_judge(const struct why_facts *f, lapse_ms now, lapse_ms *ret_goes_at);

/* Whether the event's data names it: as a text of a member that says what the event is about.
 * `quoted` is the name as JSON writes it, with its quotes. */
bool why_mentions(const char *data, const char *quoted);

struct why_thing {
	const struct bound *bound;
	int64_t id;
	const char *key; /* as clients know it */
	const char **shown;
	struct why_facts facts;
	struct hold hold; /* meaningless unless facts.held_until */
	enum why_state state;
	lapse_ms goes_at;
};

struct why_event {
	int64_t seq;
	lapse_ms at;
	const char *kind, *data;
	bool inferred; /* it does not name the thing: it tells of the batch that must have held it
			*/
};

struct why {
	struct engine *engine;
	struct arena *arena; /* while a worker looks, it is the worker's */
	const char *owner, *query;
	bool engine_too; /* events of owner "", too */
	lapse_ms now;
	struct due_counts *bounds;

	struct why_thing things[WHY_THINGS_MAX];
	size_t things_count;
	struct why_event events[WHY_EVENTS_MAX + 1]; /* oldest first, once judged */
	size_t events_count;
	lapse_ms events_from; /* the oldest event that was looked at; LAPSE_NEVER = there is none */
	bool more_events;     /* older ones were left out */
	int err;
};

/* `owner` and `query` are borrowed until why_end(). */
void why_begin(struct why *w, struct engine *e, struct arena *arena, const char *owner,
	       const char *query, bool engine_too);
void why_look(struct why *w);
void why_judge_all(struct why *w);
void why_end(struct why *w);

/* One sentence for a person. */
void why_write_sentence(const struct why_thing *t, struct buf *out);

#endif
