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
static int settle_attachments(struct tx *tx, const struct pruned *rows, size_t n)
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

static const struct db_stmt OWN_ATTACHMENTS = {
	"SELECT total_count FROM attachment_totals WHERE owner = $1"
};

const struct bound_spec ATTACHMENT_BOUND = {
	.name = "attachments",
	.scheduler = "attachments",
	.bounded_by =
		"ttl_ms after inserted_at; attachment_bytes_per_owner; attachment_total_bytes",
	.due_when = "now - inserted_at >= ttl_ms",
	.safety_rule = "Persistent attachments and those whose ttl_ms is infinity are never "
		       "removed.",
	.action = "delete row, then the file",
	.paths = PATH_LAZY | PATH_SWEEP | PATH_FORCED,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "due_at",
	.op = DUE_AT,
	.only = BOUND_ONLY(IS_INT("persist", 0)),
	.held_as = "attachments",
	.holdable = true,
	.named_by = BOUND_COLUMNS("checksum"),
	.event = NULL, /* one for each file, written by settle_attachments() */
	.reason = "past its lifetime",
	.owner = "owner",
	.shown = BOUND_COLUMNS("name"),
	.group = "checksum",
	.more = (const char *const[]){ [MORE_SIZE] = "size",
				       [MORE_NAME] = "name",
				       [MORE_TTL] = "ttl_ms",
				       [MORE_COUNT] = NULL },
	.own_live = &OWN_ATTACHMENTS,
	.settle = settle_attachments,
};
