/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/idempotency.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

void idempotency_hash(struct idempotency *i, const char *method, const char *path, const char *body,
		      size_t body_len)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();

	/* NUL ends method and path, so that no two requests have the same bytes. */
	if (!ctx || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) ||
	    !EVP_DigestUpdate(ctx, method, strlen(method) + 1) ||
	    !EVP_DigestUpdate(ctx, path, strlen(path) + 1) ||
	    !EVP_DigestUpdate(ctx, body, body_len) || !EVP_DigestFinal_ex(ctx, digest, &n))
		abort(); /* out of memory: SHA-256 itself cannot fail */
	EVP_MD_CTX_free(ctx);
	hex_encode(digest, n, i->request);
}

static const struct db_stmt EXPIRE = { "DELETE FROM idempotency_keys WHERE owner = $1 AND key = $2 "
				       "AND created_at < $3 RETURNING id" };
static const struct db_stmt START = {
	"INSERT INTO idempotency_keys (id, owner, key, request, status, answer, created_at) "
	"VALUES ($1, $2, $3, $4, 0, '', $5) ON CONFLICT (owner, key) DO NOTHING RETURNING id"
};
static const struct db_stmt GET = {
	"SELECT request, status, answer FROM idempotency_keys WHERE owner = $1 AND key = $2"
};
static const struct db_stmt END = {
	"UPDATE idempotency_keys SET status = $3, answer = $4 WHERE owner = $1 AND key = $2"
};

/* A key past its lifetime is none, even before the sweep has removed it. */
static int expire(struct tx *tx, const struct idempotency *i)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &EXPIRE);

	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->key);
	db_bind_int(&q, 3, time_sub(tx->now, tx->engine->settings->idempotency_keep_ms));
	int r = db_step(&q);
	if (r > 0)
		tx_count(tx, "idempotency_keys", -1);
	return r < 0 ? r : LAPSE_OK;
}

/* 1 = the key is ours now, 0 = it was there. */
static int start(struct tx *tx, const struct idempotency *i)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &START);

	db_bind_int(&q, 1, id_next(&tx->engine->ids, tx->now));
	db_bind_text(&q, 2, i->owner);
	db_bind_text(&q, 3, i->key);
	db_bind_text(&q, 4, i->request);
	db_bind_int(&q, 5, tx->now);
	int r = db_step(&q);
	if (r > 0)
		tx_count(tx, "idempotency_keys", 1);
	return r;
}

static int replay(struct tx *tx, const struct idempotency *i, struct arena *arena, int *ret_status,
		  const char **ret_answer)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);

	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->key);
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ERETRY;
	if (strcmp(db_text(&q, 0), i->request) != 0)
		return LAPSE_EUNPROCESSABLE;
	if (db_int(&q, 1) == 0)
		return LAPSE_ECONFLICT;
	*ret_status = (int)db_int(&q, 1);
	*ret_answer = arena_strdup(arena, db_text(&q, 2));
	return 1;
}

int idempotency_begin(struct tx *tx, const struct idempotency *i, struct arena *arena,
		      int *ret_status, const char **ret_answer)
{
	int r = expire(tx, i);

	if (r == LAPSE_OK)
		r = start(tx, i);
	if (r < 0)
		return r;
	return r > 0 ? LAPSE_OK : replay(tx, i, arena, ret_status, ret_answer);
}

int idempotency_end(struct tx *tx, const struct idempotency *i, int status, const char *answer)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &END);

	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->key);
	db_bind_int(&q, 3, status);
	db_bind_text(&q, 4, answer);
	return db_run(&q);
}

static const struct db_stmt DROP = { "DELETE FROM idempotency_keys WHERE owner = $1 AND key = $2" };
static const struct db_stmt RECOVER = { "DELETE FROM idempotency_keys WHERE status = 0" };

int idempotency_drop(struct tx *tx, const struct idempotency *i)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP);

	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->key);
	int r = db_run(&q);
	if (r == LAPSE_OK)
		tx_count(tx, "idempotency_keys", -db_changed(&q));
	return r;
}

int idempotency_recover(struct tx *tx)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &RECOVER);
	int r = db_run(&q);

	if (r == LAPSE_OK)
		tx_count(tx, "idempotency_keys", -db_changed(&q));
	return r;
}

const struct bound IDEMPOTENCY_BOUND = {
	.table = "idempotency_keys",
	.scheduler = "housekeeping",
	.bounded_by = "idempotency_keep_ms after created_at",
	.due_when = "now - created_at > idempotency_keep_ms",
	.safety_rule = "A retry inside the window gets the first answer.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.window = offsetof(struct settings, idempotency_keep_ms),
	.event = EVENT_HOUSEKEEPING_PRUNED,
	.reason = "the window of the key has passed",
	.newest = { "SELECT coalesce(max(id), 0) FROM idempotency_keys" },
	.due = { "SELECT count(*), min(at) FROM (SELECT created_at AS at FROM idempotency_keys "
		 "WHERE created_at < $1 ORDER BY 1 LIMIT $2)" },
	.prune = { "DELETE FROM idempotency_keys WHERE created_at < $1 AND id IN ("
		   "SELECT id FROM idempotency_keys WHERE created_at < $1 AND "
		   "(created_at, id) > ($2, $3) ORDER BY created_at, id LIMIT $4) "
		   "RETURNING created_at, id, owner, '', 0" },
};
