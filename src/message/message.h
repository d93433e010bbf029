/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between agents: the operations and their SQL. Seed 000.
 *
 * A message is pruned when it has been read and is more than message_ttl_ms old; unread ones are
 * bounded by refusal (unread_max_per_agent). Every operation runs inside the caller's transaction.
 */
#ifndef LAPSE_MESSAGE_MESSAGE_H
#define LAPSE_MESSAGE_MESSAGE_H

#include "engine/room.h"
#include "engine/tx.h"
#include "message/rules.h"

struct message {
	int64_t id;
	const char *to, *from, *content, *type;
	const char *metadata; /* JSON */
	lapse_ms timestamp;
	bool read;
	lapse_ms read_at;       /* meaningless while unread */
	int64_t claim_id;       /* CLAIM_NONE = never claimed */
	lapse_ms claimed_until; /* meaningless when never claimed */
};

/* The row lives until fn returns. */
typedef void message_fn(void *arg, const struct message *m);

/* Sends a draft to each of `to`, n distinct agents, dated now unless it has a timestamp: `sent` has
 * room for n messages and is filled. One event tells of all. LAPSE_ELIMIT when an inbox has too
 * many unread ones; then, as after any error, the caller gives up what was written. What waits
 * for an inbox is woken after the commit. */
int message_send(struct tx *tx, const char *owner, const struct message *draft,
		 const char *const *to, size_t n, struct message *sent, struct problem *p);

/* LAPSE_ENOTFOUND, or LAPSE_EEXPIRED for one past its lifetime that the sweep has not met yet. */
int message_get(struct tx *tx, const char *owner, const char *agent, int64_t id, message_fn *fn,
		void *arg);

/* Live messages with an id below `before`, newest first, at most `limit`, and at most one after
 * their contents have reached `max_bytes`. */
struct message_page {
	int64_t before, limit, max_bytes;
};
int message_list(struct tx *tx, const char *owner, const char *agent, bool unread_only,
		 const struct message_page *page, message_fn *fn, void *arg);

/* Marks one as read and gives it to fn; one that is read already stays as it is. `claim` is what
 * the caller holds, or CLAIM_NONE; LAPSE_ECONFLICT when the message has passed to another claim. */
int message_mark_read(struct tx *tx, const char *owner, const char *agent, int64_t id,
		      int64_t claim, message_fn *fn, void *arg);

/* Marks those of `ids` that are unread, until its time is over: a marked row is written anew,
 * however long it is. *ret_done of them were looked at, *ret_count were marked. */
int message_mark_ids(struct tx *tx, const char *owner, const char *agent, const int64_t *ids,
		     size_t n, size_t *ret_done, int64_t *ret_count);

/* Marks unread ones older than `before`, oldest first, at most `limit`, until its time is over.
 * *ret_more = there may be others. */
int message_mark_before(struct tx *tx, const char *owner, const char *agent, lapse_ms before,
			int64_t limit, int64_t *ret_count, bool *ret_more);

/* Leases up to `limit` unread messages that no live claim holds to `claim`, oldest first, until
 * their contents have reached `max_bytes`. */
int message_claim(struct tx *tx, const char *owner, const char *agent, int64_t claim,
		  lapse_ms until, int64_t limit, int64_t max_bytes, message_fn *fn, void *arg,
		  int64_t *ret_count);

/* Lets the claim of one unread message last until `until`; LAPSE_ECONFLICT when the message has
 * passed to another claim or is read. */
int message_extend(struct tx *tx, const char *owner, const char *agent, int64_t id, int64_t claim,
		   lapse_ms until);

/* When the earliest claim of the inbox ends; LAPSE_NEVER where there is none. */
int message_next_offer(struct tx *tx, const char *owner, const char *agent, lapse_ms *ret);

struct inbox {
	const char *agent;
	int64_t total, unread;
	lapse_ms oldest_unread; /* meaningless when unread is 0 */
};
typedef void inbox_fn(void *arg, const struct inbox *i);

/* Inboxes after `after` in the order of their names. */
int message_stats(struct tx *tx, const char *owner, const char *after, int64_t limit, inbox_fn *fn,
		  void *arg);

/* Unread messages of all owners, in two parts: those that are filed, for which it looks at every
 * inbox, for a worker; and those of the tail. */
int message_count_unread(struct db *db, int64_t *ret);
int64_t message_count_unfiled(const struct engine *e);

/* The key that message_send() wakes. Lives in the arena. */
const char *message_wait_key(struct arena *arena, const char *owner, const char *agent);

extern const struct bound_spec MESSAGE_BOUND;
extern const struct room MESSAGE_ROOM; /* the tail: message/filing.c */

#endif
