/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of the room `mailbox`. A look at a mailbox can be what lets it expire: then the room
 * asks for a write transaction or a commit, and the operation runs again (store_again()).
 */
#include "mailbox/mailbox.h"

#include <assert.h>
#include <string.h>

#include "base/address.h"
#include "lib/check.h"
#include "lib/key.h"
#include "lib/store.h"
#include "provider/local.h"

static_assert(LAPSE_MAILBOX_ID_SIZE == MAILBOX_ID_LEN + 1, "as the public header says");
static_assert((int)LAPSE_CLEANUP_CLEAN == (int)ACCOUNT_CLEAN &&
		      (int)LAPSE_CLEANUP_PENDING == (int)ACCOUNT_PENDING &&
		      (int)LAPSE_CLEANUP_DEAD == (int)ACCOUNT_DEAD_LETTER,
	      "the public header says what becomes of an account");

/* Showing */

static void mailbox_show_one(const struct mailbox *m, lapse_ms now, lapse_mailbox_fn *fn, void *arg)
{
	char id[LAPSE_MAILBOX_ID_SIZE];
	struct lapse_mailbox v = { .id = id,
				   .address = m->address,
				   .username = m->username,
				   .domain = m->domain,
				   .provider = m->provider,
				   .expired = !mailbox_is_live(m->status, m->expires_at, now),
				   .created_at = m->created_at,
				   .expires_at = m->expires_at,
				   .cleanup = (enum lapse_cleanup)mailbox_account(
					   m->status, m->expires_at, m->cleanup_failed, now),
				   .cleanup_attempts = m->cleanup_attempts };

	mailbox_id_format(m->id, id);
	if (fn)
		fn(arg, &v);
}

/* The end of a call that shows one mailbox once what it did is durable. */
static int mailbox_end(struct lapse_store *s, int err, struct arena *arena, const struct mailbox *m,
		       lapse_mailbox_fn *fn, void *arg)
{
	err = store_commit(s, check_blame(err, "id", &s->problem));
	if (err == LAPSE_OK)
		mailbox_show_one(m, s->tx.now, fn, arg);
	arena_done(arena);
	return store_end(s, err);
}

static int mailbox_enter(struct lapse_store *s, const char *id)
{
	int r = store_enter(s);

	return r < 0 ? r : check_mailbox(id, "id", &s->problem);
}

/* Making */

/* 0 is the room's word for the default, and no lifetime for the caller. */
static int64_t ttl_for_room(lapse_ms ttl_ms)
{
	if (ttl_ms == LAPSE_TTL_DEFAULT)
		return 0;
	return ttl_ms > 0 ? ttl_ms : -1;
}

/* What is kept with an idempotency key: all that the caller was shown. */
struct made {
	const char *id, *address, *username, *domain;
	int64_t created_at, expires_at;
};

static const struct json_field MADE_FIELDS[] = {
	{ "id", FIELD_TEXT, true, offsetof(struct made, id), 1, MAILBOX_ID_LEN, "" },
	{ "address", FIELD_TEXT, true, offsetof(struct made, address), 1, ADDRESS_MAX, "" },
	{ "username", FIELD_TEXT, true, offsetof(struct made, username), 1, ADDRESS_MAX, "" },
	{ "domain", FIELD_TEXT, true, offsetof(struct made, domain), 1, ADDRESS_MAX, "" },
	{ "created_at", FIELD_INT, true, offsetof(struct made, created_at), 0, INT64_MAX, "" },
	{ "expires_at", FIELD_INT, true, offsetof(struct made, expires_at), 0, INT64_MAX, "" },
	{ 0 },
};

static void write_made(struct buf *out, const struct mailbox *m)
{
	char id[LAPSE_MAILBOX_ID_SIZE];

	mailbox_id_format(m->id, id);
	json_begin(out, '{');
	json_put_text(out, "id", id);
	json_put_text(out, "address", m->address);
	json_put_text(out, "username", m->username);
	json_put_text(out, "domain", m->domain);
	json_put_int(out, "created_at", m->created_at);
	json_put_int(out, "expires_at", m->expires_at);
	json_end(out, '}');
}

static int read_made(const char *answer, struct arena *arena, struct mailbox *ret,
		     struct problem *p)
{
	json_t *CLEANUP(json_freep) object = NULL;
	struct made made = { 0 };
	struct mailbox m = { .status = MAILBOX_ACTIVE, .provider = PROVIDER_LOCAL.name };
	int r = json_parse_object(answer, strlen(answer), &object, p);

