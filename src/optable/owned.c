/* SPDX-License-Identifier: Apache-2.0 */
/* Operational tables of one owner become another's: engine/adopt.h.
 *
 * Rows of the outbox move oldest first. A consumer that read past rows that follow later would
 * never see them, so while they move, the owner that gets them is shown what lies before the first
 * row still to come, and the owner that had them is shown nothing: outbox_moving. It outlives a
 * crash, and goes with the next adoption of the same rows.
 */
#include "engine/adopt.h"
#include "optable/optable.h"

/* Of the rows that a slice has chosen: how many each table has, for both owners' counters. */
#define ADD_COUNTS(chosen)                                                                         \
	"INSERT INTO table_counts (owner, tbl, live) "                                             \
	"SELECT $3, p.tbl, count(*) FROM " chosen " AS p GROUP BY p.tbl "                          \
	"ON CONFLICT (owner, tbl) DO UPDATE SET live = table_counts.live + excluded.live"
#define TAKE_COUNTS(chosen)                                                                        \
	"UPDATE table_counts SET live = table_counts.live - n.live "                               \
	"FROM (SELECT p.tbl, count(*) AS live FROM " chosen " AS p GROUP BY p.tbl) AS n "          \
	"WHERE table_counts.owner = $1 AND table_counts.tbl = n.tbl"
#define MOVE_CHOSEN(table, chosen)                                                                 \
	"UPDATE " table " SET owner = $3 WHERE id IN (SELECT p.id FROM " chosen " AS p)"

#define ENTRIES "(SELECT id, tbl FROM entries WHERE owner = $1 ORDER BY tbl, key LIMIT $2)"
#define QUEUED                                                                                     \
	"(SELECT id, tbl FROM queue_items WHERE owner = $1 ORDER BY tbl, status, id LIMIT $2)"
#define SEEN_KEYS                                                                                  \
	"(SELECT id, 'channel_inbound_dedupe' AS tbl FROM channel_inbound_dedupe "                 \
	"WHERE owner = $1 ORDER BY channel, account_id, container_id, message_id LIMIT $2)"

#define LOGGED "(SELECT id, 'outbox' AS tbl FROM outbox WHERE owner = $1 ORDER BY id LIMIT $2)"

static const struct db_stmt DROP_ZERO_COUNTS = {
	"DELETE FROM table_counts WHERE owner = $1 AND live = 0"
};

static const struct db_stmt CLASH_LEASES = {
	"SELECT a.key FROM leases a JOIN leases b ON b.tbl = a.tbl AND b.key = a.key "
	"WHERE a.owner = $1 AND b.owner = $2 LIMIT 1"
};
static const struct db_stmt MOVE_LEASES = { "UPDATE leases SET owner = $2 WHERE owner = $1" };
static const struct db_stmt CLASH_ENTRIES = {
	"SELECT a.key FROM entries a JOIN entries b ON b.tbl = a.tbl AND b.key = a.key "
	"WHERE a.owner = $1 AND b.owner = $2 LIMIT 1"
};
static const struct db_stmt ADD_ENTRIES = { ADD_COUNTS(ENTRIES) };
static const struct db_stmt TAKE_ENTRIES = { TAKE_COUNTS(ENTRIES) };
static const struct db_stmt MOVE_ENTRIES = { MOVE_CHOSEN("entries", ENTRIES) };
static const struct db_stmt CLASH_DEDUPE = {
	"SELECT a.message_id FROM channel_inbound_dedupe a JOIN channel_inbound_dedupe b "
	"ON b.channel = a.channel AND b.account_id = a.account_id "
	"AND b.container_id = a.container_id AND b.message_id = a.message_id "
	"WHERE a.owner = $1 AND b.owner = $2 LIMIT 1"
};
static const struct db_stmt ADD_DEDUPE = { ADD_COUNTS(SEEN_KEYS) };
static const struct db_stmt TAKE_DEDUPE = { TAKE_COUNTS(SEEN_KEYS) };
static const struct db_stmt MOVE_DEDUPE = { MOVE_CHOSEN("channel_inbound_dedupe", SEEN_KEYS) };
static const struct db_stmt CLASH_OAUTH = {
	"SELECT state FROM oauth_pending WHERE owner = $1 AND state IN "
	"(SELECT state FROM oauth_pending WHERE owner = $2) LIMIT 1"
};
static const struct db_stmt MOVE_OAUTH = { "UPDATE oauth_pending SET owner = $2 WHERE owner = $1" };
static const struct db_stmt CLASH_QUEUES = {
	"SELECT a.dedupe_key FROM queue_items a JOIN queue_items b "
	"ON b.tbl = a.tbl AND b.dedupe_key = a.dedupe_key "
	"WHERE a.owner = $1 AND b.owner = $2 AND a.dedupe_key IS NOT NULL LIMIT 1"
};
static const struct db_stmt ADD_QUEUES = { ADD_COUNTS(QUEUED) };
static const struct db_stmt TAKE_QUEUES = { TAKE_COUNTS(QUEUED) };
static const struct db_stmt MOVE_QUEUES = { MOVE_CHOSEN("queue_items", QUEUED) };
/* A consumer that has read past rows that come now would never see them. */
static const struct db_stmt CLASH_OUTBOX = {
	"SELECT name FROM outbox_consumers c WHERE c.owner = $2 AND EXISTS "
	"(SELECT 1 FROM outbox o WHERE o.owner = $1 AND o.id <= c.position) LIMIT 1"
};
static const struct db_stmt CLOSE_SOURCE = {
	"INSERT INTO outbox_moving (owner, source, first) SELECT p.owner, p.owner, 0 FROM "
	"(SELECT owner FROM outbox WHERE owner = $1 LIMIT 1) AS p WHERE p.owner = $1 "
	"ON CONFLICT (owner, source) DO NOTHING"
};
static const struct db_stmt ADD_OUTBOX = { ADD_COUNTS(LOGGED) };
static const struct db_stmt TAKE_OUTBOX = { TAKE_COUNTS(LOGGED) };
static const struct db_stmt MOVE_OUTBOX = { MOVE_CHOSEN("outbox", LOGGED) };
static const struct db_stmt SHOW_MOVED = {
	"INSERT INTO outbox_moving (owner, source, first) SELECT $3, p.owner, p.id FROM "
	"(SELECT owner, id FROM outbox WHERE owner = $1 ORDER BY id LIMIT 1) AS p "
	"WHERE $2 > 0 ON CONFLICT (owner, source) DO UPDATE SET first = excluded.first"
};
static const struct db_stmt SHOW_ALL = { "DELETE FROM outbox_moving WHERE source = $1" };
static const struct db_stmt CLASH_CONSUMERS = {
	"SELECT name FROM outbox_consumers WHERE owner = $1 AND name IN "
	"(SELECT name FROM outbox_consumers WHERE owner = $2) LIMIT 1"
};
static const struct db_stmt MOVE_CONSUMERS = {
	"UPDATE outbox_consumers SET owner = $2 WHERE owner = $1"
};
static const struct db_stmt MOVE_PRUNED = {
	"INSERT INTO outbox_pruned (owner, last) "
	"SELECT $2, last FROM outbox_pruned WHERE owner = $1 "
	"ON CONFLICT (owner) DO UPDATE SET last = CASE WHEN excluded.last > outbox_pruned.last "
	"THEN excluded.last ELSE outbox_pruned.last END"
};
static const struct db_stmt DROP_PRUNED = { "DELETE FROM outbox_pruned WHERE owner = $1" };
static const struct db_stmt MOVE_COUNTS = {
	"INSERT INTO table_counts (owner, tbl, live) "
	"SELECT $2, tbl, live FROM table_counts WHERE owner = $1 "
	"ON CONFLICT (owner, tbl) DO UPDATE SET live = table_counts.live + excluded.live"
};
static const struct db_stmt DROP_COUNTS = { "DELETE FROM table_counts WHERE owner = $1" };

