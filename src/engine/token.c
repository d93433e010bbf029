/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/token.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/tx.h"

#define TEXT_PREFIX "lapse_"
#define PREFIX_DIGITS ((size_t)2 * TOKEN_PREFIX_BYTES)
#define HASH_DIGITS ((size_t)2 * SHA256_DIGEST_LENGTH)

/* A token in memory. */
struct entry {
	struct map_node node; /* by token.prefix */
	struct list used;     /* in tokens.used */
	struct token token;
	char hash[HASH_DIGITS + 1];
	bool found;  /* by tokens_reload() */
	char text[]; /* prefix NUL owner NUL name NUL */
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
	size_t name = strlen(t->name) + 1;
	struct entry *e = mem_zalloc(1, sizeof(*e) + prefix + owner + name);

	e->token = *t;
	list_init(&e->used);
	e->token.prefix = memcpy(e->text, t->prefix, prefix);
	e->token.owner = memcpy(e->text + prefix, t->owner, owner);
	e->token.name = memcpy(e->text + prefix + owner, t->name, name);
	snprintf(e->hash, sizeof(e->hash), "%s", hash);
	return e;
}

static struct entry *token_entry_find(const struct tokens *t, const char *prefix)
{
	struct map_node *n = map_find(&t->by_prefix, prefix);

	return n ? CONTAINER_OF(n, struct entry, node) : NULL;
}

static void token_remember(struct tokens *t, struct entry *e)
{
	assert(!token_entry_find(t, e->token.prefix));
	map_insert(&t->by_prefix, &e->node, e->token.prefix);
}

static void token_forget(struct tokens *t, const char *prefix)
{
	struct entry *e = token_entry_find(t, prefix);

	if (!e)
		return;
	map_remove(&t->by_prefix, &e->node);
	list_remove(&e->used);
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
	const struct entry *e = token_entry_find(t, prefix);
	if (!e || e->token.expires_at <= now)
		return NULL;
	hash_text(text, hash);
	return CRYPTO_memcmp(hash, e->hash, HASH_DIGITS) == 0 ? &e->token : NULL;
}

const struct token *token_find(const struct tokens *t, const char *prefix)
{
	const struct entry *e = token_entry_find(t, prefix);

	return e ? &e->token : NULL;
}

#define COLUMNS "id, prefix, owner, admin, created_at, expires_at, name, scopes, last_used_at"
static const struct db_stmt ALL = { "SELECT " COLUMNS ", hash FROM tokens" };
static const struct db_stmt LIST = {
	"SELECT " COLUMNS " FROM tokens WHERE id < $1 AND expires_at > $2 ORDER BY id DESC LIMIT $3"
};
static const struct db_stmt INSERT = { "INSERT INTO tokens (" COLUMNS
				       ", hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)" };
static const struct db_stmt GET = { "SELECT " COLUMNS " FROM tokens WHERE prefix = $1" };
static const struct db_stmt REVOKE = { "DELETE FROM tokens WHERE prefix = $1" };

static struct token token_read_row(const struct db_query *q)
{
	return (struct token){ .id = db_int(q, 0),
			       .prefix = db_text(q, 1),
			       .owner = db_text(q, 2),
			       .admin = db_int(q, 3) != 0,
			       .created_at = db_int(q, 4),
			       .expires_at = db_int(q, 5),
			       .name = db_text(q, 6),
			       .scopes = scope_parse(db_text(q, 7)),
			       .last_used_at = db_int(q, 8) };
}

int tokens_load(struct engine *e)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &ALL);
	int r;

	map_init(&e->tokens.by_prefix);
	list_init(&e->tokens.used);
	while ((r = db_step(&q)) > 0) {
		struct token t = token_read_row(&q);
		token_remember(&e->tokens, entry_new(&t, db_text(&q, 9)));
	}
	return r;
}

static void token_unmark(struct map_node *n, void *arg)
{
	(void)arg;
	CONTAINER_OF(n, struct entry, node)->found = false;
}

/* One that is gone; a map must not change while it is walked. */
static void token_pick_gone(struct map_node *n, void *arg)
{
	struct entry **gone = arg;
	struct entry *e = CONTAINER_OF(n, struct entry, node);

	if (!e->found)
		*gone = e;
}

