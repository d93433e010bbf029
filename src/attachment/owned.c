/* SPDX-License-Identifier: Apache-2.0 */
/* Attachments of one owner become another's: engine/adopt.h. Files are named after their rows and
 * stay where they are. */
#include "attachment/attachment.h"
#include "engine/adopt.h"

#define FILES                                                                                      \
	"(SELECT id, size, persist FROM attachments WHERE owner = $1 ORDER BY checksum LIMIT $2)"
#define SUMS                                                                                       \
	"SELECT count(*) AS files, coalesce(sum(p.size), 0) AS bytes, "                            \
	"coalesce(sum(p.persist), 0) AS kept, coalesce(sum(p.persist * p.size), 0) AS kept_bytes " \
	"FROM " FILES " AS p"

static const struct db_stmt CLASH_ATTACHMENTS = {
	"SELECT checksum FROM attachments WHERE owner = $1 AND checksum IN "
	"(SELECT checksum FROM attachments WHERE owner = $2) LIMIT 1"
};
static const struct db_stmt ADD_TOTALS = {
	"INSERT INTO attachment_totals "
	"(owner, total_count, total_bytes, persistent_count, persistent_bytes) "
	"SELECT $3, n.files, n.bytes, n.kept, n.kept_bytes FROM (" SUMS ") AS n WHERE n.files > 0 "
	"ON CONFLICT (owner) DO UPDATE SET "
	"total_count = attachment_totals.total_count + excluded.total_count, "
	"total_bytes = attachment_totals.total_bytes + excluded.total_bytes, "
	"persistent_count = attachment_totals.persistent_count + excluded.persistent_count, "
	"persistent_bytes = attachment_totals.persistent_bytes + excluded.persistent_bytes"
};
static const struct db_stmt TAKE_TOTALS = {
	"UPDATE attachment_totals SET total_count = total_count - n.files, "
	"total_bytes = total_bytes - n.bytes, persistent_count = persistent_count - n.kept, "
	"persistent_bytes = persistent_bytes - n.kept_bytes FROM (" SUMS ") AS n WHERE owner = $1"
};
static const struct db_stmt DROP_TOTALS = {
	"DELETE FROM attachment_totals WHERE owner = $1 AND total_count = 0"
};
static const struct db_stmt MOVE_ATTACHMENTS = {
	"UPDATE attachments SET owner = $3 WHERE id IN (SELECT p.id FROM " FILES " AS p)"
};

static const struct owned_step ATTACHMENT_SLICE[] = {
	{ &ADD_TOTALS, NULL },
	{ &TAKE_TOTALS, NULL },
	{ &DROP_TOTALS, NULL },
	{ &MOVE_ATTACHMENTS, "attachments" },
	{ 0 },
};

const struct owned ATTACHMENT_OWNED[] = {
	{ .table = "attachments",
	  .clash = &CLASH_ATTACHMENTS,
	  .slice = ATTACHMENT_SLICE,
	  .slice_rows = 200 },
	{ 0 },
};
