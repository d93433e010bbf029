/* SPDX-License-Identifier: Apache-2.0 */
#include "mailbox/mailbox.h"

#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "provider/deliver.h"
#include "provider/local.h"

#define OWNED_AT_ONCE 100 /* due ones that a list lets expire */

/* Rows and ids */

void mailbox_id_format(int64_t id, char out[MAILBOX_ID_LEN + 1])
{
	id_format(id, stpcpy(out, "mbx_"));
}

bool mailbox_id_parse(const char *text, int64_t *ret)
{
	return strncmp(text, "mbx_", 4) == 0 && id_parse(text + 4, ret);
}

struct mailbox mailbox_read_row(const struct db_query *q)
{
	return (struct mailbox){ .id = db_int(q, 0),
				 .owner = db_text(q, 1),
				 .address = db_text(q, 2),
				 .username = db_text(q, 3),
				 .domain = db_text(q, 4),
				 .status = mailbox_status_parse(db_text(q, 5)),
				 .created_at = db_int(q, 6),
				 .expires_at = db_int(q, 7),
				 .provider = db_text(q, 8),
				 .stalwart_name = db_text(q, 9),
				 .stalwart_account = db_text(q, 10),
				 .secret = db_text(q, 11),
				 .cleanup_failed = db_int(q, 12),
				 .cleanup_attempts = db_int(q, 13) };
}

struct mailbox mailbox_copy(struct arena *arena, const struct mailbox *m)
{
	struct mailbox copy = *m;

	copy.owner = arena_strdup(arena, m->owner);
	copy.address = arena_strdup(arena, m->address);
	copy.username = arena_strdup(arena, m->username);
	copy.domain = arena_strdup(arena, m->domain);
	copy.provider = arena_strdup(arena, m->provider);
	copy.stalwart_name = arena_strdup(arena, m->stalwart_name);
	copy.stalwart_account = arena_strdup(arena, m->stalwart_account);
	copy.secret = arena_strdup(arena, m->secret);
	return copy;
}

static const struct db_stmt GET = { "SELECT " MAILBOX_COLUMNS " FROM mailboxes WHERE id = $1" };

int mailbox_get(struct db *db, int64_t id, struct arena *arena, struct mailbox *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &GET);

	db_bind_int(&q, 1, id);
	int r = db_step(&q);
	if (r > 0) {
		struct mailbox m = mailbox_read_row(&q);
		*ret = mailbox_copy(arena, &m);
	}
	return r;
}

struct provider *mailbox_provider_of(const struct engine *e, const struct mailbox *m)
{
	struct provider *outside = mailboxes_of(e)->provider;

	if (strcmp(m->provider, PROVIDER_LOCAL.name) == 0)
		return (struct provider *)&PROVIDER_LOCAL;
	return outside && strcmp(outside->name, m->provider) == 0 ? outside : NULL;
}

static bool is_local(const struct mailbox *m)
{
	return strcmp(m->provider, PROVIDER_LOCAL.name) == 0;
}

void mailbox_write(struct buf *out, const struct mailbox *m, lapse_ms now)
{
	bool live = mailbox_is_live(m->status, m->expires_at, now);
	enum mailbox_account account =
		mailbox_account(m->status, m->expires_at, m->cleanup_failed, now);
	char id[MAILBOX_ID_LEN + 1];

	mailbox_id_format(m->id, id);
	json_begin(out, '{');
	json_put_text(out, "id", id);
	json_put_text(out, "address", m->address);
	json_put_text(out, "username", m->username);
	json_put_text(out, "domain", m->domain);
	json_put_text(out, "status", live ? "active" : "expired");
	json_put_time(out, "created_at", m->created_at);
	json_put_time(out, "expires_at", m->expires_at);
	json_key(out, "cleanup");
	json_begin(out, '{');
	json_put_text(out, "state", mailbox_account_name(account));
	json_put_int(out, "attempts", m->cleanup_attempts);
	json_end(out, '}');
	json_end(out, '}');
}

