/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: who may call. A token is lapse_<prefix>_<secret>; the prefix is public and names it, the
 * store holds only a hash of the whole. All live tokens are in memory too, so checking one costs
 * no query; the memory follows the store through effects.
 */
#ifndef LAPSE_ENGINE_TOKEN_H
#define LAPSE_ENGINE_TOKEN_H

#include "base/list.h"
#include "base/map.h"
#include "engine/matrix.h"
#include "engine/scope.h"

#define TOKEN_PREFIX_BYTES 6  /* of randomness, 12 hex digits */
#define TOKEN_SECRET_BYTES 32 /* 256 bits */
#define TOKEN_TEXT_MAX 96
#define TOKEN_NAME_MAX 128

struct arena;
struct tx;
struct engine;

struct token {
	int64_t id;
	const char *prefix, *owner;
	const char *name; /* for people; "" = none */
	scope_set scopes;
	bool admin;
	lapse_ms created_at, expires_at;
	lapse_ms last_used_at; /* 0 = never */
};

struct tokens {
	struct map by_prefix;
	struct list used;  /* those whose last use is not written down yet */
	lapse_us store_at; /* monotonic: when it will be; meaningless while there are none */
};

int tokens_load(struct engine *e);
int tokens_reload(struct engine *e); /* the memory follows what another replica changed */
void tokens_done(struct tokens *t);
size_t tokens_count(const struct tokens *t);

/* The live token with this text, or NULL. Borrowed until the next transaction commits. */
const struct token *token_check(const struct tokens *t, const char *text, lapse_ms now);

/* Notes that the token was used. The time is written down within TOKEN_USE_EVERY_US, and when the
 * engine stops: a crash loses at most that. */
#define TOKEN_USE_EVERY_US (INT64_C(60) * 1000000)
void token_used(struct engine *e, const struct token *token);
void tokens_tick(struct engine *e);
lapse_us tokens_next_us(const struct engine *e);
void tokens_stop(struct engine *e);

/* The token with this prefix, or NULL; who holds its secret is not asked. Borrowed as above. */
const struct token *token_find(const struct tokens *t, const char *prefix);

/* Makes one; its whole text goes to ret_text and is nowhere else. The first must be an admin's
 * that may do everything: with it the tokenless trust in loopback ends. `by` is the prefix of the
 * token that asks for it, NULL = there is none; the event says so. */
int token_create(struct tx *tx, struct token *token, const char *by, char ret_text[TOKEN_TEXT_MAX],
		 struct arena *arena, struct problem *p);
/* LAPSE_ECONFLICT for the last admin token that may do everything, while other tokens are left:
 * only such a one can make others like it. */
int token_revoke(struct tx *tx, const char *prefix, const char *by, struct problem *p);

typedef void token_fn(void *arg, const struct token *t);
int token_list(struct tx *tx, int64_t before, int64_t limit, token_fn *fn, void *arg);

extern const struct bound_spec TOKEN_BOUND;

#endif
