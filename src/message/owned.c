/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of one owner become another's: engine/adopt.h. Unread ones and read ones have an index
 * each, and move apart. */
#include "engine/adopt.h"
#include "message/message.h"

#define UNREAD                                                                                     \
	"(SELECT agent, id FROM messages_unread WHERE owner = $1 ORDER BY agent, id LIMIT $2)"
#define SEEN                                                                                       \
	"(SELECT agent, id FROM messages WHERE owner = $1 AND read = 1 ORDER BY agent, id LIMIT "  \
	"$2)"

/* `unread`: what stands for the unread ones among the chosen rows. */
#define ADD_TO_INBOXES(chosen, unread)                                                             \
	"INSERT INTO inboxes (owner, agent, total, unread) "                                       \
	"SELECT $3, p.agent, count(*), " unread " FROM " chosen " AS p GROUP BY p.agent "          \
	"ON CONFLICT (owner, agent) DO UPDATE SET total = inboxes.total + excluded.total, "        \
	"unread = inboxes.unread + excluded.unread"
#define TAKE_FROM_INBOXES(chosen, unread)                                                          \
	"UPDATE inboxes SET total = inboxes.total - n.total, unread = inboxes.unread - n.unread "  \
	"FROM (SELECT p.agent, count(*) AS total, " unread " AS unread FROM " chosen               \
	" AS p GROUP BY p.agent) AS n WHERE inboxes.owner = $1 AND inboxes.agent = n.agent"
#define DROP_EMPTY_INBOXES(chosen)                                                                 \
	"DELETE FROM inboxes WHERE owner = $1 AND total = 0 AND agent IN "                         \
	"(SELECT p.agent FROM " chosen " AS p)"

static const struct db_stmt ADD_UNREAD = { ADD_TO_INBOXES(UNREAD, "count(*)") };
static const struct db_stmt TAKE_UNREAD = { TAKE_FROM_INBOXES(UNREAD, "count(*)") };
static const struct db_stmt DROP_AFTER_UNREAD = { DROP_EMPTY_INBOXES(UNREAD) };
static const struct db_stmt MOVE_UNREAD = {
	"UPDATE messages SET owner = $3 WHERE id IN (SELECT p.id FROM " UNREAD " AS p)"
};
static const struct db_stmt MOVE_UNREAD_INDEX = {
	"UPDATE messages_unread SET owner = $3 WHERE owner = $1 AND (agent, id) IN " UNREAD
};

static const struct db_stmt ADD_SEEN = { ADD_TO_INBOXES(SEEN, "0") };
static const struct db_stmt TAKE_SEEN = { TAKE_FROM_INBOXES(SEEN, "0") };
static const struct db_stmt DROP_AFTER_SEEN = { DROP_EMPTY_INBOXES(SEEN) };
static const struct db_stmt MOVE_SEEN = {
	"UPDATE messages SET owner = $3 WHERE id IN (SELECT p.id FROM " SEEN " AS p)"
};

static const struct owned_step UNREAD_SLICE[] = {
	{ &ADD_UNREAD, NULL },        { &TAKE_UNREAD, NULL },       { &DROP_AFTER_UNREAD, NULL },
	{ &MOVE_UNREAD, "messages" }, { &MOVE_UNREAD_INDEX, NULL }, { 0 },
};
static const struct owned_step SEEN_SLICE[] = {
	{ &ADD_SEEN, NULL },
	{ &TAKE_SEEN, NULL },
	{ &DROP_AFTER_SEEN, NULL },
	{ &MOVE_SEEN, "messages" },
	{ 0 },
};

/* Two inboxes of one name became one on the way, so they are counted at the end. Stored bytes move
 * with the other counters of table_counts. */
static const struct db_stmt COUNT_INBOXES = {
	"INSERT INTO table_counts (owner, tbl, live) SELECT $2, 'inboxes', count(*) FROM inboxes "
	"WHERE owner = $2 AND owner <> $1 "
	"ON CONFLICT (owner, tbl) DO UPDATE SET live = excluded.live"
};
static const struct db_stmt DROP_INBOX_COUNT = {
	"DELETE FROM table_counts WHERE owner = $1 AND tbl = 'inboxes'"
};

const struct owned MESSAGE_OWNED[] = {
	{ .table = "messages_unread", .slice = UNREAD_SLICE, .slice_rows = 200 },
	{ .table = "messages", .slice = SEEN_SLICE, .slice_rows = 200 },
	{ .table = "inboxes", .move = &COUNT_INBOXES, .drop = &DROP_INBOX_COUNT },
	{ 0 },
};
