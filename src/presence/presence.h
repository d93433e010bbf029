/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agent presence: heartbeats, capabilities, and who is there. Seed 001.
 *
 * Memory comes first (presence/fleet.h): the heartbeat of an agent that is known, and says nothing
 * new, touches nothing else. Membership, cluster, capabilities and metadata are rows, written in
 * the caller's transaction; the memory follows by effects after the commit. Between the two the
 * memory may know a little less than the table, so whoever decides to remove an agent asks both.
 */
#ifndef LAPSE_PRESENCE_PRESENCE_H
#define LAPSE_PRESENCE_PRESENCE_H

#include "engine/tx.h"
#include "presence/fleet.h"

/* The memory. After an accepted leap of the clock nobody's silence is known any more: everybody
 * gets one threshold first. */
struct fleet *presence_fleet(struct engine *e);

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
 * there are agents_max already. One that is past its deadline is evicted first, and comes back
 * without its capabilities. */
int presence_beat(struct tx *tx, const char *owner, const struct beat *b, struct problem *p);

/* Whether a heartbeat of this known, live agent would change nothing but its time. */
bool presence_is_quiet(struct fleet *f, uint32_t i, const struct beat *b, lapse_ms now);

struct agent_view {
	const char *agent, *cluster;
	const char *capabilities; /* JSON */
	lapse_ms first_seen, last_seen;
	lapse_ms expires_at; /* when it will be gone unless it is heard of */
	bool suspect;
};

/* The view lives until fn returns; false = enough. */
typedef bool agent_fn(void *arg, const struct agent_view *v);

/* LAPSE_ENOTFOUND for one that is past its deadline, too. */
int presence_get(struct tx *tx, const char *owner, const char *agent, agent_fn *fn, void *arg);

struct agent_filter {
	const char *cluster, *capability; /* NULL = of any cluster, any capability */
	int64_t looks_max; /* rows to look at; what a filter leaves out counts, too */
};

/* Live agents after *after in the order of their names, until fn has enough. 1 = the looks are used
 * up: go on with *after, which is now in the arena. */
int presence_list(struct tx *tx, const char *owner, const struct agent_filter *filter,
		  struct arena *arena, const char **after, agent_fn *fn, void *arg);

/* Replaces the set; LAPSE_ENOTFOUND. */
int presence_set_capabilities(struct tx *tx, const char *owner, const char *agent,
			      const char *capabilities);

/* Removes the agent and its capabilities. LAPSE_ENOTFOUND; LAPSE_ECONFLICT while it is held. */
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

/* Evicts the agent with this index: rows, event, and by effect the memory, the log line and the
 * lag. 1 = evicted, 0 = it was not there any more. `lines` (from tx_alloc) keeps the log line for
 * an effect of the caller that flushes them all; NULL = it is written at once. */
int presence_evict(struct tx *tx, struct fleet *f, uint32_t i, lapse_ms now, struct buf *lines);

/* The same for agents that have no capabilities, all of them. After an error, LAPSE_ERETRY when a
 * row is not as the memory has it, the step is to be undone. */
int presence_evict_together(struct tx *tx, struct fleet *f, const uint32_t *agents, size_t n,
			    lapse_ms now, struct buf *lines);

/* For presence/leave.c and presence/evict.c. */

/* Brings the table of capabilities from one set of an agent, as JSON, to another. */
int presence_change_capabilities(struct tx *tx, const char *owner, const char *agent,
				 const char *from, const char *to);
int presence_is_held(struct tx *tx, const char *owner, const char *agent); /* 1 or 0 */

extern const struct bound AGENT_BOUND;

#endif
