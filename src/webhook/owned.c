/* SPDX-License-Identifier: Apache-2.0 */
/* Webhooks of one owner, and their dead letters, become another's: engine/adopt.h. They post the
 * events of the new owner from then on. Each has an id of its own, so nothing can clash. */
#include "engine/adopt.h"
#include "webhook/webhook.h"

/* Dead letters have no index by owner: their webhooks do, and they move after them. */
static const struct db_stmt MOVE_DEAD_LETTERS = {
	"UPDATE webhook_dead_letters SET owner = $2 WHERE webhook IN "
	"(SELECT id FROM webhooks WHERE owner = $1)"
};
/* What an attempt under way writes down later must not undo it. */
static const struct db_stmt MOVE_WEBHOOKS = {
	"UPDATE webhooks SET owner = $2, generation = generation + 1 WHERE owner = $1"
};

const struct owned WEBHOOK_OWNED[] = {
	{ .table = "webhook_dead_letters", .move = &MOVE_DEAD_LETTERS },
	{ .table = "webhooks", .move = &MOVE_WEBHOOKS },
	{ 0 },
};