int mailbox_announce(struct tx *tx, enum event_kind kind, const struct mailbox *m)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	char id[MAILBOX_ID_LEN + 1];

	mailbox_id_format(m->id, id);
	json_begin(&data, '{');
	json_put_text(&data, "id", id);
	json_put_text(&data, "address", m->address);
	json_put_time(&data, "expires_at", m->expires_at);
	json_end(&data, '}');
	local_wake(tx, m->id); /* a call that waits for mail checks the mailbox again */
	return event_add(tx, m->owner, kind, &data);
}

/* Its row passes from one line of the matrix to the other. */
static void count_ended(struct tx *tx)
{
	tx_count(tx, &MAILBOX_BOUND, -1);
	tx_count(tx, &MAILBOX_EXPIRED_BOUND, 1);
}

/* The earliest deadline */

static void note_deadline(struct engine *e, void *arg)
{
	lapse_ms at = *(lapse_ms *)arg;

	if (at < mailboxes_of(e)->earliest)
		mailboxes_of(e)->earliest = at;
}

void mailbox_note_deadline(struct tx *tx, lapse_ms at)
{
	lapse_ms *arg = tx_alloc(tx, sizeof(*arg));

	*arg = at;
	tx_effect(tx, note_deadline, arg);
	if (cluster_has_others(&tx->engine->cluster)) /* where telling fails, so does tx */
		cluster_tell(tx, MAILBOX_TOPIC, arena_printf(&tx->arena, "%lld", (long long)at));
}

static const struct db_stmt DROP = { "DELETE FROM mailboxes WHERE id = $1" };

/* 1 = it was there, 0 = it was not. */
static int mailbox_drop_row(struct tx *tx, int64_t id, const struct bound_spec *counted_as)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, id);
	int r = db_run(&q);
	assert(r < 0 || db_changed(&q) <= 1);
	if (r == LAPSE_OK)
		tx_count(tx, counted_as, -db_changed(&q));
	return r < 0 ? r : (int)db_changed(&q);
}

int mailbox_drop_live(struct tx *tx, const struct mailbox *m)
{
	int r = mailbox_drop_row(tx, m->id, &MAILBOX_BOUND);

	return r <= 0 ? r : quota_give_back(tx, m->owner, QUOTA_MAILBOXES);
}

int mailbox_drop_ended(struct tx *tx, int64_t id)
{
	int r = mailbox_drop_row(tx, id, &MAILBOX_EXPIRED_BOUND);

	return r < 0 ? r : LAPSE_OK;
}

/* Ending */

static const struct db_stmt END = {
	"UPDATE mailboxes SET status = $2, stalwart_cleanup_failed = $3, secret = '' "
	"WHERE id = $1 AND status = $4 AND expires_at < $5"
};

/* Gives the row its new status, with the deletion of its account pending or, where it lives in the
 * store, done. 1, or 0 when the row is not (any more) what `m` says. */
static int end_row(struct tx *tx, const struct mailbox *m, enum mailbox_status status,
		   lapse_ms due_before)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &END);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, m->id);
	db_bind_text(&q, 2, mailbox_status_name(status));
	db_bind_int(&q, 3, !is_local(m));
	db_bind_text(&q, 4, mailbox_status_name(m->status));
	db_bind_int(&q, 5, due_before);
	int r = db_run(&q);
	if (r < 0 || db_changed(&q) == 0)
		return r;
	count_ended(tx);
	r = quota_give_back(tx, m->owner, QUOTA_MAILBOXES);
	return r < 0 ? r : 1;
}

static void start_purge(struct engine *e, void *arg)
{
	(void)arg;
	mailboxes_of(e)->purging = true;
}

