/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agent presence: heartbeats, capabilities, and who is there. Seed 001.
 *
 * Memory comes first (presence/fleet.h): the heartbeat of an agent that is known, and says nothing
 * new, touches nothing else. Membership, cluster, capabilities and metadata are rows, written in
 * the caller's transaction; the memory follows by effects after the commit. Between the two the
 * memory may know a little less than the table, so the code that removes an agent asks both.
 */
#ifndef LAPSE_PRESENCE_PRESENCE_H
#define LAPSE_PRESENCE_PRESENCE_H

#include <assert.h>

#include "engine/engine.h"
#include "engine/tx.h"
#include "presence/fleet.h"

/* The memory. After an accepted leap of the clock no agent's silence is known any more: each gets
 * one threshold first. */
struct fleet *presence_fleet(struct engine *e);

/* The same as it is. */
static inline struct fleet *fleet_of(const struct engine *e)
{
	struct fleet *f = engine_room(e, ROOM_PRESENCE);

	assert(f && f->magic == FLEET_MAGIC);
	return f;
}

struct beat {
	const char *agent, *cluster;
	const char *capabilities; /* from presence_pack(); NULL = as they are */
	const char *metadata;     /* a JSON object; NULL = as it is */
};

/* The JSON of a set of capabilities, the same for the same set; sorts `names`. In the arena. */
const char *presence_pack(struct arena *arena, const char **names, size_t n);

/* A hash of metadata's JSON, as a profile holds it. */
uint64_t presence_metadata_hash(const char *json);

/* A heartbeat: registers the agent or notes what changed, and that it was seen. LAPSE_ELIMIT when
 * there are agents_max already. An agent past its deadline is evicted first, and comes back without
 * its capabilities; a suspect comes back with them. */
int presence_beat(struct tx *tx, const char *owner, const struct beat *b, struct problem *p);

/* Whether a heartbeat of this known, live agent would change nothing but its time. */
bool presence_is_quiet(struct fleet *f, uint32_t i, const struct beat *b, lapse_ms now);

struct agent_view {
	const char *agent, *cluster;
	const char *capabilities; /* JSON */
	lapse_ms first_seen, last_seen;
	lapse_ms expires_at; /* when it will be gone, or a suspect's record, without a heartbeat */
	bool suspect;
};

/* The view lives until fn returns; false = enough. */
typedef bool agent_fn(void *arg, const struct agent_view *v);

/* LAPSE_ENOTFOUND for an agent past its deadline, too; suspects only with `include_suspect`. */
int presence_get(struct tx *tx, const char *owner, const char *agent, bool include_suspect,
		 agent_fn *fn, void *arg);

struct agent_filter {
	const char *cluster, *capability; /* NULL = of any cluster, any capability */
	bool include_suspect;
	int64_t looks_max; /* rows to look at; what a filter leaves out counts, too */
};

/* Live agents after *after in the order of their names, until fn has enough. 1 = the looks are used
 * up: go on with *after, which is now in the arena. */
int presence_list(struct tx *tx, const char *owner, const struct agent_filter *filter,
		  struct arena *arena, const char **after, agent_fn *fn, void *arg);

/* Replaces the set; LAPSE_ENOTFOUND. */
int presence_set_capabilities(struct tx *tx, const char *owner, const char *agent,
			      const char *capabilities);

/* Removes the agent and its capabilities, or a suspect's record. LAPSE_ENOTFOUND; LAPSE_ECONFLICT
 * while it is held. */
int presence_delete(struct tx *tx, const char *owner, const char *agent);

/* Capabilities after `after` that live agents have, in the order of their names. The names of up to
 * `names_max` agents follow each through `name_fn`. */
struct capability_reader {
	bool (*begin)(void *arg, const char *capability, int64_t agents); /* false = enough */
	void (*name)(void *arg, const char *agent);
	void (*end)(void *arg);
	void *arg;
	int64_t names_max;
};
int presence_capabilities(struct tx *tx, const char *owner, const char *after,
			  const struct capability_reader *r);

/* Leaving: presence/leave.c. */

/* Removes the rows of the agent, with this id and not seen since `cutoff`. 1 = done, 0 = there is
 * no such row (any more). */
int presence_remove_rows(struct tx *tx, int64_t id, const char *owner, const char *agent,
			 lapse_ms cutoff);
int presence_announce(struct tx *tx, enum event_kind kind, const char *owner, const char *agent,
		      const char *cluster, lapse_ms last_seen);

/* The memory forgets the agent once the transaction has committed. */
void presence_forget(struct tx *tx, int64_t id, const char *owner, const char *agent);

/* The agent with this index leaves, evicted or suspected: rows, event, and by effect the memory,
 * the log line and the lag. 1 = it left, 0 = its row was gone before. `lines` (from tx_alloc) keeps
 * the log line for an effect of the caller that flushes them all; NULL = it is written at once. */
int presence_leave(struct tx *tx, struct fleet *f, uint32_t i, enum agent_fate fate, lapse_ms now,
		   struct buf *lines);

/* The same for agents that have no capabilities, all of them. After an error the step must be
 * undone; LAPSE_ERETRY = a row is not as the memory has it. */
int presence_leave_together(struct tx *tx, struct fleet *f, const uint32_t *agents, size_t n,
			    enum agent_fate fate, lapse_ms now, struct buf *lines);

/* The event and the log line of a suspect whose record is removed: now it is evicted. */
int presence_end_suspect(struct tx *tx, const char *owner, const char *agent, const char *cluster,
			 lapse_ms last_seen);

/* For presence/leave.c and presence/evict.c. */

/* Brings the table of capabilities from one set of an agent, as JSON, to another. */
int presence_change_capabilities(struct tx *tx, const char *owner, const char *agent,
				 const char *from, const char *to);
int presence_is_held(struct tx *tx, const char *owner, const char *agent); /* 1 or 0 */

/* In a cluster: presence/news.c. Tells the others that the row of the agent has come, changed or
 * gone, and perhaps that it was heard of; the rest as in engine/room.h. */
#define PRESENCE_UNPARK "unpark" /* news: agents may be held no longer */
void presence_tell(struct tx *tx, const char *owner, const char *agent, bool heard);
int presence_news(struct tx *tx, const char *topic, const char *key, lapse_ms at);
int presence_tell_beats(struct tx *tx);

/* See engine/room.h. */
int presence_owner_movable(struct engine *e, const char *from, const char *to, struct problem *p);

extern const struct bound_spec AGENT_BOUND;
extern const struct room PRESENCE_ROOM;

#endif