int tokens_reload(struct engine *e)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &ALL);
	struct entry *gone;
	int r;

	map_each(&e->tokens.by_prefix, token_unmark, NULL);
	while ((r = db_step(&q)) > 0) {
		struct token t = token_read_row(&q);
		struct entry *x = token_entry_find(&e->tokens, t.prefix);
		if (!x) {
			x = entry_new(&t, db_text(&q, 9));
			token_remember(&e->tokens, x);
		}
		x->found = true;
	}
	if (r < 0)
		return r;
	do {
		gone = NULL;
		map_each(&e->tokens.by_prefix, token_pick_gone, &gone);
		if (gone)
			token_forget(&e->tokens, gone->token.prefix);
	} while (gone);
	return LAPSE_OK;
}

static void forget_effect(struct engine *e, void *arg)
{
	token_forget(&e->tokens, arg);
}

/* The admins that count may do everything. */
static const struct db_stmt COUNT = {
	"SELECT count(*), count(CASE WHEN admin = 1 AND scopes = 'read write' THEN 1 END) "
	"FROM tokens"
};

/* Counted in the transaction: requests of the same turn may have made or revoked tokens. */
static int token_count(struct tx *tx, int64_t *ret_all, int64_t *ret_admins)
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
	int r = token_count(tx, &all, &admins);

	if (r < 0)
		return r;
	if (all >= tx->engine->settings->tokens_max)
		return problem_set(p, LAPSE_ELIMIT, NULL, "there are too many tokens (tokens_max)");
	if (admins == 0 && (!t->admin || t->scopes != SCOPE_ALL))
		return problem_set(
			p, LAPSE_ECONFLICT, t->admin ? "scopes" : "admin",
			"the first token must be an admin's%s: only such a token can make others",
			t->admin ? " without scopes" : "");
	return LAPSE_OK;
}

static int token_insert(struct tx *tx, const struct token *t, const char *hash)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);
	struct buf CLEANUP(buf_done) scopes = { 0 };

	assert(tx_can_write(tx) && strlen(hash) == HASH_DIGITS);
	scope_put(&scopes, t->scopes);
	db_bind_int(&q, 1, t->id);
	db_bind_text(&q, 2, t->prefix);
	db_bind_text(&q, 3, t->owner);
	db_bind_int(&q, 4, t->admin);
	db_bind_int(&q, 5, t->created_at);
	db_bind_int(&q, 6, t->expires_at);
	db_bind_text(&q, 7, t->name);
	db_bind_text(&q, 8, buf_text(&scopes));
	db_bind_int(&q, 9, t->last_used_at);
	db_bind_text(&q, 10, hash);
	return db_post(&q, DB_ONE);
}

/* What the effect needs to remember a new token, in the transaction's arena. */
struct newcomer {
	struct token token;
	char hash[HASH_DIGITS + 1];
};

static void welcome(struct engine *e, void *arg)
{
	const struct newcomer *n = arg;

	token_remember(&e->tokens, entry_new(&n->token, n->hash));
}

/* For the operators' audit: the secret is not in it. */
static int token_announce(struct tx *tx, enum event_kind kind, const struct token *t,
			  const char *by)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	struct buf CLEANUP(buf_done) scopes = { 0 };

	scope_put(&scopes, t->scopes);
	json_begin(&data, '{');
	json_put_text(&data, "prefix", t->prefix);
	json_put_text(&data, "owner", t->owner);
	json_put_text(&data, "name", t->name);
	json_put_text(&data, "scopes", buf_text(&scopes));
	json_put_bool(&data, "admin", t->admin);
	json_put_time(&data, "expires_at", t->expires_at);
	json_put_text(&data, "by", by);
	json_end(&data, '}');
	return event_add(tx, "", kind, &data);
}

int token_create(struct tx *tx, struct token *token, const char *by, char ret_text[TOKEN_TEXT_MAX],
		 struct arena *arena, struct problem *p)
{
	unsigned char random[TOKEN_PREFIX_BYTES + TOKEN_SECRET_BYTES];
	char prefix[PREFIX_DIGITS + 1], secret[2 * TOKEN_SECRET_BYTES + 1];
	struct newcomer *n = tx_alloc(tx, sizeof(*n));

	assert(tx->write && token->owner && token->name);
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
	n->token.name = arena_strdup(&tx->arena, token->name);
	tx_effect(tx, welcome, n);
	tx_count(tx, &TOKEN_BOUND, 1);
	r = token_insert(tx, token, n->hash);
	if (r == LAPSE_OK)
		r = cluster_tell(tx, "tokens", "");
	return r < 0 ? r : token_announce(tx, EVENT_TOKEN_CREATED, token, by);
}

