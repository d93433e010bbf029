/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/token.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

#define TEXT_PREFIX "lapse_"
#define PREFIX_DIGITS ((size_t)2 * TOKEN_PREFIX_BYTES)
#define HASH_DIGITS ((size_t)2 * SHA256_DIGEST_LENGTH)

/* A token in memory. */
struct entry {
	struct map_node node; /* by token.prefix */
	struct token token;
	char hash[HASH_DIGITS + 1];
	char text[]; /* prefix NUL owner NUL */
};

static void hash_text(const char *text, char out[HASH_DIGITS + 1])
{
	unsigned char digest[SHA256_DIGEST_LENGTH];

	SHA256((const unsigned char *)text, strlen(text), digest);
	hex_encode(digest, sizeof(digest), out);
}

static struct entry *entry_new(const struct token *t, const char *hash)
{
	size_t prefix = strlen(t->prefix) + 1, owner = strlen(t->owner) + 1;
	struct entry *e = mem_zalloc(1, sizeof(*e) + prefix + owner);

	e->token = *t;
	memcpy(e->text, t->prefix, prefix);
	memcpy(e->text + prefix, t->owner, owner);
	e->token.prefix = e->text;
	e->token.owner = e->text + prefix;
	snprintf(e->hash, sizeof(e->hash), "%s", hash);
	return e;
}

static struct entry *find(const struct tokens *t, const char *prefix)
{
	struct map_node *n = map_find(&t->by_prefix, prefix);

	return n ? CONTAINER_OF(n, struct entry, node) : NULL;
}

static void remember(struct tokens *t, struct entry *e)
{
	map_insert(&t->by_prefix, &e->node, e->token.prefix);
}

static void forget(struct tokens *t, const char *prefix)
{
	struct entry *e = find(t, prefix);

	if (!e)
		return;
	map_remove(&t->by_prefix, &e->node);
	free(e);
}

static void free_entry(struct map_node *n, void *arg)
{
	(void)arg;
	free(CONTAINER_OF(n, struct entry, node));
}

void tokens_done(struct tokens *t)
{
	if (!t->by_prefix.buckets)
		return;
	map_each(&t->by_prefix, free_entry, NULL);
	map_done(&t->by_prefix);
}

size_t tokens_count(const struct tokens *t)
{
	return t->by_prefix.count;
}

const struct token *token_check(const struct tokens *t, const char *text, lapse_ms now)
{
	char prefix[PREFIX_DIGITS + 1], hash[HASH_DIGITS + 1];
	size_t lead = strlen(TEXT_PREFIX);

	if (strncmp(text, TEXT_PREFIX, lead) != 0 || strlen(text) < lead + PREFIX_DIGITS)
		return NULL;
	memcpy(prefix, text + lead, PREFIX_DIGITS);
	prefix[PREFIX_DIGITS] = '\0';
	const struct entry *e = find(t, prefix);
	if (!e || e->token.expires_at <= now)
		return NULL;
	hash_text(text, hash);
	return CRYPTO_memcmp(hash, e->hash, HASH_DIGITS) == 0 ? &e->token : NULL;
}

const struct token *token_find(const struct tokens *t, const char *prefix)
{
	const struct entry *e = find(t, prefix);

	return e ? &e->token : NULL;
}

#define COLUMNS "id, prefix, owner, admin, created_at, expires_at"
static const struct db_stmt ALL = { "SELECT " COLUMNS ", hash FROM tokens" };
static const struct db_stmt LIST = {
	"SELECT " COLUMNS " FROM tokens WHERE id < $1 AND expires_at > $2 ORDER BY id DESC LIMIT $3"
};
static const struct db_stmt INSERT = { "INSERT INTO tokens (" COLUMNS
				       ", hash) VALUES ($1, $2, $3, $4, $5, $6, $7)" };
static const struct db_stmt REVOKE = { "DELETE FROM tokens WHERE prefix = $1" };

static struct token read_row(const struct db_query *q)
{
	return (struct token){ .id = db_int(q, 0),
			       .prefix = db_text(q, 1),
			       .owner = db_text(q, 2),
			       .admin = db_int(q, 3) != 0,
			       .created_at = db_int(q, 4),
			       .expires_at = db_int(q, 5) };
}

int tokens_load(struct engine *e)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &ALL);
	int r;

	map_init(&e->tokens.by_prefix);
	while ((r = db_step(&q)) > 0) {
		struct token t = read_row(&q);
		remember(&e->tokens, entry_new(&t, db_text(&q, 6)));
	}
	return r;
}

static void forget_effect(struct engine *e, void *arg)
{
	forget(&e->tokens, arg);
}

static const struct db_stmt COUNT = { "SELECT count(*), coalesce(sum(admin), 0) FROM tokens" };

/* Counted in the transaction: others of the same turn may have made or revoked some. */
static int count(struct tx *tx, int64_t *ret_all, int64_t *ret_admins)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT);
	int r = db_step(&q);

	if (r <= 0)
		return r;
	*ret_all = db_int(&q, 0);
	*ret_admins = db_int(&q, 1);
	return LAPSE_OK;
}

