/* SPDX-License-Identifier: Apache-2.0 */
/* Making a mailbox: what may be asked for, its name, its row. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/address.h"
#include "engine/engine.h"
#include "mailbox/mailbox.h"
#include "provider/local.h"

#define RANDOM_NAMES_TRIED 5 /* of 45 random bits each: the second is never needed */

int mailbox_check_ttl(const struct settings *s, int64_t *ttl_ms, struct problem *p)
{
	if (*ttl_ms == 0)
		*ttl_ms = s->mailbox_default_ttl_ms;
	if (*ttl_ms < s->mailbox_min_ttl_ms || *ttl_ms > s->mailbox_max_ttl_ms)
		return problem_set(p, LAPSE_EINVAL, "ttl_ms",
				   "ttl_ms must be between %" PRId64 " and %" PRId64,
				   s->mailbox_min_ttl_ms, s->mailbox_max_ttl_ms);
	return LAPSE_OK;
}

static int take_domain(const struct engine *e, const char *wish, struct arena *arena,
		       const char **ret, struct problem *p)
{
	char *own = arena_strdup(arena, e->settings->mailbox_domain);
	const char *why;

	ascii_lower(own);
	*ret = own;
	if (!wish)
		return LAPSE_OK;
	char *domain = arena_strdup(arena, wish);
	ascii_lower(domain);
	if (!host_is_valid(domain, &why))
		return problem_set(p, LAPSE_EINVAL, "domain", "domain %s", why);
	if (!mailboxes_of(e)->provider && strcmp(domain, own) != 0)
		return problem_set(p, LAPSE_EINVAL, "domain",
				   "domain must be %.200s: mailboxes of the provider local have "
				   "no other",
				   own);
	*ret = domain;
	return LAPSE_OK;
}

static int take_username(const char *wish, struct arena *arena, const char **ret, struct problem *p)
{
	char *name = arena_strdup(arena, wish);

	ascii_lower(name);
	if (!username_is_valid(name))
		return problem_set(p, LAPSE_EINVAL, "username",
				   "username must be %d to %d letters, digits, '.' or '-', with a "
				   "letter or digit at both ends and no two of '.-' in a row",
				   USERNAME_MIN, USERNAME_MAX);
	*ret = name;
	return LAPSE_OK;
}

static int check_mailbox_limit(struct tx *tx, const char *owner, struct problem *p)
{
	int64_t max = tx->engine->settings->mailboxes_max;

	if (tx_live(tx, &MAILBOX_BOUND) >= max)
		return problem_set(p, LAPSE_ELIMIT, NULL,
				   "there are %" PRId64
				   " mailboxes already (mailboxes_max): let some expire first",
				   max);
	return quota_take(tx, owner, QUOTA_MAILBOXES, p);
}

static const struct db_stmt INSERT = {
	"INSERT INTO mailboxes (" MAILBOX_COLUMNS ") "
	"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '', $11, 0, 0) ON CONFLICT DO NOTHING"
};

/* 1 = the row is there, 0 = its address is taken. */
static int insert_mailbox(struct tx *tx, const struct mailbox *m)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, m->id);
	db_bind_text(&q, 2, m->owner);
	db_bind_text(&q, 3, m->address);
	db_bind_text(&q, 4, m->username);
	db_bind_text(&q, 5, m->domain);
	db_bind_text(&q, 6, mailbox_status_name(m->status));
	db_bind_int(&q, 7, m->created_at);
	db_bind_int(&q, 8, m->expires_at);
	db_bind_text(&q, 9, m->provider);
	db_bind_text(&q, 10, m->stalwart_name);
	db_bind_text(&q, 11, m->secret);
	int r = db_run(&q);
	return r < 0 ? r : db_changed(&q) > 0;
}

/* The condition of the index on addresses, word for word: else SQLite would walk the table. */
static const struct db_stmt HOLDER = {
	"SELECT " MAILBOX_COLUMNS " FROM mailboxes WHERE address = $1 AND "
	"(status IN ('provisioning', 'active') OR stalwart_cleanup_failed <> 0)"
};

static int find_holder(struct tx *tx, const char *address, struct arena *arena, struct mailbox *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HOLDER);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, address);
	int r = db_step(&q);
	if (r > 0) {
		struct mailbox m = mailbox_read_row(&q);
		*ret = mailbox_copy(arena, &m);
	}
	return r;
}

