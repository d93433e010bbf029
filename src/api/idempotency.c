/* SPDX-License-Identifier: Apache-2.0 */
#include "api/idempotency.h"

#include <assert.h>
#include <openssl/evp.h>
#include <string.h>

#include "api/state.h"
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
	assert(2 * n + 1 == sizeof(i->request));
	hex_encode(digest, n, i->request);
}

static const struct db_stmt EXPIRE = { "DELETE FROM idempotency_keys WHERE owner = $1 AND key = $2 "
				       "AND created_at < $3 RETURNING id" };
static const struct db_stmt START = {
	"INSERT INTO idempotency_keys (id, owner, key, request, status, answer, created_at) "
	"VALUES ($1, $2, $3, $4, 0, '', $5) ON CONFLICT (owner, key) DO NOTHING RETURNING id"
};
static const struct db_stmt GET = {
	"SELECT request, status, answer, id FROM idempotency_keys WHERE owner = $1 AND key = $2"
};
static const struct db_stmt END = {
	"UPDATE idempotency_keys SET status = $3, answer = $4 WHERE owner = $1 AND key = $2"
};

/* A key past its lifetime is none, even before the sweep has removed it. */
static int idempotency_expire(struct tx *tx, const struct idempotency *i)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &EXPIRE);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->key);
	db_bind_int(&q, 3, time_sub(tx->now, tx->engine->settings->idempotency_keep_ms));
	int r = db_step(&q);
	if (r > 0)
		tx_count(tx, &IDEMPOTENCY_BOUND, -1);
	return r < 0 ? r : LAPSE_OK;
}

/* 1 = the key is ours now, 0 = it was there. */
static int idempotency_start(struct tx *tx, const struct idempotency *i)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &START);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, id_next(&tx->engine->ids, tx->now));
	db_bind_text(&q, 2, i->owner);
	db_bind_text(&q, 3, i->key);
	db_bind_text(&q, 4, i->request);
	db_bind_int(&q, 5, tx->now);
	int r = db_step(&q);
	if (r > 0)
		tx_count(tx, &IDEMPOTENCY_BOUND, 1);
	return r;
}

/* LAPSE_ECONFLICT: it is under way, at that replica. */
static int idempotency_replay(struct tx *tx, const struct idempotency *i, struct arena *arena,
			      int *ret_status, const char **ret_answer, int64_t *ret_replica)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->key);
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ERETRY;
	if (strcmp(db_text(&q, 0), i->request) != 0)
		return LAPSE_EUNPROCESSABLE;
	if (db_int(&q, 1) == 0) {
		*ret_replica = id_replica(db_int(&q, 3));
		return LAPSE_ECONFLICT;
	}
	*ret_status = (int)db_int(&q, 1);
	*ret_answer = arena_strdup(arena, db_text(&q, 2));
	return 1;
}

static int idempotency_try(struct tx *tx, const struct idempotency *i, struct arena *arena,
			   int *ret_status, const char **ret_answer, int64_t *ret_replica)
{
	assert(tx->write && i->owner && i->key && i->request[0]);
	int r = idempotency_expire(tx, i);

	if (r == LAPSE_OK)
		r = idempotency_start(tx, i);
	if (r < 0)
		return r;
	return r > 0 ? LAPSE_OK
		     : idempotency_replay(tx, i, arena, ret_status, ret_answer, ret_replica);
}

int idempotency_begin(struct tx *tx, const struct idempotency *i, struct arena *arena,
		      int *ret_status, const char **ret_answer)
{
	int64_t replica = 0;

	return idempotency_try(tx, i, arena, ret_status, ret_answer, &replica);
}

static bool idempotency_is_under_way(const struct engine *e, const struct idempotency *i)
{
	const struct list *keys = &api_of(e)->keys;

	for (const struct list *l = keys->next; l != keys; l = l->next) {
		const struct idempotency *x = CONTAINER_OF(l, struct idempotency, link);
		if (x != i && strcmp(x->key, i->key) == 0 && strcmp(x->owner, i->owner) == 0)
			return true;
	}
	return false;
}

int idempotency_claim(struct tx *tx, struct idempotency *i, struct arena *arena, int *ret_status,
		      const char **ret_answer)
{
	int64_t replica = 0;
	int r = idempotency_try(tx, i, arena, ret_status, ret_answer, &replica);

	if (r == LAPSE_ECONFLICT && !idempotency_is_under_way(tx->engine, i)) {
		int live = cluster_is_live(tx, replica);
		if (live != 0)
			return live < 0 ? live : r;
		r = idempotency_drop(tx, i);
		if (r == LAPSE_OK)
			r = idempotency_begin(tx, i, arena, ret_status, ret_answer);
	}
	if (r == LAPSE_OK && !list_is_linked(&i->link))
		list_append(&api_of(tx->engine)->keys, &i->link);
	return r;
}

void idempotency_release(struct idempotency *i)
{
	list_remove(&i->link);
}

const char *idempotency_refusal(int err)
{
	return err == LAPSE_EUNPROCESSABLE ? "the key was used for another request"
					   : "the first request with this key is still under way";
}

int idempotency_end(struct tx *tx, const struct idempotency *i, int status, const char *answer)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &END);

	assert(tx_can_write(tx));
	assert(status > 0); /* 0 is a key under way */
	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->key);
	db_bind_int(&q, 3, status);
	db_bind_text(&q, 4, answer);
	return db_post(&q, DB_ANY);
}

static const struct db_stmt DROP = { "DELETE FROM idempotency_keys WHERE owner = $1 AND key = $2" };
/* An id's lowest bits are the number of the replica that made it. */
static const struct db_stmt RECOVER = {
	"DELETE FROM idempotency_keys WHERE status = 0 AND id % 256 NOT IN "
	"(SELECT number FROM replicas WHERE state = 1 AND number <> $1)"
};
static const struct db_stmt VOID = {
	"DELETE FROM idempotency_keys WHERE status = 0 AND id % 256 = $1"
};

int idempotency_drop(struct tx *tx, const struct idempotency *i)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, i->owner);
	db_bind_text(&q, 2, i->key);
	int r = db_run(&q);
	if (r == LAPSE_OK)
		tx_count(tx, &IDEMPOTENCY_BOUND, -db_changed(&q));
	return r;
}

static int idempotency_forget(struct tx *tx, const struct db_stmt *stmt, int64_t replica)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, replica);
	int r = db_run(&q);
	if (r == LAPSE_OK)
		tx_count(tx, &IDEMPOTENCY_BOUND, -db_changed(&q));
	return r;
}

int idempotency_recover(struct tx *tx)
{
	return idempotency_forget(tx, &RECOVER, tx->engine->ids.replica);
}

int idempotency_replica_gone(struct tx *tx, int64_t number)
{
	return idempotency_forget(tx, &VOID, number);
}

const struct bound_spec IDEMPOTENCY_BOUND = {
	.name = "idempotency_keys",
	.scheduler = "housekeeping",
	.bounded_by = "idempotency_keep_ms after created_at",
	.due_when = "now - created_at > idempotency_keep_ms",
	.safety_rule = "A retry inside the window gets the first answer.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "created_at",
	.window = "idempotency_keep_ms",
	.event = "housekeeping.lifecycle_pruned",
	.reason = "the window of the key has passed",
	.owner = "owner",
	.known_by = "t.key = $2",
	.shown = BOUND_COLUMNS("key"),
};
