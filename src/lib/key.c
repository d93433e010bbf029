/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/key.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/field.h"
#include "api/idempotency.h"

#define KEY_STATUS 200 /* a row needs one; HTTP has others */

static struct idempotency key_of(const struct lapse_store *s)
{
	struct idempotency i = { .owner = s->owner, .key = s->key };

	memcpy(i.request, s->key_request, sizeof(i.request));
	return i;
}

void key_say(struct buf *said, const char *text)
{
	buf_puts(said, text ? "=" : "-");
	buf_puts(said, text ? text : "");
	buf_add(said, "", 1); /* the NUL keeps arguments apart */
}

int key_begin(struct lapse_store *s, const char *call, const struct buf *said, struct arena *arena,
	      const char **ret_answer)
{
	struct idempotency i = { .owner = s->owner, .key = s->key };
	int status;

	if (!s->key[0])
		return LAPSE_OK;
	assert(s->in_tx && s->tx.write);
	idempotency_hash(&i, "library", call, buf_text(said), said->len);
	memcpy(s->key_request, i.request, sizeof(s->key_request));
	int r = idempotency_begin(&s->tx, &i, arena, &status, ret_answer);
	assert(r != LAPSE_ECONFLICT); /* one call at a time, and recovered when the store opened */
	if (r == LAPSE_EUNPROCESSABLE)
		return problem_set(&s->problem, r, "idempotency_key", "%s", idempotency_refusal(r));
	s->replayed = r > 0;
	assert(r <= 1);
	return r;
}

int key_end(struct lapse_store *s, const char *answer)
{
	const struct idempotency i = key_of(s);

	assert(s->in_tx && !s->replayed);
	return s->key[0] ? idempotency_end(&s->tx, &i, KEY_STATUS, answer) : LAPSE_OK;
}

int key_undo(struct lapse_store *s)
{
	const struct idempotency i = key_of(s);

	return s->key[0] ? idempotency_drop(&s->tx, &i) : LAPSE_OK;
}

void key_done(struct lapse_store *s)
{
	s->key[0] = '\0';
}

int lapse_set_idempotency_key(struct lapse_store *store, const char *key)
{
	int r = store_enter(store);

	if (r == LAPSE_OK && key)
		r = field_key(key, "key", &store->problem);
	if (r == LAPSE_OK)
		snprintf(store->key, sizeof(store->key), "%s", key ? key : "");
	return store_end(store, r);
}

bool lapse_was_replayed(const struct lapse_store *store)
{
	return store->err == LAPSE_OK && store->replayed;
}