/* The account goes now, or its deletion is noted, to be tried from `at` on. */
static int remove_account(struct tx *tx, const struct mailbox *m, lapse_ms at)
{
	char id[MAILBOX_ID_LEN + 1];
	bool left = false;

	if (is_local(m)) {
		int r = local_delete(tx, m->id, &left);
		if (left)
			tx_effect(tx, start_purge, NULL);
		return r;
	}
	mailbox_id_format(m->id, id);
	return cleanup_add_at(tx, m->owner, &CLEANUP_MAILBOX, id, at);
}

struct lag {
	lapse_ms ms;
};

static void measure(struct engine *e, void *arg)
{
	engine_note_lag(e, matrix_find(e, "mailboxes"), ((struct lag *)arg)->ms);
}

/* The lag of an expiry ends when the account is gone. */
static void measure_expiry_lag(struct tx *tx, lapse_ms expires_at)
{
	struct lag *lag = tx_alloc(tx, sizeof(*lag));

	lag->ms = time_sub(tx->now, mailbox_deadline(expires_at));
	tx_effect(tx, measure, lag);
}

static const struct db_stmt HELD = {
	"SELECT 1 FROM holds WHERE tbl = 'mailboxes' AND ref = $1 AND until > $2"
};

static int is_mailbox_held(struct tx *tx, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HELD);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, tx->now);
	return db_step(&q);
}

/* Whether a mailbox that is due may be removed now: 1 or 0. */
static int may_go(struct tx *tx, const struct mailbox *m)
{
	if (guard_in_grace(tx->engine->restored_at, 0, tx->now))
		return 0;
	int held = is_mailbox_held(tx, m->id);
	return held < 0 ? held : !held;
}

int mailbox_expire(struct tx *tx, const struct mailbox *m)
{
	int r = m->status == MAILBOX_ACTIVE && mailbox_is_due(m->expires_at, tx->now)
			? may_go(tx, m)
			: 0;

	if (r > 0)
		r = end_row(tx, m, MAILBOX_EXPIRED, tx->now);
	if (r <= 0)
		return r;
	r = remove_account(tx, m, tx->now);
	if (r == LAPSE_OK)
		r = mailbox_announce(tx, EVENT_MAILBOX_EXPIRED, m);
	if (r < 0)
		return r;
	if (is_local(m))
		measure_expiry_lag(tx, m->expires_at);
	return 1;
}

/* A server that has not answered may still be at it: it gets as much time again first. */
int mailbox_disown(struct tx *tx, const struct mailbox *m)
{
	int r = end_row(tx, m, MAILBOX_DELETED, INT64_MAX);

	if (r <= 0)
		return r;
	return remove_account(tx, m, time_add(tx->now, tx->engine->settings->stalwart_timeout_ms));
}

/* Looking */

/* The look that lets it expire; see mailbox_look(). */
static int expire_by_look(struct tx *tx, struct mailbox *m, enum mailbox_use use)
{
	int r = may_go(tx, m);

	if (r <= 0)
		return r;
	if (!tx->write)
		return TX_NEEDS_WRITE;
	r = mailbox_expire(tx, m);
	if (r <= 0)
		return r;
	m->status = MAILBOX_EXPIRED;
	m->cleanup_failed = !is_local(m);
	return use == MAILBOX_OPERATE ? TX_AGAIN : LAPSE_OK;
}

static int no_such_mailbox(struct problem *p)
{
	return problem_set(p, LAPSE_ENOTFOUND, NULL, "there is no such mailbox");
}

/* 1 = it is there and the owner's. */
static int find_mailbox(struct tx *tx, const char *owner, const char *id_text, struct arena *arena,
			struct mailbox *ret)
{
	struct mailbox m;
	int64_t id;

	assert(tx_is_open(tx));
	if (!mailbox_id_parse(id_text, &id))
		return 0;
	int r = mailbox_get(tx->db, id, arena, &m);
	if (r <= 0 || strcmp(m.owner, owner) != 0)
		return r < 0 ? r : 0;
	*ret = m;
	return 1;
}

