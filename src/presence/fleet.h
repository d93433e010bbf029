/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet: every known agent in memory.
 *
 * An agent is one cache line, found through a hash table (seeded at random: names are hostile) and
 * linked into one list by its base, oldest first. A heartbeat moves it to the end, so the list is
 * the queue of deadlines and nothing is ever searched or sorted. What many agents have in common
 * (owner, cluster, capabilities) is a profile they share, and the profiles of one owner share its
 * breaker.
 *
 * Records live in slabs that never move; an agent is named by its index, 0 = none. A mark walks the
 * list as time passes: agents before it are silent, and each owner's number of them is always
 * known. Agents that are due and cannot be removed now (held, or the store refused) are parked in a
 * list of their own until fleet_unpark(), so that no check meets them again and again.
 *
 * Suspects are not here: they left the fleet at their deadline, see presence/suspect.c.
 *
 * `now` is trusted time and never goes back; one thread. Texts that callers get are borrowed.
 */
#ifndef LAPSE_PRESENCE_FLEET_H
#define LAPSE_PRESENCE_FLEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "presence/rules.h"

#define AGENT_NAME_INLINE 18 /* bytes with the NUL; longer names are on the heap */
#define SLAB_BITS 15
#define SLAB_AGENTS (1u << SLAB_BITS) /* 2 MiB of them, a huge page */

enum agent_flag {
	AGENT_SILENT = 1, /* the mark has passed it */
	AGENT_PARKED = 2,
	AGENT_HELD = 4,    /* parked because it is held */
	AGENT_OVERDUE = 8, /* was parked: it is due, and the breaker does not protect it */
	AGENT_UNTOLD = 16, /* it beat, and the other replicas were not told yet */
};

struct agent {
	uint32_t next, prev; /* in its list, in the order of base */
	uint32_t chain;      /* next of its bucket, or of the free ones */
	uint32_t hash;
	int64_t id;         /* of its row; 0 = a free record */
	lapse_ms last_seen; /* the last heartbeat */
	lapse_ms base;      /* what its silence counts from */
	uint32_t profile;
	uint8_t len; /* of the name */
	uint8_t flags;
	char name[AGENT_NAME_INLINE]; /* or a pointer, when len >= AGENT_NAME_INLINE */
};
_Static_assert(sizeof(struct agent) == 64, "an agent is one cache line");

/* An owner's breaker. It lives while the owner has agents, or while it is open. */
struct breaker {
	uint32_t magic;
	uint32_t refs; /* profiles, and one while it is open */
	struct map_node node;
	struct list link;    /* in fleet.open while it is open */
	uint32_t count;      /* live agents of the owner */
	uint32_t silent;     /* how many of them the mark has passed */
	uint32_t suspected;  /* agents that became suspects since it tripped */
	lapse_ms opened_at;  /* LAPSE_NEVER = closed */
	uint64_t asked_in;   /* the last check that asked it … */
	bool opened_for_now; /* … and whether it was open for that check: presence/evict.c */
	const char *owner;
};

struct profile {
	struct map_node node;
	uint32_t index, refs;
	struct breaker *breaker;
	size_t cluster_len, capabilities_len;
	const char *owner, *cluster;
	const char *capabilities; /* a JSON array, sorted */
	uint64_t metadata;        /* a hash of its JSON */
	bool plain;               /* the cluster is the same in JSON as it is */
	bool is_bare;             /* there are no capabilities */
};

/* What is kept about an agent beside its name and times. */
struct traits {
	const char *owner, *cluster, *capabilities;
	uint64_t metadata;
};

#define FLEET_MAGIC 0x4c464c54u

struct fleet {
	uint32_t magic;
	lapse_ms evict_after, silent_after;
	struct breaker_rule rule;

	struct agent **slabs;
	uint32_t slabs_count;
	uint32_t used; /* records handed out so far */
	uint32_t free; /* first free one, linked by `chain` */

	/* The hash table grows by two buckets for each agent that comes (linear hashing), so that
	 * no request waits for it to be rebuilt. Its mask is that of the next power of two. */
	uint32_t *buckets;
	uint32_t buckets_count, buckets_room;
	uint32_t mask;
	uint64_t seed;

	struct map profiles;
	struct profile **by_index;
	uint32_t *holes; /* indices of by_index that are free */
	uint32_t profiles_used, holes_count, profiles_cap;
	struct profile *last; /* the one used last, likely wanted again */

	uint32_t count, silent, parked;
	uint32_t mark;   /* the first agent that is not silent; 0 = all are */
	lapse_ms newest; /* the largest base given out: the list's order */

	struct map breakers; /* by owner */
	struct list open;    /* the open ones */
	int64_t open_count;  /* of them */
	uint64_t checks;     /* checks begun so far */

	int64_t leaps;   /* accepted leaps of the clock after which every agent got a new base */
	int64_t outages; /* of the store, after which live agents got one, too */
	int64_t suspect_leaps; /* and after which suspects got one more threshold, too */

	/* Writing down last_seen, now and then: presence/evict.c. */
	uint32_t flush_cursor;
	lapse_ms flushed_at, flush_started_at;
	lapse_us flush_next;

	/* In a cluster. An agent is due only by a time until which all heartbeats are known here,
	 * whichever replica took them. Agents that beat here are gathered until the next telling:
	 * presence/news.c. */
	lapse_ms known_through; /* LAPSE_NEVER = there are no others */
	bool gathering;
	uint32_t *untold;
	size_t untold_count, untold_room;