	if (r == LAPSE_OK)
		r = fields_decode(object, MADE_FIELDS, &made, p);
	if (r < 0 || !mailbox_id_parse(made.id, &m.id))
		return problem_set(p, LAPSE_ECORRUPT, NULL, "the key's first answer is damaged");
	m.address = arena_strdup(arena, made.address);
	m.username = arena_strdup(arena, made.username);
	m.domain = arena_strdup(arena, made.domain);
	m.created_at = made.created_at;
	m.expires_at = made.expires_at;
	*ret = m;
	return LAPSE_OK;
}

static int create_once(struct lapse_store *s, const struct mailbox_wish *wish, struct arena *arena,
		       struct mailbox *ret)
{
	struct buf CLEANUP(buf_done) said = { 0 }, made = { 0 };
	const char *answer = "";

	key_say(&said, wish->username);
	key_say(&said, wish->domain);
	json_int(&said, wish->ttl_ms);
	int r = key_begin(s, "lapse_mailbox_create", &said, arena, &answer);
	if (r > 0)
		return read_made(answer, arena, ret, &s->problem);
	if (r == LAPSE_OK)
		r = mailbox_create(&s->tx, s->owner, wish, arena, ret, &s->problem);
	if (r < 0)
		return r;
	write_made(&made, ret);
	return key_end(s, buf_text(&made));
}

int lapse_mailbox_create(struct lapse_store *store, const char *username, const char *domain,
			 lapse_ms ttl_ms, lapse_mailbox_fn *fn, void *arg)
{
	struct mailbox_wish wish = { .username = username,
				     .domain = domain,
				     .ttl_ms = ttl_for_room(ttl_ms) };
	struct mailbox m = { 0 };
	struct arena arena;
	int r = store_enter(store);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = create_once(store, &wish, &arena, &m);
	key_done(store);
	return mailbox_end(store, r, &arena, &m, fn, arg);
}

/* Looking */

/* Finds it as the room does, in a transaction that goes on. */
static int mailbox_look_on(struct lapse_store *s, const char *id, enum mailbox_use use,
			   struct arena *arena, struct mailbox *ret)
{
	int r;

	do
		r = mailbox_look(&s->tx, s->owner, id, use, arena, ret, &s->problem);
	while (store_again(s, &r));
	return r;
}

int lapse_mailbox_get(struct lapse_store *store, const char *id, lapse_mailbox_fn *fn, void *arg)
{
	struct mailbox m = { 0 };
	struct arena arena;
	int r = mailbox_enter(store, id);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = mailbox_look_on(store, id, MAILBOX_INFO, &arena, &m);
	return mailbox_end(store, r, &arena, &m, fn, arg);
}

struct reader {
	uint32_t magic;
	lapse_mailbox_fn *fn;
	void *arg;
	lapse_ms now;
};

static void show_one(void *arg, const struct mailbox *m)
{
	const struct reader *reader = arg;

	assert(reader->magic == READER_MAGIC);
	mailbox_show_one(m, reader->now, reader->fn, reader->arg);
}

static int expire_owned(struct lapse_store *s)
{
	int r;

	do
		r = mailbox_expire_owned(&s->tx, s->owner);
	while (store_again(s, &r));
	return r;
}

int lapse_mailbox_list(struct lapse_store *store, bool include_expired, const char *before,
		       int64_t limit, lapse_mailbox_fn *fn, void *arg)
{
	struct reader reader = { .magic = READER_MAGIC, .fn = fn, .arg = arg };
	int64_t below = INT64_MAX;
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK && before && !mailbox_id_parse(before, &below))
		r = problem_set(&store->problem, LAPSE_EINVAL, "before",
				"before must be the id of a mailbox");
	if (r == LAPSE_OK)
		r = expire_owned(store);
	reader.now = store->tx.now;
	if (r == LAPSE_OK)
		r = mailbox_list(&store->tx, store->owner, include_expired, below, limit, show_one,
				 &reader);
	return store_end(store, r);
}

/* Changing */

int lapse_mailbox_renew(struct lapse_store *store, const char *id, lapse_ms ttl_ms,
			lapse_mailbox_fn *fn, void *arg)
{
	int64_t ttl = ttl_for_room(ttl_ms);
	struct mailbox m = { 0 };
	struct arena arena;
	int r = mailbox_enter(store, id);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = mailbox_look_on(store, id, MAILBOX_OPERATE, &arena, &m);
	if (r == LAPSE_OK)
		r = mailbox_check_ttl(&store->settings, &ttl, &store->problem);
	if (r == LAPSE_OK)
		r = mailbox_renew(&store->tx, &m, ttl);
	return mailbox_end(store, r, &arena, &m, fn, arg);
}

int lapse_mailbox_delete(struct lapse_store *store, const char *id)
{
	int r = mailbox_enter(store, id);

	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = mailbox_delete(&store->tx, store->owner, id, &store->problem);
	return store_end(store, check_blame(r, "id", &store->problem));
}