static int token_delete_row(struct tx *tx, const char *prefix)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &REVOKE);

	db_bind_text(&q, 1, prefix);
	return db_post(&q, DB_ONE_OR(LAPSE_ENOTFOUND));
}

/* The event while the row is still there to tell. */
static int token_announce_end(struct tx *tx, const char *prefix, const char *by)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);

	db_bind_text(&q, 1, prefix);
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	struct token t = token_read_row(&q);
	return token_announce(tx, EVENT_TOKEN_REVOKED, &t, by);
}

int token_revoke(struct tx *tx, const char *prefix, const char *by, struct problem *p)
{
	int64_t all = 0, admins = 0;
	int r = token_announce_end(tx, prefix, by);

	if (r == LAPSE_OK)
		r = token_delete_row(tx, prefix);
	if (r == LAPSE_OK)
		r = token_count(tx, &all, &admins);
	if (r < 0)
		return r;
	if (all > 0 && admins == 0)
		return problem_set(p, LAPSE_ECONFLICT, "prefix",
				   "%.60s is the last admin token without scopes: revoke the "
				   "others first",
				   prefix);
	tx_count(tx, &TOKEN_BOUND, -1);
	tx_effect(tx, forget_effect, arena_strdup(&tx->arena, prefix));
	return cluster_tell(tx, "tokens", "");
}

int token_list(struct tx *tx, int64_t before, int64_t limit, token_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIST);
	int r;

	db_bind_int(&q, 1, before);
	db_bind_int(&q, 2, tx->now);
	db_bind_int(&q, 3, limit);
	while ((r = db_step(&q)) > 0) {
		struct token t = token_read_row(&q);
		const struct token *known = token_find(&tx->engine->tokens, t.prefix);
		if (known && known->last_used_at > t.last_used_at)
			t.last_used_at = known->last_used_at;
		fn(arg, &t);
	}
	return r;
}

/* The last use */

void token_used(struct engine *e, const struct token *token)
{
	struct tokens *t = &e->tokens;
	struct entry *x = CONTAINER_OF(token, struct entry, token);

	x->token.last_used_at = clock_wall(e->clock);
	if (list_is_linked(&x->used))
		return;
	if (list_empty(&t->used))
		t->store_at = clock_mono(e->clock) + TOKEN_USE_EVERY_US;
	list_append(&t->used, &x->used);
}

static const struct db_stmt USED = {
	"UPDATE tokens SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2"
};

static int token_store_uses(struct tx *tx, void *arg)
{
	const struct list *used = &tx->engine->tokens.used;

	(void)arg;
	for (const struct list *l = used->next; l != used; l = l->next) {
		const struct token *t = &CONTAINER_OF(l, struct entry, used)->token;
		struct db_query CLEANUP(db_finish) q = db_query(tx->db, &USED);
		db_bind_int(&q, 1, t->id);
		db_bind_int(&q, 2, t->last_used_at);
		int r = db_post(&q, DB_ANY); /* another process may have written a later one */
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

/* What could not be written stays to be written. */
static void tokens_store(struct engine *e)
{
	struct tokens *t = &e->tokens;

	t->store_at = clock_mono(e->clock) + TOKEN_USE_EVERY_US;
	if (list_empty(&t->used) || job_do(e, JOB_LAZY, token_store_uses, NULL) < 0)
		return;
	while (!list_empty(&t->used))
		list_shift(&t->used);
}

void tokens_tick(struct engine *e)
{
	if (tokens_next_us(e) == 0)
		tokens_store(e);
}

lapse_us tokens_next_us(const struct engine *e)
{
	lapse_us in = e->tokens.store_at - clock_mono(e->clock);

	if (list_empty(&e->tokens.used))
		return INT64_MAX;
	return in > 0 ? in : 0;
}

void tokens_stop(struct engine *e)
{
	tokens_store(e);
}

static int token_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tx_effect(tx, forget_effect, (void *)(uintptr_t)rows[i].group);
	return cluster_tell(tx, "tokens", "");
}

const struct bound_spec TOKEN_BOUND = {
	.name = "tokens",
	.scheduler = "housekeeping",
	.bounded_by = "expires_at",
	.due_when = "expires_at < now",
	.safety_rule = "A token without an expiry stays until it is revoked.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "expires_at",
	.event = "housekeeping.lifecycle_pruned",
	.reason = "the token has expired",
	.owner = "owner",
	.known_by = "t.prefix = $2",
	.shown = BOUND_COLUMNS("prefix"),
	.group = "prefix",
	.settle = token_settle,
};
