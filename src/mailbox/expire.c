/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound `mailboxes`: when time is up for them, and the deletion of their accounts.
 *
 * Start: an account that was being made when the process ended belongs to no mailbox: it becomes
 * a pending deletion. Hand-over: at the earliest deadline, which is kept in memory, slice after
 * slice takes all that is due; a periodic sweep, the safety net, takes one batch of it, retries a
 * few deletions that failed, and looks for accounts whose making was never settled. Each expiry
 * notes its deletion, which the cleaner (engine/cleanup.h) starts by start_removal() and settles by
 * mailbox_settled(). Failure: a slice that failed has changed nothing and comes again. Shutdown:
 * what the provider has under way ends without an outcome, and its intent is found again.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "mailbox/mailbox.h"
#include "mailbox/outside.h"
#include "provider/local.h"

#define BATCH_ROWS 20 /* read at once; the budget is looked at between two mailboxes */
#define RETRIES_A_SWEEP 10
#define REMOVALS_AT_ONCE 32
#define STALE_MS                                                                                   \
	60000 /* an account still `provisioning`, and not being made, after this is stale */
#define PURGE_PAUSE_US 2000 /* between two slices of a purge; longer than a slice */

/* The earliest deadline */

static const struct db_stmt EARLIEST = {
	"SELECT min(expires_at) FROM mailboxes WHERE status = 'active' AND expires_at >= $1"
};

static int read_earliest(struct tx *tx, lapse_ms from, lapse_ms *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &EARLIEST);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, from);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = r > 0 && !db_is_null(&q, 0) ? db_int(&q, 0) : LAPSE_NEVER;
	return LAPSE_OK;
}

/* Mailboxes that are due and held: the end of a hold is a deadline, too. */
static const struct db_stmt EARLIEST_HELD = {
	"SELECT min(h.until) FROM holds AS h JOIN mailboxes AS m ON m.id = h.ref "
	"WHERE h.tbl = 'mailboxes' AND h.until > $1 AND m.status = 'active' AND m.expires_at < $1"
};

static int read_earliest_held(struct tx *tx, lapse_ms now, lapse_ms *at)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &EARLIEST_HELD);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, now);
	int r = db_step(&q);
	if (r > 0 && !db_is_null(&q, 0) && db_int(&q, 0) < *at)
		*at = db_int(&q, 0);
	return r < 0 ? r : LAPSE_OK;
}

static void set_earliest(struct engine *e, void *arg)
{
	mailboxes_of(e)->earliest = *(lapse_ms *)arg;
}

/* All removable due mailboxes are gone. Next is the earliest live one, or the end of a hold. */
static int move_earliest(struct tx *tx, lapse_ms now)
{
	lapse_ms *at = tx_alloc(tx, sizeof(*at));
	int r = read_earliest(tx, now, at);

	if (r == LAPSE_OK)
		r = read_earliest_held(tx, now, at);
	if (r == LAPSE_OK)
		tx_effect(tx, set_earliest, at);
	return r;
}

/* From `until` on the mailbox is protected no longer, and its own deadline counts. */
static int hold_on_mailbox_changed(struct tx *tx, const char *owner, const char *key,
				   lapse_ms until)
{
	struct mailbox m;
	int64_t id;

	assert(tx_is_open(tx));
	if (!mailbox_id_parse(key, &id))
		return LAPSE_OK;
	int r = mailbox_get(tx->db, id, &tx->arena, &m);
	if (r > 0 && m.status == MAILBOX_ACTIVE && strcmp(m.owner, owner) == 0)
		mailbox_note_deadline(tx, m.expires_at > until ? m.expires_at : until);
	return r < 0 ? r : LAPSE_OK;
}

static lapse_ms deadline(const struct engine *e)
{
	lapse_ms at = mailboxes_of(e)->earliest;

	return at == LAPSE_NEVER ? at : mailbox_deadline(at);
}

/* Accounts whose making was never settled */

static const struct db_stmt UNSETTLED = {
	"SELECT " MAILBOX_COLUMNS
	" FROM mailboxes WHERE status = 'provisioning' AND created_at < $1 LIMIT $2"
};
#define UNSETTLED_AT_ONCE 1000

