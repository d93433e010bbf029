/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unread messages of inboxes, oldest first, and the counters of an inbox. One interface for all
 * operations of the room, so that none of them knows how the index is kept.
 *
 * An inbox has two halves: the rows of `messages_unread`, and after them the tail in memory
 * (message/tail.h), which message/filing.c turns into rows. On a store with several lanes there is
 * no tail. What is in either half decides whether a message is unread: unread_remove() is true once
 * for each message, and the caller then marks the row of `messages`.
 *
 * The counters are the row of `inboxes`, which leaves the tail out, plus the tail.
 */
#ifndef LAPSE_MESSAGE_UNREAD_H
#define LAPSE_MESSAGE_UNREAD_H

#include "engine/room.h"
#include "engine/tx.h"
#include "message/tail.h"

/* What lies in the room's slot. */
struct tail *tail_of(const struct engine *e);

/* Room for one more in the inbox. LAPSE_ELIMIT when it has unread_max_per_agent already, or when it
 * would be one inbox too many for its owner. */
int unread_admit(struct tx *tx, const char *owner, const char *agent, struct problem *p);

/* The message that unread_admit() was asked for, once its row is written. */
int unread_add(struct tx *tx, const char *owner, const char *agent, int64_t id, lapse_ms timestamp);

/* How many messages of an inbox were removed from each half. */
struct unread_removed {
	int64_t filed, tail;
};

/* 1 = the message was unread and is not any more, 0 = it was not. Adds to *sum. */
int unread_remove(struct tx *tx, const char *owner, const char *agent, int64_t id,
		  struct unread_removed *sum);

/* The same for those that were sent before `before`, oldest first: `ids` has room for `limit`. */
int unread_remove_before(struct tx *tx, const char *owner, const char *agent, lapse_ms before,
			 int64_t limit, int64_t *ids, int64_t *ret_n, struct unread_removed *sum);

/* Takes the removed ones off the counters. */
int unread_count_read(struct tx *tx, const char *owner, const char *agent,
		      const struct unread_removed *sum);

/* The tail alone. Ids of up to `limit` of its messages: those below `before`, newest first; and
 * those that no live claim holds, oldest first. */
int64_t unread_tail_newest(struct tx *tx, const char *owner, const char *agent, int64_t before,
			   int64_t limit, int64_t *ids);
int64_t unread_tail_offers(struct tx *tx, const char *owner, const char *agent, int64_t limit,
			   int64_t *ids);

/* The claim of a message, whose row the caller has written, now ends at `until`. */
void unread_claimed(struct tx *tx, const char *owner, const char *agent, int64_t id,
		    lapse_ms until);

/* When the earliest claim in the tail of the inbox ends; LAPSE_NEVER where there is none. */
lapse_ms unread_tail_next_offer(struct tx *tx, const char *owner, const char *agent);

/* How many are in the tail of the inbox, and when the oldest of them was sent. */
int64_t unread_tail_count(struct tx *tx, const char *owner, const char *agent,
			  lapse_ms *ret_oldest);

/* For the start: puts a message back into the tail. */
int unread_restore(struct tx *tx, const char *owner, const char *agent, const struct tail_entry *e);

/* For a change of owners, outside a transaction: reads the row's counter again. */
void unread_refresh(struct engine *e, struct tail_inbox *i);

/* The mark in `meta`: everything unread up to this id is a row. */
#define MESSAGES_FILED "messages_filed"

/* The rows of filing, without the memory: one of a message, and the counters of `n` of them. */
int unread_write(struct db *db, const struct tail_inbox *i, int64_t id);
int unread_write_count(struct db *db, const struct tail_inbox *i, int64_t n);

/* For filing in a transaction: moves up to `limit` messages of the inbox, not later than `upto`, to
 * the rows. */
int unread_file(struct tx *tx, struct tail_inbox *i, int64_t upto, int64_t limit, int64_t *ret_n);

/* For unread_add(), when the tail is full: files some in the caller's transaction. */
int filing_make_room(struct tx *tx);

#endif
