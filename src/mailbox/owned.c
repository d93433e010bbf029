/* SPDX-License-Identifier: Apache-2.0 */
/* Mailboxes of one owner, and the mail in them, become another's: engine/adopt.h. An address is one
 * owner's only, so nothing can clash. */
#include "engine/adopt.h"
#include "mailbox/mailbox.h"

#define BOXES                                                                                      \
	"(SELECT id, owner, status FROM mailboxes WHERE owner = $1 ORDER BY status, id LIMIT $2)"
#define LIVE_BOXES " FROM " BOXES " AS p WHERE p.status IN ('provisioning', 'active') "

static const struct db_stmt ADD_LIVE = {
	"INSERT INTO table_counts (owner, tbl, live) "
	"SELECT $3, 'mailboxes', count(*)" LIVE_BOXES "GROUP BY p.owner "
	"ON CONFLICT (owner, tbl) DO UPDATE SET live = table_counts.live + excluded.live"
};
static const struct db_stmt TAKE_LIVE = {
	"UPDATE table_counts SET live = table_counts.live - n.live "
	"FROM (SELECT count(*) AS live" LIVE_BOXES ") AS n "
	"WHERE table_counts.owner = $1 AND table_counts.tbl = 'mailboxes'"
};
static const struct db_stmt DROP_ZERO = {
	"DELETE FROM table_counts WHERE owner = $1 AND tbl = 'mailboxes' AND live = 0"
};
static const struct db_stmt MOVE_MAIL = {
	"UPDATE mailbox_messages SET owner = $3 WHERE mailbox IN (SELECT p.id FROM " BOXES " AS p)"
};
static const struct db_stmt MOVE_MAILBOXES = {
	"UPDATE mailboxes SET owner = $3 WHERE id IN (SELECT p.id FROM " BOXES " AS p)"
};

static const struct owned_step MAILBOX_SLICE[] = {
	{ &ADD_LIVE, NULL },
	{ &TAKE_LIVE, NULL },
	{ &DROP_ZERO, NULL },
	{ &MOVE_MAIL, "mailbox_messages" },
	{ &MOVE_MAILBOXES, "mailboxes" },
	{ 0 },
};

const struct owned MAILBOX_OWNED[] = {
	/* One at a time: a mailbox can have ten thousand mails. */
	{ .table = "mailboxes", .slice = MAILBOX_SLICE, .slice_rows = 1 },
	{ 0 },
};