static int read_unsettled(struct tx *tx, lapse_ms before, struct mailbox *out, size_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &UNSETTLED);
	size_t n = 0;
	int r;

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, before);
	db_bind_int(&q, 2, UNSETTLED_AT_ONCE);
	while ((r = db_step(&q)) > 0) {
		struct mailbox m = mailbox_read_row(&q);
		out[n++] = mailbox_copy(&tx->arena, &m);
	}
	*ret_n = n;
	return r;
}

/* By this process, or by another replica: a mailbox's id says which. Negative = an error. */
static int is_being_made(struct tx *tx, int64_t mailbox)
{
	return outside_is_provisioning(tx->engine, mailbox)
		       ? 1
		       : cluster_is_live(tx, id_replica(mailbox));
}

static int disown_unsettled(struct tx *tx, lapse_ms before)
{
	struct mailbox *found = tx_alloc(tx, UNSETTLED_AT_ONCE * sizeof(*found));
	size_t n = 0;
	int r = read_unsettled(tx, before, found, &n);

	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		int made = is_being_made(tx, found[i].id);
		r = made < 0 ? made : made ? LAPSE_OK : mailbox_disown(tx, &found[i]);
	}
	return r;
}

/* Sweeping */

static int read_due(const struct sweep *w, struct tx *tx, struct mailbox *out, size_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &w->bound->sql.prune);
	size_t n = 0;
	int r;

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, w->started_at);
	db_bind_int(&q, 2, BATCH_ROWS);
	db_bind_int(&q, 3, w->after.at);
	db_bind_int(&q, 4, w->after.number[0]);
	db_bind_int(&q, 5, tx->now);
	while ((r = db_step(&q)) > 0) {
		struct mailbox m = mailbox_read_row(&q);
		out[n++] = mailbox_copy(&tx->arena, &m);
	}
	*ret_n = n;
	return r;
}

static int expire_one(struct sweep *w, struct tx *tx, const struct mailbox *m)
{
	char id[MAILBOX_ID_LEN + 1];
	int r = mailbox_expire(tx, m);

	w->after.at = m->expires_at;
	w->after.number[0] = m->id;
	if (r <= 0)
		return r;
	w->outside.expired++;
	w->outside.cleaned += mailbox_provider_of(tx->engine, m) == &PROVIDER_LOCAL;
	mailbox_id_format(m->id, id);
	if (mailbox_provider_of(tx->engine, m) != &PROVIDER_LOCAL)
		follow_target(tx, w->follower, id);
	return 1;
}

struct retry {
	struct sweep *sweep;
	struct tx *tx;
};

static void follow_retry(void *arg, const char *target)
{
	const struct retry *r = arg;

	follow_target(r->tx, r->sweep->follower, target);
}

/* What only a whole sweep does, once, before anything expires: failed deletions and the like. */
static int look_after(struct sweep *w, struct tx *tx)
{
	struct retry arg = { w, tx };
	int64_t n = 0;
	int r = cleanup_retry(tx, &CLEANUP_MAILBOX, RETRIES_A_SWEEP, follow_retry, &arg, &n);

	w->outside.retried += n;
	if (r == LAPSE_OK)
		r = disown_unsettled(tx, time_sub(tx->now, STALE_MS));
	return r;
}

/* How many more this sweep may take. */
static int64_t room_left(const struct sweep *w)
{
	if (w->by_deadline)
		return INT64_MAX;
	return w->engine->settings->mailbox_sweep_batch - w->outside.expired;
}

static int expire_due(struct sweep *w, struct tx *tx, lapse_us stop, int64_t *ret_n, bool *ret_more)
{
	struct mailbox rows[BATCH_ROWS];
	size_t n = BATCH_ROWS, i = BATCH_ROWS;
	int r = LAPSE_OK;

	do {
		if (i == n) {
			i = 0;
			r = read_due(w, tx, rows, &n);
		}
		if (r < 0 || n == 0 || room_left(w) <= 0)
			break;
		r = expire_one(w, tx, &rows[i++]);
		*ret_n += r > 0;
	} while (r >= 0 && clock_mono(tx->engine->clock) < stop);
	*ret_more = n > 0 && room_left(w) > 0;
	return r < 0 ? r : LAPSE_OK;
}