static const struct owned_step OUTBOX_SLICE[] = {
	{ &CLOSE_SOURCE, NULL },
	{ &ADD_OUTBOX, NULL },
	{ &TAKE_OUTBOX, NULL },
	{ &DROP_ZERO_COUNTS, NULL },
	{ &MOVE_OUTBOX, "outbox" },
	{ &SHOW_MOVED, NULL },
	{ 0 },
};
static const struct owned_step SHOW_SLICE[] = { { &SHOW_ALL, NULL }, { 0 } };
static const struct owned_step ENTRY_SLICE[] = {
	{ &ADD_ENTRIES, NULL },
	{ &TAKE_ENTRIES, NULL },
	{ &DROP_ZERO_COUNTS, NULL },
	{ &MOVE_ENTRIES, "entries" },
	{ 0 },
};
static const struct owned_step DEDUPE_SLICE[] = {
	{ &ADD_DEDUPE, NULL },
	{ &TAKE_DEDUPE, NULL },
	{ &DROP_ZERO_COUNTS, NULL },
	{ &MOVE_DEDUPE, "channel_inbound_dedupe" },
	{ 0 },
};
static const struct owned_step QUEUE_SLICE[] = {
	{ &ADD_QUEUES, NULL },
	{ &TAKE_QUEUES, NULL },
	{ &DROP_ZERO_COUNTS, NULL },
	{ &MOVE_QUEUES, "queue_items" },
	{ 0 },
};

#define SLICED(name, both, steps)                                                                  \
	{                                                                                          \
		.table = name, .clash = both, .slice = steps, .slice_rows = 200                    \
	}

/* The outbox comes first: readers are stopped in the transaction that has looked how far they are.
 */
const struct owned OPTABLE_OWNED[] = {
	SLICED("outbox", &CLASH_OUTBOX, OUTBOX_SLICE),
	SLICED("outbox_moving", NULL, SHOW_SLICE),
	SLICED("entries", &CLASH_ENTRIES, ENTRY_SLICE),
	SLICED("channel_inbound_dedupe", &CLASH_DEDUPE, DEDUPE_SLICE),
	SLICED("queue_items", &CLASH_QUEUES, QUEUE_SLICE),
	{ .table = "leases", .clash = &CLASH_LEASES, .move = &MOVE_LEASES },
	{ .table = "oauth_pending", .clash = &CLASH_OAUTH, .move = &MOVE_OAUTH },
	{ .table = "outbox_consumers", .clash = &CLASH_CONSUMERS, .move = &MOVE_CONSUMERS },
	{ .table = "outbox_pruned", .move = &MOVE_PRUNED, .drop = &DROP_PRUNED },
	{ .table = "table_counts", .move = &MOVE_COUNTS, .drop = &DROP_COUNTS }, /* the rest */
	{ 0 },
};
