/* SPDX-License-Identifier: Apache-2.0 */
/* A row of `messages`, for the files of the room: its columns, and how much of an inbox one
 * statement may touch. */
#ifndef LAPSE_MESSAGE_ROW_H
#define LAPSE_MESSAGE_ROW_H

#include "message/message.h"

#define COLUMNS                                                                                    \
	"m.id, m.read, m.read_at, m.claim_id, m.claimed_until, m.timestamp, m.agent, m.sender, "   \
	"m.type, "                                                                                 \
	"m.metadata, m.content"

/* The same after RETURNING, where SQLite knows no alias. */
#define RETURNED                                                                                   \
	"id, read, read_at, claim_id, claimed_until, timestamp, agent, sender, type, metadata, "   \
	"content"

/* The unread messages of an inbox, $1 and $2, in the order of their ids. */
#define UNREAD                                                                                     \
	" FROM messages_unread AS u JOIN messages AS m ON m.id = u.id "                            \
	"WHERE u.owner = $1 AND u.agent = $2 "

struct message message_read_row(const struct db_query *q);
struct message message_keep_row(struct tx *tx, const struct db_query *q); /* in the arena */

/* The data of the event message.sent about `n` messages with one content. */
void message_write_sent(struct buf *out, const struct message *m, size_t n);

/* Messages that are their own events. */
extern const struct event_rows MESSAGE_EVENTS;

/* One message of an inbox. */
struct db_query message_find(struct tx *tx, const char *owner, const char *agent, int64_t id);

/* How many rows the next statement may touch. Rows may be as long as a body, so the first few are
 * taken alone; when they were short, so are most, and the rest comes at once. */
#define MESSAGE_FIRST_ROWS INT64_C(8)
int64_t message_next_rows(int64_t done, int64_t bytes, int64_t limit);

/* What a walk over an inbox has seen. */
struct message_walk {
	int64_t before, rows, bytes;
	message_fn *fn;
	void *arg;
};

void message_walk_show(struct message_walk *w, const struct message *m);

#endif