static int prune_mailboxes(struct sweep *w, struct tx *tx, lapse_us stop, int64_t *ret_n,
			   bool *ret_more)
{
	bool first = w->after.at == INT64_MIN;
	int r = first && !w->by_deadline ? look_after(w, tx) : LAPSE_OK;

	*ret_n = 0;
	if (first && r == LAPSE_OK) /* from here on it is not the first slice */
		w->after.at = INT64_MIN + 1;
	if (r == LAPSE_OK)
		r = expire_due(w, tx, stop, ret_n, ret_more);
	if (r == LAPSE_OK && !*ret_more && room_left(w) > 0)
		r = move_earliest(tx, w->started_at);
	return r;
}

/* Deleting accounts */

struct removal {
	struct provider_op op;
	struct engine *engine;
	struct cleanup *cleanup;
};

static void removal_done(struct provider_op *op)
{
	struct removal *x = op->arg;

	/* The engine ends: there is no outcome, and the intent waits for the next start. */
	if (op->err != LAPSE_EUNAVAILABLE)
		cleanup_settle(x->engine, x->cleanup, op->err, problem_text(&op->problem, op->err));
	provider_op_done(op);
	free(x);
}

static void settle_without(struct engine *e, struct cleanup *c, struct removal *x, int err,
			   const char *why)
{
	cleanup_settle(e, c, err, why);
	provider_op_done(&x->op);
	free(x);
}

/* By the name the account had when it was made, and the server's own id of it. */
static void start_removal(struct engine *e, struct cleanup *c)
{
	struct removal *x = mem_zalloc(1, sizeof(*x));
	struct mailbox m;
	int64_t id;

	provider_op_init(&x->op, PROVIDER_DELETE);
	int r = mailbox_id_parse(c->target, &id) ? mailbox_get(e->db, id, &x->op.arena, &m) : 0;
	if (r <= 0) {
		settle_without(e, c, x, r, r < 0 ? err_text(r) : "");
		return;
	}
	struct provider *p = mailbox_provider_of(e, &m);
	if (!p || !p->start) {
		char why[96];
		snprintf(why, sizeof(why), "it lives with the provider %.40s, which is not set up",
			 m.provider);
		settle_without(e, c, x, LAPSE_EUPSTREAM, why);
		return;
	}
	x->engine = e;
	x->cleanup = c;
	x->op.who = outside_principal(&m, "");
	x->op.done = removal_done;
	x->op.arg = x;
	p->start(p, &x->op);
}

const struct cleanup_kind CLEANUP_MAILBOX = {
	.name = "mailbox",
	.running_max = REMOVALS_AT_ONCE,
	.attempts_max = offsetof(struct settings, mailbox_cleanup_max_retries),
	.failed = EVENT_MAILBOX_CLEANUP_FAILED,
	.dead = EVENT_MAILBOX_DEAD_LETTER,
	.retried_by_sweep = true,
	.asks_outside = true,
	.start = start_removal,
	.settled = mailbox_settled,
};

/* The mail of mailboxes that are gone, in slices of its own */

struct purge {
	lapse_us stop;
	bool more;
};

static int purge_some(struct tx *tx, void *arg)
{
	struct purge *x = arg;

	return local_purge(tx, x->stop, &x->more);
}

static int purge_slice(struct engine *e, bool *ret_more)
{
	struct purge x = { clock_mono(e->clock) + e->settings->sweep_budget_ms * 1000, true };
	int r = job_do(e, JOB_LAZY, purge_some, &x);

	if (r == LAPSE_OK)
		*ret_more = x.more;
	return r;
}

static void expiry_tick(struct engine *e)
{
	struct mailboxes *m = mailboxes_of(e);
	bool more = true;

	if (!m->purging || clock_mono(e->clock) < m->purge_next)
		return;
	int r = purge_slice(e, &more);
	if (r == LAPSE_OK)
		m->purging = more;
	m->purge_next = clock_mono(e->clock) + (r < 0 ? 1000000 : PURGE_PAUSE_US);
}

static lapse_us expiry_next_us(const struct engine *e)
{
	lapse_us in = mailboxes_of(e)->purge_next - clock_mono(e->clock);

	if (!mailboxes_of(e)->purging)
		return INT64_MAX;
	return in > 0 ? in : 0;
}

/* Starting and ending */

static int expiry_load(struct tx *tx)
{
	struct mailboxes *m = mem_zalloc(1, sizeof(*m));

	m->magic = MAILBOXES_MAGIC;
	engine_set_room(tx->engine, ROOM_MAILBOX, m);
	list_init(&m->provisioned);
	int r = read_earliest(tx, 0, &m->earliest);
	if (r == LAPSE_OK)
		r = disown_unsettled(tx, INT64_MAX);
	if (r == LAPSE_OK)
		r = local_has_gone(tx, &m->purging);
	return r;
}