/* As insert_mailbox(). A mailbox that has the address and is due expires first, as it would when it
 * is looked at. */
static int take_address(struct tx *tx, struct arena *arena, const struct mailbox *m)
{
	struct mailbox holder;
	int r = insert_mailbox(tx, m);

	if (r != 0)
		return r;
	r = find_holder(tx, m->address, arena, &holder);
	if (r > 0)
		r = mailbox_expire(tx, &holder);
	return r > 0 ? insert_mailbox(tx, m) : r;
}

static const char *random_name(struct arena *arena)
{
	unsigned char bytes[USERNAME_RANDOM_BYTES];
	char *name = arena_alloc(arena, USERNAME_MAX + 1);

	random_bytes(bytes, sizeof(bytes));
	username_make(bytes, name);
	return name;
}

/* The name that was asked for, or random ones until one is free. */
static int insert_named(struct tx *tx, const char *wish, struct arena *arena, struct mailbox *m,
			struct problem *p)
{
	int r = wish ? take_username(wish, arena, &m->username, p) : LAPSE_OK;
	int inserted = 0;

	for (int i = 0; r == LAPSE_OK && inserted == 0 && i < (wish ? 1 : RANDOM_NAMES_TRIED);
	     i++) {
		if (!wish)
			m->username = random_name(arena);
		m->address = m->stalwart_name =
			arena_printf(arena, "%s@%s", m->username, m->domain);
		inserted = take_address(tx, arena, m);
		r = inserted < 0 ? inserted : LAPSE_OK;
	}
	if (r == LAPSE_OK && !inserted)
		r = problem_set(p, LAPSE_ECONFLICT, "username", "%.200s is taken", m->address);
	return r;
}

int mailbox_create(struct tx *tx, const char *owner, const struct mailbox_wish *wish,
		   struct arena *arena, struct mailbox *ret, struct problem *p)
{
	const struct engine *e = tx->engine;
	const struct provider *outside = mailboxes_of(e)->provider;
	int64_t ttl_ms = wish->ttl_ms;
	struct mailbox m = { .id = wish->id ? wish->id : id_next(&tx->engine->ids, tx->now),
			     .owner = owner,
			     .status = outside ? MAILBOX_PROVISIONING : MAILBOX_ACTIVE,
			     .created_at = tx->now,
			     .provider = outside ? outside->name : PROVIDER_LOCAL.name,
			     .stalwart_account = "",
			     .secret = wish->secret ? wish->secret : "" };
	int r = mailbox_check_ttl(e->settings, &ttl_ms, p);

	m.expires_at = time_add(tx->now, ttl_ms);
	if (r == LAPSE_OK)
		r = take_domain(e, wish->domain, arena, &m.domain, p);
	if (r == LAPSE_OK)
		r = check_mailbox_limit(tx, owner, p);
	if (r == LAPSE_OK)
		r = insert_named(tx, wish->username, arena, &m, p);
	if (r < 0)
		return r;
	tx_count(tx, &MAILBOX_BOUND, 1);
	*ret = m;
	return m.status == MAILBOX_ACTIVE ? mailbox_activate(tx, ret) : LAPSE_OK;
}

static const struct db_stmt ACTIVATE = {
	"UPDATE mailboxes SET status = 'active', stalwart_account = $2 "
	"WHERE id = $1 AND status = 'provisioning'"
};

int mailbox_activate(struct tx *tx, struct mailbox *m)
{
	assert(tx_can_write(tx));
	if (m->status == MAILBOX_PROVISIONING) {
		struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ACTIVATE);
		db_bind_int(&q, 1, m->id);
		db_bind_text(&q, 2, m->stalwart_account);
		int r = db_post(&q, DB_ONE_OR(LAPSE_EUNAVAILABLE));
		if (r < 0)
			return r;
		m->status = MAILBOX_ACTIVE;
	}
	mailbox_note_deadline(tx, m->expires_at);
	return mailbox_announce(tx, EVENT_MAILBOX_CREATED, m);
}

int mailbox_forget(struct tx *tx, const struct mailbox *m)
{
	return mailbox_drop_live(tx, m);
}
