/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: who may call. A token is lapse_<prefix>_<secret>; the prefix is public and names it, the
 * store holds only a hash of the whole. All live tokens are in memory too, so checking one costs
 * no query; the memory follows the store through effects.
 */
#ifndef LAPSE_ENGINE_TOKEN_H
#define LAPSE_ENGINE_TOKEN_H

#include "base/map.h"
#include "engine/matrix.h"

#define TOKEN_PREFIX_BYTES 6  /* of randomness, 12 hex digits */
#define TOKEN_SECRET_BYTES 32 /* 256 bits */
#define TOKEN_TEXT_MAX 96

struct arena;
struct tx;
struct engine;

struct token {
	int64_t id;
	const char *prefix, *owner;
	bool admin;
	lapse_ms created_at, expires_at;
};

struct tokens {
	struct map by_prefix;
};

int tokens_load(struct engine *e);
void tokens_done(struct tokens *t);
size_t tokens_count(const struct tokens *t);

/* The live token with this text, or NULL. Borrowed until the next transaction commits. */
const struct token *token_check(const struct tokens *t, const char *text, lapse_ms now);

/* The token with this prefix, or NULL; who holds its secret is not asked. Borrowed as above. */
const struct token *token_find(const struct tokens *t, const char *prefix);

/* Makes one; its whole text goes to ret_text and is nowhere else. The first must be an admin's:
 * with it the tokenless trust in loopback ends. */
int token_create(struct tx *tx, struct token *token, char ret_text[TOKEN_TEXT_MAX],
		 struct arena *arena, struct problem *p);
/* LAPSE_ECONFLICT for the last admin token while others are left: nobody could make new ones. */
int token_revoke(struct tx *tx, const char *prefix, struct problem *p);

typedef void token_fn(void *arg, const struct token *t);
int token_list(struct tx *tx, int64_t before, int64_t limit, token_fn *fn, void *arg);

extern const struct bound TOKEN_BOUND;

#endif
