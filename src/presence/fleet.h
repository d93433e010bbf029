/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet: every known agent in memory.
 *
 * An agent is one cache line, found through a hash table (seeded at random: names are hostile) and
 * linked into one list by its base, oldest first. A heartbeat moves it to the end, so the list is
 * the queue of deadlines and nothing is ever searched or sorted. What many agents have in common
 * (owner, cluster, capabilities) is a profile they share.
 *
 * Records live in slabs that never move; an agent is named by its index, 0 = none. A mark walks the
 * list as time passes: those before it have been silent for long, and their number is always known.
 * Agents that are due and cannot be removed now (held, or the store refused) are parked in a list
 * of their own until fleet_unpark(), so that no check meets them again and again.
 *
 * `now` is trusted time and never goes back; one thread. Who is given a text borrows it.
 */
#ifndef LAPSE_PRESENCE_FLEET_H
#define LAPSE_PRESENCE_FLEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/map.h"
#include "presence/rules.h"

#define AGENT_NAME_INLINE 18 /* bytes with the NUL; longer names are on the heap */
#define SLAB_BITS 15
#define SLAB_AGENTS (1u << SLAB_BITS) /* 2 MiB of them, a huge page */

enum agent_flag {
	AGENT_SUSPECT = 1,
	AGENT_SILENT = 2, /* the mark has passed it, and it is no suspect */
	AGENT_PARKED = 4,
	AGENT_HELD = 8,     /* parked because it is held */
	AGENT_OVERDUE = 16, /* was parked: it is due, and had its chance */
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

struct profile {
	struct map_node node;
	uint32_t index, refs;
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

struct fleet {
	lapse_ms evict_after, silent_after;

	struct agent **slabs;
	uint32_t slabs_count;
	uint32_t used; /* records handed out so far */
	uint32_t free; /* first free one, linked by `chain` */

	/* The hash table grows by two buckets for each agent that comes (linear hashing), so that
	 * nobody waits for it to be rebuilt. Its mask is that of the next power of two. */
	uint32_t *buckets;
	uint32_t buckets_count, buckets_room;
	uint32_t mask;
	uint64_t seed;

	struct map profiles;
	struct profile **by_index;
	uint32_t *holes; /* indices of by_index that are free */
	uint32_t profiles_used, holes_count, profiles_cap;
	struct profile *last; /* the one used last, likely wanted again */

	uint32_t count, suspects, silent, parked;
	uint32_t mark;      /* the first agent that is not silent; 0 = all are */
	lapse_ms newest;    /* the largest base given out: the list's order */
	lapse_ms opened_at; /* of the breaker; LAPSE_NEVER = closed */
	bool tripping;      /* it is open, and the silent ones are still to become suspects */

	int64_t leaps; /* accepted leaps of the clock after which everybody got a new base */

	/* Writing down last_seen, now and then: presence/evict.c. */
	uint32_t flush_cursor;
	lapse_ms flushed_at, flush_started_at;
	lapse_us flush_next;

	lapse_us catch_up_next; /* no fleet_catch_up() before: presence/evict.c */
};

struct fleet *fleet_new(lapse_ms evict_after, lapse_ms check_ms, lapse_ms now);
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

/* Adds an agent that is not there. `base` is not before that of any other. */
uint32_t fleet_add(struct fleet *f, const char *name, const struct traits *t, int64_t id,
		   lapse_ms last_seen, lapse_ms base);
void fleet_remove(struct fleet *f, uint32_t i);
void fleet_set(struct fleet *f, uint32_t i, const struct traits *t);
void fleet_touch(struct fleet *f, uint32_t i, lapse_ms now); /* a heartbeat */

/* Silence. */
lapse_ms fleet_deadline(const struct fleet *f); /* the earliest; LAPSE_NEVER = nobody */
uint32_t fleet_first(const struct fleet *f);    /* by base; 0 = nobody */
uint32_t fleet_next(const struct fleet *f, uint32_t i);
enum breaker_step fleet_breaker(struct fleet *f, lapse_ms now);          /* moves the mark */
enum breaker_step fleet_breaker_released(struct fleet *f, lapse_ms now); /* as if it were closed */

/* Whether reads show the agent: AGENT_STAYS, AGENT_SUSPECTED (shown, as such), AGENT_EVICTED. */
enum agent_fate fleet_fate(struct fleet *f, uint32_t i, lapse_ms now);

/* Opens the breaker: everyone who is silent becomes a suspect and gets one more threshold; the
 * first few at once, the others with fleet_catch_up(), since a million of them take a tenth of a
 * second. And one alone; and closing it. */
void fleet_trip(struct fleet *f, lapse_ms now);
void fleet_suspect(struct fleet *f, uint32_t i, lapse_ms now);
void fleet_release(struct fleet *f);
uint32_t fleet_suspects(const struct fleet *f); /* with those that are still to become suspects */

/* Moves the mark, or makes suspects, of some agents: what would otherwise be done at the next look
 * of the breaker, all at once. False = there is nothing left to do now. Then fleet_silence_at() is
 * the next moment at which there is; LAPSE_NEVER = there is nobody. */
bool fleet_catch_up(struct fleet *f, lapse_ms now);
lapse_ms fleet_silence_at(const struct fleet *f);

/* Everybody gets one more threshold, as after a restart. */
void fleet_rebase(struct fleet *f, lapse_ms now);

void fleet_park(struct fleet *f, uint32_t i, bool held);
void fleet_unpark(struct fleet *f); /* all of them, to the front of the list */
uint32_t fleet_first_parked(const struct fleet *f);

#endif
