/* SPDX-License-Identifier: Apache-2.0 */
/* Claiming: a lease on unread messages. */
#include <assert.h>
#include <stdlib.h>

#include "message/row.h"
#include "message/unread.h"
#include "store/sql.h"

#define OFFERED "m.read = 0 AND (m.claimed_until IS NULL OR m.claimed_until <= $3)"
static const struct db_stmt CLAIM = {
	"UPDATE messages AS m SET claim_id = $5, claimed_until = $6 WHERE " OFFERED
	" AND m.id " SQL_CHOOSE "SELECT u.id" UNREAD "AND " OFFERED
	" ORDER BY u.id LIMIT $4" SQL_SKIP_LOCKED " RETURNING " RETURNED
};
static const struct db_stmt NEXT_OFFER = { "SELECT min(m.claimed_until)" UNREAD
					   "AND m.claimed_until > $3" };

static int message_by_id(const void *x, const void *y)
{
	const struct message *a = x, *b = y;

	return (a->id > b->id) - (a->id < b->id);
}

/* RETURNING gives the rows in no order; they are shown oldest first. */
static int claim_filed(struct tx *tx, const char *owner, const char *agent, int64_t claim,
		       lapse_ms until, int64_t limit, struct message_walk *w)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CLAIM);
	struct message *taken = tx_alloc(tx, (size_t)limit * sizeof(*taken));
	int64_t n = 0;
	int r;

	assert(tx_can_write(tx) && claim != CLAIM_NONE && limit > 0);
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, limit);
	db_bind_int(&q, 5, claim);
	db_bind_int(&q, 6, until);
	while ((r = db_step(&q)) > 0) {
		assert(n < limit);
		taken[n++] = message_keep_row(tx, &q);
	}
	if (r < 0)
		return r;
	qsort(taken, (size_t)n, sizeof(*taken), message_by_id);
	for (int64_t i = 0; i < n; i++) {
		message_walk_show(w, &taken[i]);
	}
	return LAPSE_OK;
}

static const struct db_stmt CLAIM_ONE = {
	"UPDATE messages SET claim_id = $2, claimed_until = $3 WHERE id = $1"
};

static int write_claim(struct tx *tx, int64_t id, int64_t claim, lapse_ms until)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CLAIM_ONE);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, claim);
	db_bind_int(&q, 3, until);
	return db_post(&q, DB_ONE);
}

/* The messages of the tail are the newest, so they come after all filed ones. */
static int claim_tail(struct tx *tx, const char *owner, const char *agent, int64_t claim,
		      lapse_ms until, int64_t limit, struct message_walk *w)
{
	int64_t *ids = tx_alloc(tx, (size_t)limit * sizeof(*ids));
	int64_t n = unread_tail_offers(tx, owner, agent, limit, ids);
	int r = LAPSE_OK;

	for (int64_t i = 0; r == LAPSE_OK && i < n; i++) {
		struct db_query CLEANUP(db_finish) q = message_find(tx, owner, agent, ids[i]);
		r = db_step(&q);
		if (r <= 0)
			return r < 0 ? r : LAPSE_ECORRUPT;
		struct message m = message_read_row(&q);
		m.claim_id = claim;
		m.claimed_until = until;
		r = write_claim(tx, ids[i], claim, until);
		unread_claimed(tx, owner, agent, ids[i], until);
		message_walk_show(w, &m);
	}
	return r;
}

static int claim_some(struct tx *tx, const char *owner, const char *agent, int64_t claim,
		      lapse_ms until, int64_t limit, struct message_walk *w)
{
	int64_t seen = w->rows;
	int r = claim_filed(tx, owner, agent, claim, until, limit, w);

	if (r < 0 || w->rows - seen == limit)
		return r;
	return claim_tail(tx, owner, agent, claim, until, limit - (w->rows - seen), w);
}

int message_claim(struct tx *tx, const char *owner, const char *agent, int64_t claim,
		  lapse_ms until, int64_t limit, int64_t max_bytes, message_fn *fn, void *arg,
		  int64_t *ret_count)
{
	struct message_walk w = { .fn = fn, .arg = arg };

	assert(limit > 0 && max_bytes > 0);
	while (w.rows < limit && w.bytes < max_bytes) {
		int64_t seen = w.rows, rows = message_next_rows(w.rows, w.bytes, limit);
		int r = claim_some(tx, owner, agent, claim, until, rows, &w);
		if (r < 0)
			return r;
		if (w.rows - seen < rows)
			break;
	}
	*ret_count = w.rows;
	return LAPSE_OK;
}

static const struct db_stmt EXTEND = {
	"UPDATE messages SET claimed_until = $5 WHERE owner = $1 AND agent = $2 AND id = $3 "
	"AND claim_id = $4 AND read = 0"
};

/* The statement checks the claim itself; what it did not change is looked at to tell why. */
int message_extend(struct tx *tx, const char *owner, const char *agent, int64_t id, int64_t claim,
		   lapse_ms until)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &EXTEND);

	assert(claim != CLAIM_NONE && until > tx->now);
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, id);
	db_bind_int(&q, 4, claim);
	db_bind_int(&q, 5, until);
	int r = db_run(&q);
	if (r >= 0 && db_changed(&q) > 0)
		unread_claimed(tx, owner, agent, id, until);
	if (r < 0 || db_changed(&q) > 0)
		return r;
	struct db_query CLEANUP(db_finish) known = message_find(tx, owner, agent, id);
	r = db_step(&known);
	if (r < 0)
		return r;
	return r > 0 ? LAPSE_ECONFLICT : LAPSE_ENOTFOUND;
}

int message_next_offer(struct tx *tx, const char *owner, const char *agent, lapse_ms *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &NEXT_OFFER);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	db_bind_int(&q, 3, tx->now);
	int r = db_step(&q);
	if (r < 0)
		return r;
	lapse_ms filed = r > 0 && !db_is_null(&q, 0) ? db_int(&q, 0) : LAPSE_NEVER;
	lapse_ms tail = unread_tail_next_offer(tx, owner, agent);
	*ret = filed < tail ? filed : tail;
	return LAPSE_OK;
}