static void expiry_done(struct engine *e)
{
	struct mailboxes *m = engine_room(e, ROOM_MAILBOX);

	if (m && m->has_key)
		seal_done(&m->key);
	free(m);
	engine_set_room(e, ROOM_MAILBOX, NULL);
}

static void mailbox_write_metrics(const struct engine *e, struct buf *out)
{
	const int64_t *arrived = mailboxes_of(e)->arrived;

	metrics_family(out, METRIC_MAIL_ARRIVED);
	metrics_sample(out, METRIC_MAIL_ARRIVED, "result=\"delivered\"", arrived[MAIL_DELIVERED]);
	metrics_sample(out, METRIC_MAIL_ARRIVED, "result=\"refused\"", arrived[MAIL_REFUSED]);
	metrics_sample(out, METRIC_MAIL_ARRIVED, "result=\"delayed\"", arrived[MAIL_DELAYED]);
}

static int expiry_news(struct tx *tx, const char *topic, const char *key, lapse_ms at)
{
	struct mailboxes *m = mailboxes_of(tx->engine);
	lapse_ms deadline = strtoll(key, NULL, 10);

	(void)at;
	if (strcmp(topic, MAILBOX_TOPIC) == 0 && deadline < m->earliest)
		m->earliest = deadline;
	return LAPSE_OK;
}

const struct room MAILBOX_ROOM = {
	.id = ROOM_MAILBOX,
	.load = expiry_load,
	.tick = expiry_tick,
	.next_us = expiry_next_us,
	.done = expiry_done,
	.write_metrics = mailbox_write_metrics,
	.news = expiry_news,
};

static const struct bound_memory MEMORY = {
	.deadline = deadline,
	.prune = prune_mailboxes,
	.hold_changed = hold_on_mailbox_changed,
};

const struct bound_spec MAILBOX_BOUND = {
	.name = "mailboxes",
	.scheduler = "mailboxes",
	.bounded_by = "expires_at; mailboxes_max_per_owner; mailboxes_max",
	.due_when = "active and expires_at < now",
	.safety_rule = "A renewal that committed first wins; a held mailbox keeps its account.",
	.action = "mark expired, delete the mail account, retry, dead letter",
	.paths = PATH_LAZY | PATH_DEADLINE | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "expires_at",
	.only = BOUND_ONLY(IS_TEXT("status", "active")),
	.held_as = "mailboxes",
	.holdable = true,
	.parse_key = mailbox_id_parse,
	.hold_only = BOUND_ONLY({ "status", false,
				  (const struct bound_value[]){ { VALUE_TEXT, 0, "active" },
								{ VALUE_TEXT, 0, "expired" },
								{ 0 } } }),
	.event = "mailbox.expired",
	.reason = "its time is up",
	.owner = "owner",
	.known_by = "t.address = $2 AND (t.status IN ('provisioning', 'active') "
		    "OR t.stalwart_cleanup_failed <> 0)",
	.shown = BOUND_COLUMNS("address", "status", "provider"),
	.format_key = mailbox_id_format,
	.selects = MAILBOX_COLUMNS,
	.counted_by_owner = true,
	.memory = &MEMORY,
};

const struct bound_spec MAILBOX_EXPIRED_BOUND = {
	.name = "mailboxes_expired",
	.scheduler = "mailboxes",
	.bounded_by = "mailbox_keep_expired_ms after expires_at",
	.due_when = "expired and now - expires_at > mailbox_keep_expired_ms",
	.safety_rule = "Only when its account is gone, or a person let the dead letter go.",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.table = "mailboxes",
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "expires_at",
	.window = "mailbox_keep_expired_ms",
	.only = BOUND_ONLY(IS_TEXT("status", "expired"), IS_INT("stalwart_cleanup_failed", 0)),
	.held_as = "mailboxes",
	.event = "mailbox.deleted",
	.reason = "expired longer than mailbox_keep_expired_ms ago",
	.owner = "owner",
	.parse_key = mailbox_id_parse,
	.known_by = "t.address = $2 AND (t.status IN ('provisioning', 'active') "
		    "OR t.stalwart_cleanup_failed <> 0)",
	.shown = BOUND_COLUMNS("address", "status", "provider"),
	.format_key = mailbox_id_format,
};