int mailbox_look(struct tx *tx, const char *owner, const char *id, enum mailbox_use use,
		 struct arena *arena, struct mailbox *ret, struct problem *p)
{
	struct mailbox m;
	int r = find_mailbox(tx, owner, id, arena, &m);

	if (r <= 0)
		return r < 0 ? r : no_such_mailbox(p);
	struct mailbox_verdict v = mailbox_judge(m.status, m.expires_at, use, tx->now);
	if (v.answer == MAILBOX_HIDE)
		return no_such_mailbox(p);
	r = v.expire ? expire_by_look(tx, &m, use) : LAPSE_OK;
	if (r != LAPSE_OK)
		return r;
	if (v.answer == MAILBOX_REFUSE)
		return problem_set(p, LAPSE_EEXPIRED, NULL, "Mailbox has expired");
	*ret = m;
	return LAPSE_OK;
}

#define OWNED_DUE                                                                                  \
	" FROM mailboxes AS m WHERE owner = $1 AND status = 'active' AND expires_at < $2 "         \
	"AND NOT EXISTS (SELECT 1 FROM holds AS h WHERE h.tbl = 'mailboxes' AND h.ref = m.id "     \
	"AND h.until > $2) ORDER BY expires_at LIMIT $3"
static const struct db_stmt READ_OWNED_DUE = { "SELECT " MAILBOX_COLUMNS OWNED_DUE };
static const struct db_stmt ANY_OWNED_DUE = { "SELECT 1" OWNED_DUE };

/* 1 or 0; one look into an index, since every list asks. */
static int has_owned_due(struct tx *tx, const char *owner)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ANY_OWNED_DUE);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, tx->now);
	db_bind_int(&q, 3, 1);
	return db_step(&q);
}

static int read_owned_due(struct tx *tx, const char *owner, struct mailbox *out, size_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &READ_OWNED_DUE);
	size_t n = 0;
	int r;

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, tx->now);
	db_bind_int(&q, 3, OWNED_AT_ONCE);
	while ((r = db_step(&q)) > 0) {
		struct mailbox m = mailbox_read_row(&q);
		out[n++] = mailbox_copy(&tx->arena, &m);
	}
	*ret_n = n;
	return r;
}

int mailbox_expire_owned(struct tx *tx, const char *owner)
{
	size_t n = 0;
	int r = guard_in_grace(tx->engine->restored_at, 0, tx->now) ? 0 : has_owned_due(tx, owner);

	if (r <= 0)
		return r;
	if (!tx->write)
		return TX_NEEDS_WRITE;
	struct mailbox *due = tx_alloc(tx, OWNED_AT_ONCE * sizeof(*due));
	r = read_owned_due(tx, owner, due, &n);
	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		r = mailbox_expire(tx, &due[i]);
		r = r < 0 ? r : LAPSE_OK;
	}
	return r;
}

#define LIVE                                                                                       \
	"SELECT " MAILBOX_COLUMNS " FROM mailboxes WHERE owner = $1 AND status = 'active' "        \
	"AND id < $2 "
static const struct db_stmt LIST_ACTIVE = { LIVE "AND expires_at >= $4 ORDER BY id DESC LIMIT $3" };
static const struct db_stmt LIST_ALL = {
	"SELECT * FROM (" LIVE "ORDER BY id DESC LIMIT $3) AS live UNION ALL SELECT * FROM ("
	"SELECT " MAILBOX_COLUMNS " FROM mailboxes WHERE owner = $1 AND status = 'expired' "
	"AND id < $2 ORDER BY id DESC LIMIT $3) AS over ORDER BY 1 DESC LIMIT $3"
};

int mailbox_list(struct tx *tx, const char *owner, bool include_expired, int64_t before,
		 int64_t limit, mailbox_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q =
		db_query(tx->db, include_expired ? &LIST_ALL : &LIST_ACTIVE);
	int r;

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, before);
	db_bind_int(&q, 3, limit);
	if (!include_expired)
		db_bind_int(&q, 4, tx->now);
	while ((r = db_step(&q)) > 0) {
		struct mailbox m = mailbox_read_row(&q);
		fn(arg, &m);
	}
	return r;
}