	lapse_us catch_up_next; /* no fleet_catch_up() before: presence/evict.c */
};

struct fleet *fleet_new(lapse_ms evict_after, lapse_ms check_ms, struct breaker_rule rule,
			lapse_ms now);
void fleet_free(struct fleet *f);                     /* takes NULL */
void fleet_reserve(struct fleet *f, uint32_t agents); /* while it is empty: saves growing */

static inline struct agent *fleet_at(const struct fleet *f, uint32_t i)
{
	return &f->slabs[i >> SLAB_BITS][i & (SLAB_AGENTS - 1)];
}

static inline const char *agent_name(const struct agent *a)
{
	return a->len < AGENT_NAME_INLINE ? a->name : *(char *const *)(const void *)(a->name + 2);
}

static inline const struct profile *fleet_profile(const struct fleet *f, uint32_t i)
{
	return f->by_index[fleet_at(f, i)->profile];
}

/* The time by which silence is judged. */
static inline lapse_ms fleet_time(const struct fleet *f, lapse_ms now)
{
	return now < f->known_through ? now : f->known_through;
}

/* The bucket where agents with this hash are. */
static inline uint32_t *fleet_bucket(const struct fleet *f, uint32_t hash)
{
	uint32_t b = hash & f->mask;

	return &f->buckets[b < f->buckets_count ? b : b & f->mask >> 1];
}

/* Looking up. A scope is an owner, prepared once for many names. */
struct scope {
	const char *owner;
	uint64_t seed;
};
struct scope fleet_scope(const struct fleet *f, const char *owner);
uint32_t fleet_hash(const struct scope *s, const char *name, size_t len);
uint32_t fleet_find_hashed(const struct fleet *f, const char *owner, const char *name, size_t len,
			   uint32_t hash);
uint32_t fleet_find(const struct fleet *f, const char *owner, const char *name);

/* A lookup waits for memory twice, with a large fleet for longer than it does anything. Both can be
 * asked for in advance, the second when the first has had the time to come. Macros: GCC takes a
 * function that only prefetches for one that does nothing, and leaves out its calls. */
#define FLEET_FETCH_BUCKET(f, hash) __builtin_prefetch(fleet_bucket(f, hash))
#define FLEET_FETCH_AGENT(f, hash) __builtin_prefetch(fleet_at(f, *fleet_bucket(f, hash)), 1)

/* Live agents of an owner. */
uint32_t fleet_count_of(const struct fleet *f, const char *owner);

/* Adds an agent that is not there. `base` is not before that of any other. */
uint32_t fleet_add(struct fleet *f, const char *name, const struct traits *t, int64_t id,
		   lapse_ms last_seen, lapse_ms base);
void fleet_remove(struct fleet *f, uint32_t i);
void fleet_set(struct fleet *f, uint32_t i, const struct traits *t);
void fleet_touch(struct fleet *f, uint32_t i, lapse_ms now); /* a heartbeat */
void fleet_hear(struct fleet *f, uint32_t i, lapse_ms at);   /* one that another replica took */

/* The agent of this name and id becomes another owner's; nothing when it is not there. Neither
 * owner's breaker is open. */
void fleet_move(struct fleet *f, const char *from, const char *to, const char *name, int64_t id);

/* Silence. */
lapse_ms fleet_deadline(const struct fleet *f); /* the earliest; LAPSE_NEVER = no agent */
uint32_t fleet_first(const struct fleet *f);    /* by base; 0 = no agent */
uint32_t fleet_next(const struct fleet *f, uint32_t i);

/* The breaker of the agent's owner. */
static inline struct breaker *fleet_breaker_of(const struct fleet *f, uint32_t i)
{
	return fleet_profile(f, i)->breaker;
}

/* What the breaker does next: moves the mark first. With `released` as if it were closed. */
enum breaker_step fleet_breaker(struct fleet *f, const struct breaker *b, bool released,
				lapse_ms now);
struct breaker *fleet_breaker_find(const struct fleet *f, const char *owner); /* NULL = none */
void fleet_trip(struct fleet *f, struct breaker *b, lapse_ms now);
void fleet_release(struct fleet *f, struct breaker *b); /* may free it */

/* What the deadline means for this agent now. Reads show it only with AGENT_STAYS. */
enum agent_fate fleet_fate(struct fleet *f, uint32_t i, lapse_ms now);

/* Moves the mark over some agents, which the next look of a breaker would otherwise do all at once.
 * False = there is nothing left to do now. Then fleet_silence_at() is the next moment at which
 * there is; LAPSE_NEVER = the fleet is empty. */
bool fleet_catch_up(struct fleet *f, lapse_ms now);
lapse_ms fleet_silence_at(const struct fleet *f);

/* Every agent gets one more threshold, as after a restart. */
void fleet_rebase(struct fleet *f, lapse_ms now);

/* The same for those that were not due at `since`: what came from them after that was lost. */
void fleet_spare(struct fleet *f, lapse_ms since, lapse_ms now);

void fleet_park(struct fleet *f, uint32_t i, bool held);
void fleet_unpark(struct fleet *f); /* all of them, to the front of the list */
uint32_t fleet_first_parked(const struct fleet *f);

#endif