static int check_limits(struct tx *tx, const struct token *t, struct problem *p)
{
	int64_t all = 0, admins = 0;
	int r = count(tx, &all, &admins);

	if (r < 0)
		return r;
	if (all >= tx->engine->settings->tokens_max)
		return problem_set(p, LAPSE_ELIMIT, NULL, "there are too many tokens (tokens_max)");
	if (!t->admin && admins == 0)
		return problem_set(
			p, LAPSE_ECONFLICT, "admin",
			"the first token must be an admin's, or nobody could make others");
	return LAPSE_OK;
}

static int insert(struct tx *tx, const struct token *t, const char *hash)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	db_bind_int(&q, 1, t->id);
	db_bind_text(&q, 2, t->prefix);
	db_bind_text(&q, 3, t->owner);
	db_bind_int(&q, 4, t->admin);
	db_bind_int(&q, 5, t->created_at);
	db_bind_int(&q, 6, t->expires_at);
	db_bind_text(&q, 7, hash);
	return db_run(&q);
}

/* What the effect needs to remember a new token, in the transaction's arena. */
struct newcomer {
	struct token token;
	char hash[HASH_DIGITS + 1];
};

static void welcome(struct engine *e, void *arg)
{
	const struct newcomer *n = arg;

	remember(&e->tokens, entry_new(&n->token, n->hash));
}

int token_create(struct tx *tx, struct token *token, char ret_text[TOKEN_TEXT_MAX],
		 struct arena *arena, struct problem *p)
{
	unsigned char random[TOKEN_PREFIX_BYTES + TOKEN_SECRET_BYTES];
	char prefix[PREFIX_DIGITS + 1], secret[2 * TOKEN_SECRET_BYTES + 1];
	struct newcomer *n = tx_alloc(tx, sizeof(*n));

	int r = check_limits(tx, token, p);
	if (r < 0)
		return r;
	random_bytes(random, sizeof(random));
	hex_encode(random, TOKEN_PREFIX_BYTES, prefix);
	hex_encode(random + TOKEN_PREFIX_BYTES, TOKEN_SECRET_BYTES, secret);
	snprintf(ret_text, TOKEN_TEXT_MAX, TEXT_PREFIX "%s_%s", prefix, secret);
	token->id = id_next(&tx->engine->ids, tx->now);
	token->prefix = arena_strdup(arena, prefix);
	token->created_at = tx->now;
	hash_text(ret_text, n->hash);
	n->token = *token;
	n->token.prefix = arena_strdup(&tx->arena, prefix);
	n->token.owner = arena_strdup(&tx->arena, token->owner);
	tx_effect(tx, welcome, n);
	tx_count(tx, "tokens", 1);
	return insert(tx, token, n->hash);
}

static int delete_row(struct tx *tx, const char *prefix)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &REVOKE);

	db_bind_text(&q, 1, prefix);
	int r = db_run(&q);
	if (r < 0)
		return r;
	return db_changed(&q) ? LAPSE_OK : LAPSE_ENOTFOUND;
}

int token_revoke(struct tx *tx, const char *prefix, struct problem *p)
{
	int64_t all = 0, admins = 0;
	int r = delete_row(tx, prefix);

	if (r == LAPSE_OK)
		r = count(tx, &all, &admins);
	if (r < 0)
		return r;
	if (all > 0 && admins == 0)
		return problem_set(p, LAPSE_ECONFLICT, "prefix",
				   "%.60s is the last admin token: revoke the others first",
				   prefix);
	tx_count(tx, "tokens", -1);
	tx_effect(tx, forget_effect, arena_strdup(&tx->arena, prefix));
	return LAPSE_OK;
}

int token_list(struct tx *tx, int64_t before, int64_t limit, token_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIST);
	int r;

	db_bind_int(&q, 1, before);
	db_bind_int(&q, 2, tx->now);
	db_bind_int(&q, 3, limit);
	while ((r = db_step(&q)) > 0) {
		struct token t = read_row(&q);
		fn(arg, &t);
	}
	return r;
}

static int settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tx_effect(tx, forget_effect, (void *)(uintptr_t)rows[i].group);
	return LAPSE_OK;
}

const struct bound TOKEN_BOUND = {
	.table = "tokens",
	.scheduler = "housekeeping",
	.bounded_by = "expires_at",
	.due_when = "expires_at < now",
	.safety_rule = "A token without an expiry stays until it is revoked.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.window = WINDOW_NONE,
	.event = EVENT_HOUSEKEEPING_PRUNED,
	.reason = "the token has expired",
	.newest = { "SELECT coalesce(max(id), 0) FROM tokens" },
	.due = { "SELECT count(*), min(at) FROM "
		 "(SELECT expires_at AS at FROM tokens WHERE expires_at < $1 ORDER BY 1 LIMIT "
		 "$2)" },
	.prune = { "DELETE FROM tokens WHERE expires_at < $1 AND id IN (SELECT id FROM tokens "
		   "WHERE expires_at < $1 AND (expires_at, id) > ($2, $3) "
		   "ORDER BY expires_at, id LIMIT $4) RETURNING expires_at, id, owner, prefix, 0" },
	.settle = settle,
};
