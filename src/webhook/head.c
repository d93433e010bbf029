/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a post: the secret of a webhook, sealed in the store, and the signature made with it.
 */
#include <assert.h>

#include "base/secret.h"
#include "engine/sealed.h"
#include "webhook/post.h"
#include "webhook/rules.h"

static int webhooks_open_key(struct engine *e, struct problem *p)
{
	struct webhooks *w = webhooks_of(e);

	if (w->has_key)
		return LAPSE_OK;
	int r = sealed_key(e, &w->key, p);
	if (r == LAPSE_ENOTFOUND)
		r = problem_set(p, LAPSE_EUNAVAILABLE, NULL,
				SEAL_KEY_NAME " is missing, and secrets were sealed with it: put "
					      "it back, or delete the webhooks");
	w->has_key = r == LAPSE_OK;
	return r;
}

int webhooks_seal(struct engine *e, int64_t id, const char *secret, struct arena *arena,
		  const char **ret, struct problem *p)
{
	struct buf CLEANUP(buf_done) sealed = { 0 };
	char context[WEBHOOK_ID_LEN + 1];
	int r = webhooks_open_key(e, p);

	assert(id > 0 && secret[0]);
	webhook_id_format(id, context);
	if (r == LAPSE_OK)
		r = seal_close(&webhooks_of(e)->key, context, secret, &sealed);
	if (r == LAPSE_OK)
		*ret = arena_strdup(arena, buf_text(&sealed));
	return r;
}

static int webhooks_open_secret(struct engine *e, const struct webhook *w, struct buf *out,
				struct problem *p)
{
	char context[WEBHOOK_ID_LEN + 1];
	int r = webhooks_open_key(e, p);

	assert(w->id > 0 && w->secret[0]);
	webhook_id_format(w->id, context);
	if (r == LAPSE_OK)
		r = seal_open(&webhooks_of(e)->key, context, w->secret, out);
	if (r == LAPSE_ECORRUPT)
		return problem_set(p, r, NULL,
				   "the secret was sealed with another key than " SEAL_KEY_NAME);
	return r;
}

int webhook_head(struct engine *e, const struct webhook *w, int64_t seq, const struct buf *body,
		 struct buf headers[3], const char *lines[WEBHOOK_HEAD_LINES], struct problem *p)
{
	const int64_t at_s = clock_wall(e->system) / 1000;
	struct buf secret = { 0 };
	char id[ID_TEXT_LEN + 1];
	int r = webhooks_open_secret(e, w, &secret, p);

	assert(body->len > 0 && w->id > 0);
	id_format(seq, id);
	for (int i = 0; i < 3; i++)
		buf_clear(&headers[i]);
	if (r == LAPSE_OK) {
		buf_printf(&headers[0], "webhook-id: %s", id);
		buf_printf(&headers[1], "webhook-timestamp: %lld", (long long)at_s);
		buf_puts(&headers[2], "webhook-signature: ");
		webhook_sign(buf_text(&secret), id, at_s, body->data, body->len, &headers[2]);
	}
	secret_wipe(&secret);
	lines[0] = "Content-Type: application/cloudevents+json";
	for (int i = 0; i < 3; i++)
		lines[i + 1] = buf_text(&headers[i]);
	lines[WEBHOOK_HEAD_LINES - 1] = NULL;
	return r;
}
