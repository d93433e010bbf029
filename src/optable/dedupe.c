/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are claimed once: channel_inbound_dedupe. */
#include "base/mem.h"
#include "engine/sweep.h"
#include "optable/optable.h"

#include <assert.h>

#define DEDUPE_AT_ONCE 4 /* expired keys that an insert removes */

static int dedupe_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	return optable_settle_as(tx, &DEDUPE_BOUND, rows, n);
}

const struct bound_spec DEDUPE_BOUND = {
	.name = "channel_inbound_dedupe",
	.scheduler = "statestore",
	.bounded_by = "expires_at_ms; table_max_per_owner",
	.due_when = "expires_at_ms <= now",
	.safety_rule = "Replay protection remains valid inside the window that was asked for.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "expires_at_ms",
	.op = DUE_AT,
	.held_as = "channel_inbound_dedupe",
	.holdable = true,
	.named_by = BOUND_COLUMNS("channel", "account_id", "container_id", "message_id"),
	.owner = "owner",
	.counted_by_owner = true,
	.settle = dedupe_settle,
};

static const struct db_stmt DEDUPE_FIND = {
	"SELECT id, expires_at_ms FROM channel_inbound_dedupe WHERE owner = $1 AND channel = $2 "
	"AND account_id = $3 AND container_id = $4 AND message_id = $5"
};
static const struct db_stmt DEDUPE_INSERT = {
	"INSERT INTO channel_inbound_dedupe (id, owner, channel, account_id, container_id, "
	"message_id, expires_at_ms) VALUES ($6, $1, $2, $3, $4, $5, $7) "
	"ON CONFLICT (owner, channel, account_id, container_id, message_id) DO NOTHING"
};
static const struct db_stmt DEDUPE_RENEW = {
	"UPDATE channel_inbound_dedupe SET expires_at_ms = $2 WHERE id = $1 "
	"AND expires_at_ms <= $3"
};

static void bind_key(struct db_query *q, const char *owner, const struct dedupe_key *key)
{
	db_bind_text(q, 1, owner);
	db_bind_text(q, 2, key->channel);
	db_bind_text(q, 3, key->account_id);
	db_bind_text(q, 4, key->container_id);
	db_bind_text(q, 5, key->message_id);
}

/* 1 = there is a row, whatever its time; 0 = none. */
static int dedupe_find(struct tx *tx, const char *owner, const struct dedupe_key *key,
		       int64_t *ret_id, lapse_ms *ret_expires_at)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DEDUPE_FIND);

	assert(tx_is_open(tx));
	bind_key(&q, owner, key);
	int r = db_step(&q);
	if (r <= 0)
		return r;
	*ret_id = db_int(&q, 0);
	*ret_expires_at = db_int(&q, 1);
	return 1;
}

static int dedupe_insert(struct tx *tx, const char *owner, const struct dedupe_key *key,
			 lapse_ms expires_at, struct problem *p)
{
	int64_t cleaned = 0;
	int r = sweep_inline(tx, &DEDUPE_BOUND, DEDUPE_AT_ONCE, &cleaned);

	assert(tx_can_write(tx));
	if (r == LAPSE_OK)
		r = optable_count_in(tx, &DEDUPE_BOUND, owner,
				     tx->engine->settings->table_max_per_owner, p);
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DEDUPE_INSERT);
	bind_key(&q, owner, key);
	db_bind_int(&q, 6, id_next(&tx->engine->ids, tx->now));
	db_bind_int(&q, 7, expires_at);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

static int dedupe_renew(struct tx *tx, int64_t id, lapse_ms expires_at)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DEDUPE_RENEW);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, expires_at);
	db_bind_int(&q, 3, tx->now);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

int dedupe_claim(struct tx *tx, const char *owner, const struct dedupe_key *key, lapse_ms window_ms,
		 bool *ret_fresh, lapse_ms *ret_expires_at, struct problem *p)
{
	lapse_ms expires_at = 0, end = time_add(tx->now, window_ms);
	int64_t id = 0;
	int r = dedupe_find(tx, owner, key, &id, &expires_at);

	if (r < 0)
		return r;
	bool live = r > 0 && !optable_is_over(expires_at, tx->now);
	if (!live)
		r = r > 0 ? dedupe_renew(tx, id, end) : dedupe_insert(tx, owner, key, end, p);
	if (r < 0)
		return r;
	*ret_fresh = !live;
	*ret_expires_at = live ? expires_at : end;
	return LAPSE_OK;
}
