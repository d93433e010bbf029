/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own tables with an owner: engine/adopt.h. */
#include "engine/adopt.h"
#include "engine/hold.h"

static const struct db_stmt CLASH_HOLDS = {
	"SELECT h.key FROM holds h JOIN holds o ON o.tbl = h.tbl AND o.key = h.key "
	"WHERE h.owner = $1 AND o.owner = $2 LIMIT 1"
};
static const struct db_stmt MOVE_HOLDS = { "UPDATE holds SET owner = $2 WHERE owner = $1" };
static const struct db_stmt MOVE_CLEANUPS = { "UPDATE cleanups SET owner = $2 WHERE owner = $1" };

const struct owned ENGINE_OWNED[] = {
	{ .table = "holds", .clash = &CLASH_HOLDS, .move = &MOVE_HOLDS },
	{ .table = "cleanups", .move = &MOVE_CLEANUPS },
	{ 0 },
};
