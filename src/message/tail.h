/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tail: unread messages that are in the table `messages` and not yet in `messages_unread`, by
 * inbox and oldest first. Memory only; message/unread.c keeps it in step with the store and
 * message/filing.c empties it.
 *
 * An inbox that has run empty stays, because the next message to it costs less then, as long as
 * there are not more inboxes than messages may be.
 *
 * An inbox is found by its name in a map, and inboxes follow each other by name in a skip list, the
 * order of the table they are filed into. A message that is removed is only hidden until its
 * transaction has committed (tail_tidy), so that a rollback can show it again.
 *
 * One thread, the loop's.
 */
#ifndef LAPSE_MESSAGE_TAIL_H
#define LAPSE_MESSAGE_TAIL_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"
#include "base/map.h"
#include "message/known.h"

#define TAIL_MAGIC 0x4c50544cu
#define TAIL_LEVELS 12 /* of the skip list: enough for 4^12 inboxes */
#define TAIL_NAME_BYTES (2 * ID_MAX_BYTES + 2)

struct tail_entry {
	int64_t id;
	lapse_ms timestamp;
	lapse_ms claimed_until; /* 0 = never claimed */
	bool hidden;
};

struct tail_inbox {
	struct map_node node; /* the key is owner, \1, agent */
	struct list dirty;    /* in the tail's list of inboxes that tail_tidy() must look at */
	const char *owner, *agent;
	int64_t filed_unread; /* as its row of `inboxes` says; 0 = it may have none by now */

	struct tail_entry *entries; /* by id */
	size_t count, room;         /* hidden ones included */
	size_t live;                /* without them */
	size_t first;               /* all before it are hidden */

	int levels;
	struct tail_inbox *next[]; /* the following inbox, on each level */
};

/* Filing goes through all inboxes once, then rests until the tail has grown again. */
struct tail_pass {
	bool running;
	int64_t upto;                /* messages up to this id are filed when it ends */
	char after[TAIL_NAME_BYTES]; /* inboxes up to this one were visited */
};

struct tail {
	uint32_t magic;
	int64_t max;   /* messages; 0 = there is no tail, and everything is filed at once */
	int64_t count; /* messages, hidden ones not included */
	int64_t bytes;
	int64_t newest; /* the largest id it has held */
	int64_t filed;  /* messages since the start */
	struct map inboxes;
	struct tail_inbox *heads[TAIL_LEVELS];
	struct list dirty;
	struct tail_pass pass;
	struct known known;  /* inboxes, where there is no tail */
	lapse_us rest_until; /* of the filing */
	uint32_t dice;
};

struct tail *tail_new(int64_t max);
void tail_free(struct tail *t); /* takes NULL */

struct tail_inbox *tail_find(const struct tail *t, const char *owner, const char *agent);
struct tail_inbox *tail_open(struct tail *t, const char *owner, const char *agent,
			     int64_t filed_unread);    /* it must be new */
void tail_close(struct tail *t, struct tail_inbox *i); /* it must be empty */

/* The first inbox after a name. */
struct tail_inbox *tail_after(const struct tail *t, const char *name);

/* Ids grow. tail_take_back() removes the last one, which was just added. */
void tail_add(struct tail *t, struct tail_inbox *i, const struct tail_entry *e);
void tail_take_back(struct tail *t, struct tail_inbox *i);

/* NULL = it is not there, or hidden. */
struct tail_entry *tail_entry_of(const struct tail_inbox *i, int64_t id);

void tail_hide(struct tail *t, struct tail_inbox *i, int64_t id);
void tail_show(struct tail *t, struct tail_inbox *i, int64_t id); /* takes tail_hide() back */

/* The oldest `n` are rows now. */
void tail_file(struct tail *t, struct tail_inbox *i, size_t n);

/* Forgets what is hidden; closes inboxes that are empty and too many. Not while something may be
 * undone. */
void tail_tidy(struct tail *t);

#endif
