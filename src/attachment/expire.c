/* SPDX-License-Identifier: Apache-2.0 */
/* The bound `attachments`: which rows a sweep removes, and what goes with them. */
#include <stdlib.h>
#include <string.h>

#include "attachment/attachment.h"
#include "attachment/depot.h"

enum { MORE_SIZE, MORE_NAME, MORE_TTL, MORE_COUNT };

static struct attachment read_pruned(const struct pruned *row)
{
	return (struct attachment){ .id = row->id,
				    .owner = row->owner,
				    .checksum = row->group,
				    .name = row->more[MORE_NAME],
				    .size = strtoll(row->more[MORE_SIZE], NULL, 10),
				    .terms.ttl_ms = strtoll(row->more[MORE_TTL], NULL, 10),
				    .due_at = row->at };
}

/* Each file is an event and an intent of its own; figures are kept once an owner. */
static int settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0, start = 0; i < n; start = i) {
		struct attachment_metrics gone = { 0 };
		for (; i < n && strcmp(rows[i].owner, rows[start].owner) == 0; i++) {
			struct attachment a = read_pruned(&rows[i]);
			int r = attachment_doom(tx, &a);
			if (r == LAPSE_OK)
				r = attachment_announce_cleaned(tx, &a, "expired");
			if (r < 0)
				return r;
			gone.total_count--;
			gone.total_bytes -= a.size;
			tx->freed_bytes += a.size;
		}
		int r = attachment_count(tx, rows[start].owner, &gone);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

_Static_assert(MORE_COUNT <= BOUND_MORE_MAX, "raise BOUND_MORE_MAX");

const struct bound ATTACHMENT_BOUND = {
	.table = "attachments",
	.scheduler = "attachments",
	.bounded_by = "ttl_ms after inserted_at; attachment_total_bytes",
	.due_when = "now - inserted_at >= ttl_ms",
	.safety_rule = "Persistent attachments and those whose ttl_ms is infinity are never "
		       "removed.",
	.action = "delete row, then the file",
	.paths = PATH_LAZY | PATH_SWEEP | PATH_FORCED,
	.window = WINDOW_NONE,
	.event = EVENT_NONE, /* one each, written by settle() */
	.reason = "past its lifetime",
	.holdable = true,
	.keyed_by_name = true,
	.newest = { "SELECT coalesce(max(id), 0) FROM attachments" },
	.due = { "SELECT count(*), min(at) FROM (SELECT due_at AS at FROM attachments AS a "
		 "WHERE due_at <= $1 AND NOT EXISTS (SELECT 1 FROM holds AS h "
		 "WHERE h.tbl = 'attachments' AND h.ref = a.id) ORDER BY due_at LIMIT $2)" },
	.prune = { "DELETE FROM attachments WHERE due_at <= $1 AND persist = 0 AND id IN ("
		   "SELECT id FROM attachments AS a WHERE due_at <= $1 "
		   "AND (due_at, id) > ($2, $3) AND NOT EXISTS (SELECT 1 FROM holds AS h "
		   "WHERE h.tbl = 'attachments' AND h.ref = a.id AND h.until > $5) "
		   "ORDER BY due_at, id LIMIT $4) "
		   "RETURNING due_at, id, owner, checksum, 0, size, name, ttl_ms" },
	.more = MORE_COUNT,
	.find = { "SELECT id FROM attachments WHERE owner = $1 AND checksum = $2" },
	.settle = settle,
	.memory = &DEPOT_MEMORY,
};