/* Renewing */

static const struct db_stmt RENEW = {
	"UPDATE mailboxes SET expires_at = $2 WHERE id = $1 AND status = 'active' "
	"AND expires_at >= $3"
};

int mailbox_renew(struct tx *tx, struct mailbox *m, int64_t ttl_ms)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &RENEW);

	assert(tx_can_write(tx));
	m->expires_at = time_add(tx->now, ttl_ms);
	db_bind_int(&q, 1, m->id);
	db_bind_int(&q, 2, m->expires_at);
	db_bind_int(&q, 3, tx->now);
	int r = db_post(&q, DB_ONE_OR(LAPSE_EEXPIRED));
	if (r < 0)
		return r;
	mailbox_note_deadline(tx, m->expires_at);
	return mailbox_announce(tx, EVENT_MAILBOX_RENEWED, m);
}

/* Deleting by hand */

static const struct db_stmt HIDE = { "UPDATE mailboxes SET status = 'deleted' WHERE id = $1" };

static int hide(struct tx *tx, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HIDE);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	return db_post(&q, DB_ANY);
}

/* An expired one has its cleanup already; the row waits for it, or goes at once. */
static int delete_expired(struct tx *tx, const struct mailbox *m)
{
	return m->cleanup_failed ? hide(tx, m->id) : mailbox_drop_ended(tx, m->id);
}

static int delete_active(struct tx *tx, const struct mailbox *m)
{
	int r = remove_account(tx, m, tx->now);

	if (r < 0)
		return r;
	if (is_local(m))
		return mailbox_drop_live(tx, m);
	r = end_row(tx, m, MAILBOX_DELETED, INT64_MAX);
	return r < 0 ? r : LAPSE_OK;
}

int mailbox_delete(struct tx *tx, const char *owner, const char *id, struct problem *p)
{
	struct mailbox m;
	int r = find_mailbox(tx, owner, id, &tx->arena, &m);

	if (r < 0)
		return r;
	if (r == 0 || m.status == MAILBOX_PROVISIONING || m.status == MAILBOX_DELETED)
		return no_such_mailbox(p);
	r = is_mailbox_held(tx, m.id);
	if (r > 0)
		return problem_set(p, LAPSE_ECONFLICT, NULL,
				   "the mailbox is held: release the hold first");
	if (r == LAPSE_OK)
		r = m.status == MAILBOX_ACTIVE ? delete_active(tx, &m) : delete_expired(tx, &m);
	return r < 0 ? r : mailbox_announce(tx, EVENT_MAILBOX_DELETED, &m);
}

/* What became of its account */

static const struct db_stmt SETTLE = {
	"UPDATE mailboxes SET stalwart_cleanup_failed = $2, cleanup_attempts = $3 WHERE id = $1"
};

static int settle_row(struct tx *tx, int64_t id, const struct cleanup_outcome *o, int64_t attempts)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SETTLE);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, mailbox_cleanup_flag(o->state));
	db_bind_int(&q, 3, attempts);
	return db_post(&q, DB_ANY);
}

int mailbox_settled(struct tx *tx, const struct cleanup_outcome *o)
{
	struct mailbox m;
	int64_t id;
	int r = mailbox_id_parse(o->target, &id) ? mailbox_get(tx->db, id, &tx->arena, &m) : 0;

	assert(tx_is_open(tx));
	if (r <= 0)
		return r;
	bool over = mailbox_cleanup_flag(o->state) == 0;
	if (over && m.status == MAILBOX_DELETED)
		return mailbox_drop_ended(tx, id);
	if (o->state == CLEANUP_DONE && m.status == MAILBOX_EXPIRED)
		measure_expiry_lag(tx, m.expires_at);
	return settle_row(tx, id, o,
			  o->state == CLEANUP_DROPPED ? m.cleanup_attempts : o->attempts);
}
