/* SPDX-License-Identifier: Apache-2.0 */
/* Idempotency keys of one owner become another's: engine/adopt.h. A key that both have used stays:
 * to the owner that gets the rest it means its own request. So does one that is under way. */
#include "api/idempotency.h"
#include "engine/adopt.h"

static const struct db_stmt MOVE_KEYS = {
	"UPDATE idempotency_keys SET owner = $3 WHERE id IN "
	"(SELECT id FROM idempotency_keys AS k WHERE k.owner = $1 AND k.status <> 0 AND NOT EXISTS "
	"(SELECT 1 FROM idempotency_keys AS o WHERE o.owner = $3 AND o.key = k.key) LIMIT $2)"
};

static const struct owned_step KEY_SLICE[] = { { &MOVE_KEYS, "idempotency_keys" }, { 0 } };

const struct owned API_OWNED[] = {
	{ .table = "idempotency_keys", .slice = KEY_SLICE, .slice_rows = 200 },
	{ 0 },
};
