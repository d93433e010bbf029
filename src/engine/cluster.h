/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster: several processes, the replicas, that share one PostgreSQL database. Each serves every
 * request; each has a row in `replicas`, and its number in the lowest bits of the ids it makes.
 *
 * Turns. One replica writes at a time: a write transaction begins with a lock that the database
 * hands on in order (store/postgres/db.h), and frees when the commit can be seen. So the rule of
 * one machine, one thread owns the state, holds for the whole cluster. Ids and sequences of events
 * grow in the order of the commits, on whichever replica they are made. Reads, and heartbeats of
 * known agents, need no turn.
 *
 * Memory. What a replica keeps in memory and another one changes comes through the table `changes`:
 * the replica that changes something tells (cluster_tell) in the transaction that changes it, and
 * all others apply it in the order of the commits: before their own next turn, so that a write
 * never decides by old memory; and within POLL_US, so that streams, long polls and tokens follow. A
 * replica that has not looked for TRUST_US answers nothing from its memory. A replica that is alone
 * tells nothing.
 *
 * Leases. Each replica renews its row every second or so, and tells of the heartbeats it took until
 * then (`flushed_through`). One whose lease ran out is left out by another one: its row says so,
 * and since every write transaction looks at its own row first, it can write nothing more. It ends
 * with a clear message, and a service manager starts it anew, with everything read from the store.
 *
 * Schedulers. One lease each, with a fencing token that every deleting transaction checks
 * (cluster_fence). Replicas share the schedulers evenly; a lease that is not renewed is taken over.
 *
 * Failure. Without the database a replica answers 503, except that it takes heartbeats of known
 * agents for one threshold after it last renewed its lease (cluster_takes_beats). When the database
 * is back, agents get one more threshold, since their heartbeats may have been refused; so they do
 * when a replica was left out, once it cannot take heartbeats any more.
 */
#ifndef LAPSE_ENGINE_CLUSTER_H
#define LAPSE_ENGINE_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/events.h"

struct engine;
struct tx;
struct buf;

#define CLUSTER_LEASES_MAX 80
#define CLUSTER_SWEPT "swept"       /* news: this scheduler has swept */
#define CLUSTER_SILENCE "silence"   /* news: heartbeats may have been lost */
#define CLUSTER_WEBHOOKS "webhooks" /* the lease of the replica that posts webhooks */

/* The lease of a scheduler, as this replica last saw it. */
struct lead {
	char name[64];
	int64_t token;
	bool mine;
};

struct cluster {
	bool on;
	bool lost;    /* this replica was left out: it must end */
	bool looking; /* it applies what others have changed */
	int64_t incarnation;
	int64_t heard;          /* the last change it knows */
	int64_t told;           /* changes that the transaction under way has told of */
	bool has_news;          /* and whether others must hear of its events */
	bool unsure;            /* a transaction may have committed or not, or a look failed half
				 * way: look at everything */
	int64_t own_seq;        /* the newest event of its own that is in the ring */
	int64_t events_after;   /* events up to here are in the ring */
	int64_t others;         /* live replicas beside this one */
	lapse_ms flushed;       /* the least flushed-through time of the others; LAPSE_NEVER */
	lapse_ms lost_flushed;  /* of those left out that may still take heartbeats; LAPSE_NEVER */
	int64_t lost_open;      /* how many they are */
	lapse_us synced;        /* monotonic: when it last looked */
	lapse_us renewed;       /* monotonic: when its lease was last renewed */
	lapse_us contact_since; /* monotonic: since when it could renew without a gap */
	lapse_us next_renew, next_sync;
	struct lead leases[CLUSTER_LEASES_MAX];
	size_t leases_count;
};

/* In the transaction that loads the engine, first of all: takes a number where the settings want a
 * cluster. */
int cluster_join(struct tx *tx, struct problem *p);
int cluster_joined(struct tx *tx);    /* last of all in it */
void cluster_leave(struct engine *e); /* at a clean end */

void cluster_tick(struct engine *e);
lapse_us cluster_next_us(const struct engine *e);

/* For engine/tx.c: at the begin of a write transaction, before its commit and after it. */
int cluster_begin_turn(struct tx *tx);
int cluster_end_turn(struct tx *tx);
void cluster_turn_over(struct engine *e, int err);

/* Tells the other replicas of a change; each room gets it through its news(). */
int cluster_tell(struct tx *tx, const char *topic, const char *key);

/* The same for an event, which they read from the store; and that ours with this sequence is in the
 * ring. */
void cluster_tell_event(struct tx *tx);
void cluster_note_event(struct engine *e, int64_t seq);

/* Whether other replicas must hear of changes. */
static inline bool cluster_has_others(const struct cluster *c)
{
	return c->on && c->others > 0;
}

/* The time until which the heartbeats of all replicas are known here; LAPSE_NEVER = no other one
 * takes any. */
static inline lapse_ms cluster_known_through(const struct cluster *c)
{
	if (!c->on)
		return LAPSE_NEVER;
	return c->flushed < c->lost_flushed ? c->flushed : c->lost_flushed;
}

/* Before anything is answered from memory: looks where that was too long ago. LAPSE_EUNAVAILABLE:
 * the memory may be old, and the store cannot be asked. */
int cluster_refresh(struct engine *e);
bool cluster_is_current(const struct engine *e); /* it has looked just now */

/* Whether heartbeats of known agents may be answered from a memory that is not current. */
bool cluster_takes_beats(const struct engine *e);

/* Looks now, for a caller who may have seen more on another replica. */
int cluster_catch_up(struct engine *e);

/* Whether another live replica has this number. */
int cluster_is_live(struct tx *tx, int64_t number); /* 1 or 0 */

/* Leases: engine/cluster_lease.c. Outside a cluster the only process leads everything. */
bool cluster_leads(const struct engine *e, const char *scheduler);

/* In a transaction that removes: LAPSE_ECONFLICT = the lease has moved. */
int cluster_fence(struct tx *tx, const char *scheduler);

/* Takes the lease from its holder, for a sweep that a person asked this replica for. */
int cluster_seize(struct engine *e, const char *scheduler);

/* Between engine/cluster.c, cluster_join.c and cluster_lease.c. */
enum replica_state { REPLICA_EXPELLED = -1, REPLICA_STOPPED = 0, REPLICA_ALIVE = 1 };
#define CLUSTER_NUMBERS_MAX 255
int cluster_announce(struct tx *tx, enum event_kind kind, int64_t number, const char *why);
int cluster_clear_after(struct tx *tx, int64_t number);
int cluster_set_state(struct tx *tx, int64_t number, enum replica_state state);
int cluster_tell_rooms(struct tx *tx);
int cluster_share_leases(struct tx *tx);
int cluster_drop_leases(struct tx *tx, int64_t replica);
lapse_ms cluster_lease_ms(const struct engine *e);

/* A replica that was left out may still take heartbeats if its flushed-through time is later. */
lapse_ms cluster_window_start(const struct engine *e, lapse_ms now);
int cluster_write_led(struct tx *tx, int64_t replica, struct buf *out);

/* What an admin sees of the replicas and of the leases; JSON, in a read transaction. */
int cluster_write_json(struct tx *tx, struct buf *out);
void cluster_write_metrics(const struct engine *e, struct buf *out);

#endif
