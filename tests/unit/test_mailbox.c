/* SPDX-License-Identifier: Apache-2.0 */
/* Mailboxes against a provider the test owns: what is asked of it, and what becomes of the row when
 * it answers, fails, or is never heard of again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/deadletter.h"
#include "mailbox/mailbox.h"
#include "provider/local.h"
#include "unit.h"

#define TTL INT64_C(300000)
#define OPS_MAX 64

struct outside {
	struct provider provider;
	struct provider_op *ops[OPS_MAX]; /* started and not answered, oldest first */
	size_t count, started;
};

struct rig {
	struct world *world;
	struct outside outside;
};

static void start(struct provider *p, struct provider_op *op)
{
	struct outside *o = CONTAINER_OF(p, struct outside, provider);

	assert_true(o->count < OPS_MAX);
	o->ops[o->count++] = op;
	o->started++;
}

static int setup(void **state)
{
	struct rig *r = mem_zalloc(1, sizeof(*r));
	void *w;

	world_setup(&w);
	r->world = w;
	r->outside.provider = (struct provider){ .name = "stalwart", .start = start };
	mailboxes_of(&r->world->engine)->provider = &r->outside.provider;
	*state = r;
	return 0;
}

static int setup_local(void **state)
{
	setup(state);
	mailboxes_of(&((struct rig *)*state)->world->engine)->provider = NULL;
	return 0;
}

/* Operations that nobody answered are lost, as in a crash. */
static void lose_ops(struct rig *r)
{
	for (size_t i = 0; i < r->outside.count; i++) {
		void *removal = r->outside.ops[i]->arg;
		provider_op_done(r->outside.ops[i]);
		free(removal);
	}
	r->outside.count = 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;
	void *w = r->world;

	lose_ops(r);
	world_teardown(&w);
	free(r);
	return 0;
}

static void reopen(struct rig *r)
{
	bool outside = mailboxes_of(&r->world->engine)->provider != NULL;

	lose_ops(r);
	world_reopen(r->world);
	mailboxes_of(&r->world->engine)->provider = outside ? &r->outside.provider : NULL;
}

static void answer(struct rig *r, int err)
{
	struct provider_op *op = r->outside.ops[0];

	assert_true(r->outside.count > 0);
	memmove(r->outside.ops, r->outside.ops + 1, --r->outside.count * sizeof(op));
	op->err = err;
	if (err < 0)
		problem_set(&op->problem, err, NULL, "said no");
	op->done(op);
	cleaner_stop(&r->world->engine); /* writes the outcome, starts nothing */
}

static struct mailbox create(struct rig *r, const char *name, int64_t ttl, struct arena *arena)
{
	struct mailbox_wish wish = { .username = name, .ttl_ms = ttl };
	struct mailbox m = { 0 };
	struct problem p = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(mailbox_create(&tx, "owner", &wish, arena, &m, &p), LAPSE_OK);
	if (m.status == MAILBOX_PROVISIONING)
		assert_int_equal(mailbox_activate(&tx, &m), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return m;
}

static int look(struct rig *r, int64_t id, enum mailbox_use use, bool write, struct mailbox *ret)
{
	static struct arena arena; /* of a test program: one at a time, gone with it */
	char text[MAILBOX_ID_LEN + 1];
	struct problem p = { 0 };
	struct tx tx;

	arena_init(&arena);
	mailbox_id_format(id, text);
	assert_int_equal((write ? tx_begin : tx_begin_read)(&tx, &r->world->engine), LAPSE_OK);
	int result = mailbox_look(&tx, "owner", text, use, &arena, ret, &p);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return result;
}

static char *row(struct rig *r, int64_t id)
{
	static char text[64];
	char *found = side_text(r->world,
				"SELECT status || ' ' || stalwart_cleanup_failed || ' ' || "
				"cleanup_attempts FROM mailboxes WHERE id = %" PRId64,
				id);

	snprintf(text, sizeof(text), "%s", found);
	free(found);
	return text;
}

static int64_t cleanups(struct rig *r)
{
	return side_int(r->world, "SELECT count(*) FROM cleanups WHERE kind = 'mailbox'");
}

static void pass_deadline(struct rig *r)
{
	fake_clock_advance(&r->world->time, TTL + 1);
}

/* At the deadline itself, by the engine's own clock and without anybody's look. */
static void the_deadline_expires_it(void **state)
{
	struct rig *r = *state;
	struct arena arena;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	fake_clock_advance(&r->world->time, TTL);
	tick_until_idle(r->world);
	assert_string_equal(row(r, id), "active 0 0");
	fake_clock_advance(&r->world->time, 1);
	tick_until_idle(r->world);
	assert_string_equal(row(r, id), "expired 1 0");
	assert_int_equal(r->outside.count, 1);
	assert_int_equal(r->outside.ops[0]->verb, PROVIDER_DELETE);
	assert_string_equal(r->outside.ops[0]->who.name, "alice@lapse.local");
	answer(r, LAPSE_OK);
	assert_string_equal(row(r, id), "expired 0 0");
	assert_int_equal(cleanups(r), 0);
	world_check_counters(r->world);
	arena_done(&arena);
}

/* A read cannot write, so it asks for a transaction that can; one that answers 410 commits first.
 */
static void a_look_expires_it(void **state)
{
	struct rig *r = *state;
	struct arena arena;
	struct mailbox m;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	assert_int_equal(look(r, id, MAILBOX_INFO, false, &m), LAPSE_OK);
	pass_deadline(r);
	assert_int_equal(look(r, id, MAILBOX_INFO, false, &m), TX_NEEDS_WRITE);
	assert_int_equal(look(r, id, MAILBOX_OPERATE, false, &m), TX_NEEDS_WRITE);
	assert_string_equal(row(r, id), "active 0 0");
	assert_int_equal(look(r, id, MAILBOX_OPERATE, true, &m), TX_AGAIN);
	assert_string_equal(row(r, id), "expired 1 0");
	assert_int_equal(look(r, id, MAILBOX_OPERATE, true, &m), LAPSE_EEXPIRED);
	assert_int_equal(look(r, id, MAILBOX_OPERATE, false, &m), LAPSE_EEXPIRED);
	assert_int_equal(look(r, id, MAILBOX_INFO, false, &m), LAPSE_OK);
	assert_int_equal(m.status, MAILBOX_EXPIRED);
	assert_int_equal(cleanups(r), 1); /* one, however often it is looked at */
	world_check_counters(r->world);
	arena_done(&arena);
}

/* Even for a caller that did not look first: the statement itself knows the deadline. */
static void a_renewal_after_the_deadline_changes_nothing(void **state)
{
	struct rig *r = *state;
	struct arena arena;
	struct tx tx;

	arena_init(&arena);
	struct mailbox m = create(r, "alice", TTL, &arena);
	const lapse_ms until = m.expires_at;
	pass_deadline(r);
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(mailbox_renew(&tx, &m, TTL), LAPSE_EEXPIRED);
	tx_rollback(&tx);
	assert_int_equal(side_int(r->world, "SELECT expires_at FROM mailboxes"), until);
	arena_done(&arena);
}

/* Three attempts in all, the later ones by sweeps only; then a dead letter, retried and let go. */
static void failures_end_as_a_dead_letter(void **state)
{
	struct rig *r = *state;
	struct arena arena;
	struct sweep w;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	pass_deadline(r);
	tick_until_idle(r->world);
	answer(r, LAPSE_EUPSTREAM);
	assert_string_equal(row(r, id), "expired 1 1");
	fake_clock_advance(&r->world->time, 200000);
	tick_until_idle(r->world);
	assert_int_equal(r->outside.count, 0); /* time alone does not try again */
	run_sweep(r->world, "mailboxes", false, &w);
	assert_int_equal(w.outside.retried, 1);
	tick_until_idle(r->world);
	answer(r, LAPSE_EUPSTREAM);
	assert_string_equal(row(r, id), "expired 1 2");
	run_sweep(r->world, "mailboxes", false, &w);
	tick_until_idle(r->world);
	answer(r, LAPSE_EUPSTREAM);
	assert_string_equal(row(r, id), "expired -1 3");
	assert_int_equal(r->world->engine.cleaner.dead, 1);
	assert_int_equal(r->outside.started, 3);
	arena_done(&arena);
}

/* However old it is: without its row, its account would never go. */
static void an_expired_row_stays_until_its_account_is_gone(void **state)
{
	struct rig *r = *state;
	struct arena arena;
	struct sweep w;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	pass_deadline(r);
	tick_until_idle(r->world);
	answer(r, LAPSE_EUPSTREAM);
	fake_clock_advance(&r->world->time, r->world->settings.mailbox_keep_expired_ms + 1);
	run_sweep(r->world, "mailboxes", false, &w);
	assert_string_equal(row(r, id), "expired 1 1");
	tick_until_idle(r->world);
	answer(r, LAPSE_OK);
	run_sweep(r->world, "mailboxes", false, &w);
	assert_int_equal(side_int(r->world, "SELECT count(*) FROM mailboxes"), 0);
	arena_done(&arena);
}

static int64_t dead_letter_of(struct rig *r)
{
	return side_int(r->world, "SELECT id FROM cleanups WHERE state = -1");
}

static void make_dead(struct rig *r)
{
	r->world->settings.mailbox_cleanup_max_retries = 1;
	pass_deadline(r);
	tick_until_idle(r->world);
	answer(r, LAPSE_EUPSTREAM);
}

static void a_dead_letter_is_retried_or_let_go(void **state)
{
	struct rig *r = *state;
	struct arena arena;
	struct dead_letter d;
	struct tx tx;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	make_dead(r);
	assert_string_equal(row(r, id), "expired -1 1");
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(dead_letter_retry(&tx, dead_letter_of(r), &arena, &d), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(row(r, id), "expired 1 0");
	tick_until_idle(r->world);
	answer(r, LAPSE_EUPSTREAM);
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(dead_letter_drop(&tx, dead_letter_of(r), &arena), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(row(r, id), "expired 0 1");
	arena_done(&arena);
}

/* Its name is free again only when its account is gone. */
static void the_address_is_free_when_it_is_clean(void **state)
{
	struct rig *r = *state;
	struct mailbox_wish wish = { .username = "alice" };
	struct mailbox m;
	struct problem p = { 0 };
	struct arena arena;
	struct tx tx;

	arena_init(&arena);
	create(r, "alice", TTL, &arena);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
		assert_int_equal(mailbox_create(&tx, "other", &wish, &arena, &m, &p),
				 LAPSE_ECONFLICT);
		assert_string_equal(p.field, "username");
		tx_rollback(&tx);
		if (round == 0)
			pass_deadline(r);
		tick_until_idle(r->world);
	}
	answer(r, LAPSE_OK);
	create(r, "alice", TTL, &arena);
	world_check_counters(r->world);
	arena_done(&arena);
}

static void a_deleted_one_goes_when_it_is_clean(void **state)
{
	struct rig *r = *state;
	char text[MAILBOX_ID_LEN + 1];
	struct problem p = { 0 };
	struct arena arena;
	struct mailbox m;
	struct tx tx;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	mailbox_id_format(id, text);
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(mailbox_delete(&tx, "owner", text, &p), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(row(r, id), "deleted 1 0");
	assert_int_equal(look(r, id, MAILBOX_INFO, true, &m), LAPSE_ENOTFOUND);
	tick_until_idle(r->world);
	answer(r, LAPSE_EUPSTREAM);
	assert_string_equal(row(r, id), "deleted 1 1");
	world_check_counters(r->world);
	struct sweep w;
	run_sweep(r->world, "mailboxes", false, &w);
	tick_until_idle(r->world);
	answer(r, LAPSE_OK);
	assert_int_equal(side_int(r->world, "SELECT count(*) FROM mailboxes"), 0);
	world_check_counters(r->world);
	arena_done(&arena);
}

/* A crash while the account was being made: it is deleted, not at once, and nobody ever sees it. */
static void what_was_provisioned_at_a_crash_is_deleted(void **state)
{
	struct rig *r = *state;
	struct mailbox_wish wish = { .username = "alice" };
	struct problem p = { 0 };
	struct arena arena;
	struct mailbox m;
	struct tx tx;

	arena_init(&arena);
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(mailbox_create(&tx, "owner", &wish, &arena, &m, &p), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(row(r, m.id), "provisioning 0 0");
	assert_int_equal(look(r, m.id, MAILBOX_INFO, true, &m), LAPSE_ENOTFOUND);
	reopen(r);
	assert_string_equal(row(r, m.id), "deleted 1 0");
	tick_until_idle(r->world);
	assert_int_equal(r->outside.started, 0); /* the server may still be at it */
	fake_clock_advance(&r->world->time, r->world->settings.stalwart_timeout_ms + 5000);
	tick_until_idle(r->world);
	answer(r, LAPSE_OK);
	assert_int_equal(side_int(r->world, "SELECT count(*) FROM mailboxes"), 0);
	world_check_counters(r->world);
	arena_done(&arena);
}

/* The same without a crash: a commit that failed after the account was made leaves such a row. */
static void a_sweep_finds_what_was_never_settled(void **state)
{
	struct rig *r = *state;
	struct mailbox_wish wish = { .username = "alice" };
	struct problem p = { 0 };
	struct arena arena;
	struct mailbox m;
	struct sweep w;
	struct tx tx;

	arena_init(&arena);
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(mailbox_create(&tx, "owner", &wish, &arena, &m, &p), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	run_sweep(r->world, "mailboxes", false, &w);
	assert_string_equal(row(r, m.id), "provisioning 0 0"); /* too young to say */
	fake_clock_advance(&r->world->time, 60001);
	run_sweep(r->world, "mailboxes", false, &w);
	assert_string_equal(row(r, m.id), "deleted 1 0");
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(mailbox_activate(&tx, &m), LAPSE_EUNAVAILABLE); /* never active again */
	tx_rollback(&tx);
	world_check_counters(r->world);
	arena_done(&arena);
}

/* A crash between the intent, the call and its outcome costs one more call, never the deletion. */
static void a_crash_during_the_deletion_repeats_it(void **state)
{
	struct rig *r = *state;
	struct arena arena;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	pass_deadline(r);
	tick_until_idle(r->world);
	assert_int_equal(r->outside.count, 1);
	reopen(r);
	assert_string_equal(row(r, id), "expired 1 0");
	fake_clock_advance(&r->world->time, 61000);
	tick_until_idle(r->world);
	assert_int_equal(r->outside.count, 1);
	answer(r, LAPSE_OK);
	assert_string_equal(row(r, id), "expired 0 0");
	arena_done(&arena);
}

/* The provider ends with the engine: that is no failed attempt. */
static void an_end_is_no_outcome(void **state)
{
	struct rig *r = *state;
	struct arena arena;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	pass_deadline(r);
	tick_until_idle(r->world);
	answer(r, LAPSE_EUNAVAILABLE);
	assert_string_equal(row(r, id), "expired 1 0");
	assert_int_equal(cleanups(r), 1);
	arena_done(&arena);
}

/* A provider that is not set up any more: the account stays, and somebody is told. */
static void a_provider_that_is_gone_makes_a_dead_letter(void **state)
{
	struct rig *r = *state;
	struct arena arena;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	r->world->settings.mailbox_cleanup_max_retries = 1;
	mailboxes_of(&r->world->engine)->provider = NULL;
	pass_deadline(r);
	tick_until_idle(r->world);
	assert_string_equal(row(r, id), "expired -1 1");
	arena_done(&arena);
}

/* An owner of the engine that can ask nobody outside: the intent waits as it was written, whatever
 * passes, and whoever opens the store next and can carries it out. */
static void an_intent_waits_for_an_opener_who_can(void **state)
{
	struct rig *r = *state;
	struct engine *e = &r->world->engine;
	struct arena arena;
	struct sweep w;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	int64_t failed = create(r, "bob", TTL, &arena).id;
	pass_deadline(r);
	tick_until_idle(r->world);
	answer(r, LAPSE_OK);
	answer(r, LAPSE_EUPSTREAM);
	assert_string_equal(row(r, id), "expired 0 0");
	assert_string_equal(row(r, failed), "expired 1 1");

	id = create(r, "carol", TTL, &arena).id;
	mailboxes_of(e)->provider = NULL;
	e->cleaner.stays_here = true;
	pass_deadline(r);
	for (int i = 0; i < 5; i++) {
		run_sweep(r->world, "mailboxes", false, &w);
		assert_int_equal(w.outside.retried, 0);
		assert_int_equal(w.outside.cleaned, 0);
		fake_clock_advance(&r->world->time, 61000);
		tick_until_idle(r->world);
	}
	assert_string_equal(row(r, id), "expired 1 0");
	assert_string_equal(row(r, failed), "expired 1 1");
	assert_int_equal(cleanups(r), 2);

	reopen(r);
	mailboxes_of(e)->provider = &r->outside.provider;
	tick_until_idle(r->world);
	assert_int_equal(r->outside.count, 1);
	answer(r, LAPSE_OK);
	assert_string_equal(row(r, id), "expired 0 0");
	run_sweep(r->world, "mailboxes", false, &w);
	assert_int_equal(w.outside.retried, 1);
	arena_done(&arena);
}

static void hold(struct rig *r, int64_t id, lapse_ms until)
{
	side_run(r->world,
		 "INSERT INTO holds (id, owner, tbl, key, ref, reason, until, placed_at) VALUES "
		 "(%" PRId64 ", 'owner', 'mailboxes', 'k%" PRId64 "', %" PRId64 ", 'r', %" PRId64
		 ", 0)",
		 id, id, id, until);
}

/* A held one is over for its callers, but nothing of it goes. */
static void a_hold_keeps_the_account(void **state)
{
	struct rig *r = *state;
	struct arena arena;
	struct mailbox m;
	struct sweep w;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	hold(r, id, LAPSE_NEVER);
	pass_deadline(r);
	tick_until_idle(r->world);
	run_sweep(r->world, "mailboxes", false, &w);
	assert_int_equal(look(r, id, MAILBOX_OPERATE, true, &m), LAPSE_EEXPIRED);
	assert_int_equal(look(r, id, MAILBOX_INFO, false, &m), LAPSE_OK);
	assert_string_equal(row(r, id), "active 0 0");
	assert_int_equal(r->outside.started, 0);
	assert_true(engine_next_us(&r->world->engine) > 0); /* it does not spin on what is held */
	side_run(r->world, "DELETE FROM holds");
	run_sweep(r->world, "mailboxes", false, &w);
	assert_int_equal(w.outside.expired, 1);
	assert_string_equal(row(r, id), "expired 1 0");
	arena_done(&arena);
}

/* A restored store: nothing goes for a day, by no path. */
static void the_grace_after_a_restore_holds_for_looks_too(void **state)
{
	struct rig *r = *state;
	struct arena arena;
	struct mailbox m;
	struct sweep w;

	arena_init(&arena);
	int64_t id = create(r, "alice", TTL, &arena).id;
	r->world->engine.restored_at = NOW;
	pass_deadline(r);
	tick_until_idle(r->world);
	run_sweep(r->world, "mailboxes", false, &w);
	assert_int_equal(look(r, id, MAILBOX_OPERATE, true, &m), LAPSE_EEXPIRED);
	assert_int_equal(look(r, id, MAILBOX_INFO, true, &m), LAPSE_OK);
	assert_string_equal(row(r, id), "active 0 0");
	fake_clock_to(&r->world->time, NOW + 86400000);
	tick_until_idle(r->world);
	assert_string_equal(row(r, id), "expired 1 0");
	arena_done(&arena);
}

/* A dry run counts and changes nothing. */
static void a_dry_run_only_tells(void **state)
{
	struct rig *r = *state;
	struct arena arena;
	struct sweep w;

	arena_init(&arena);
	for (int i = 0; i < 30; i++)
		create(r, NULL, TTL, &arena);
	pass_deadline(r);
	char *before = world_dump(r->world, NULL);
	run_sweep(r->world, "mailboxes", true, &w);
	char *after = world_dump(r->world, NULL);
	assert_int_equal(w.outside.expired, 30);
	assert_string_equal(before, after);
	free(before);
	free(after);
	arena_done(&arena);
}

static void count_settled(struct cleanup_follower *f)
{
	(void)f;
}

/* Who asked for a sweep learns what became of the deletions it started, and of no others. */
static void a_follower_sees_how_deletions_end(void **state)
{
	struct rig *r = *state;
	struct cleanup_follower f = { .settled = count_settled };
	struct sweep w;
	struct arena arena;

	arena_init(&arena);
	for (int i = 0; i < 3; i++)
		hold(r, create(r, NULL, TTL, &arena).id, LAPSE_NEVER);
	create(r, "other", TTL, &arena);
	pass_deadline(r);
	tick_until_idle(r->world); /* takes the other one only */
	side_run(r->world, "DELETE FROM holds");
	follower_init(&r->world->engine, &f);
	sweep_init(&w, &r->world->engine, schedule_find(&r->world->engine, "mailboxes"), false);
	w.follower = &f;
	for (bool more = true; more;)
		assert_int_equal(sweep_slice(&w, &more), LAPSE_OK);
	assert_int_equal(f.targets.count, 3);
	tick_until_idle(r->world);
	assert_int_equal(r->outside.count, 4);
	answer(r, LAPSE_OK); /* of the other one */
	assert_int_equal(f.targets.count, 3);
	answer(r, LAPSE_OK);
	r->world->settings.mailbox_cleanup_max_retries = 1;
	answer(r, LAPSE_EUPSTREAM);
	r->world->settings.mailbox_cleanup_max_retries = 3;
	answer(r, LAPSE_EUPSTREAM);
	assert_int_equal(f.targets.count, 0);
	assert_int_equal(f.cleaned, 1);
	assert_int_equal(f.dead, 1);
	assert_int_equal(f.failed, 1);
	follower_done(&f);
	arena_done(&arena);
}

/* Many at one moment: slice after slice, none twice, none forgotten. */
static void a_thousand_deadlines_at_once(void **state)
{
	struct rig *r = *state;
	struct arena arena;

	arena_init(&arena);
	for (int i = 0; i < 1000; i++)
		create(r, NULL, TTL, &arena);
	pass_deadline(r);
	r->world->time.mono_step = 50; /* every look at the clock costs 50 µs: slices are short */
	for (size_t answered = 0; answered < 1000;) {
		engine_tick(&r->world->engine);
		assert_true(r->outside.count <= 32);
		for (; r->outside.count > 0; answered++)
			answer(r, LAPSE_OK);
	}
	assert_int_equal(side_int(r->world, "SELECT count(*) FROM mailboxes WHERE status = "
					    "'expired' AND stalwart_cleanup_failed = 0"),
			 1000);
	assert_int_equal(r->outside.started, 1000);
	assert_int_equal(cleanups(r), 0);
	world_check_counters(r->world);
	arena_done(&arena);
}

/* Local */

/* Sends a mail; undone again unless it is to `stay`. */
static int deliver_or_not(struct rig *r, const struct mailbox *from, const char *to, bool stay)
{
	const struct mail_draft draft = {
		.to = { &to, 1 }, .subject = "hi", .text = "hello", .html = NULL
	};
	struct provider_op op = {
		.who = { .mailbox = from->id, .owner = from->owner, .address = from->address },
		.draft = &draft
	};
	struct tx tx;

	provider_op_init(&op, PROVIDER_SEND);
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	int result = PROVIDER_LOCAL.run(NULL, &tx, &op);
	if (result == LAPSE_OK && stay)
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
	else
		tx_rollback(&tx);
	provider_op_done(&op);
	return result;
}

static int deliver(struct rig *r, const struct mailbox *from, const char *to)
{
	return deliver_or_not(r, from, to, true);
}

static void local_mail_goes_with_its_mailbox(void **state)
{
	struct rig *r = *state;
	struct arena arena;

	arena_init(&arena);
	struct mailbox alice = create(r, "alice", TTL, &arena);
	struct mailbox bob = create(r, "bob", 2 * TTL, &arena);
	for (int i = 0; i < 500; i++)
		assert_int_equal(deliver(r, &bob, alice.address), LAPSE_OK);
	pass_deadline(r);
	assert_int_equal(deliver(r, &bob, alice.address), LAPSE_EINVAL); /* marked or not */
	r->world->time.mono_step = 100;
	engine_tick(&r->world->engine);
	assert_string_equal(row(r, alice.id), "expired 0 0"); /* clean at once */
	reopen(r);                                            /* what is left survives a crash */
	tick_until_idle(r->world);
	fake_clock_advance(&r->world->time, 10);
	tick_until_idle(r->world);
	assert_int_equal(side_int(r->world,
				  "SELECT count(*) FROM mailbox_messages WHERE mailbox "
				  "= %" PRId64,
				  alice.id),
			 0);
	assert_int_equal(side_int(r->world, "SELECT count(*) FROM mailbox_messages"), 500);
	assert_int_equal(side_int(r->world, "SELECT count(*) FROM mailbox_boxes"), 1);
	world_check_counters(r->world);
	arena_done(&arena);
}

static lapse_us time_deliveries(struct rig *r, const struct mailbox *m)
{
	lapse_us began = clock_mono(&CLOCK_SYSTEM);

	for (int i = 0; i < 100; i++)
		assert_int_equal(deliver_or_not(r, m, m->address, false), LAPSE_OK);
	return clock_mono(&CLOCK_SYSTEM) - began;
}

/* An address is found by its index: without it each delivery would walk all 50 000, a hundred times
 * what it costs. */
static void a_delivery_costs_the_same_among_many(void **state)
{
	struct rig *r = *state;
	struct arena arena;

	arena_init(&arena);
	struct mailbox m = create(r, "alice", TTL, &arena);
	lapse_us alone = time_deliveries(r, &m);
	side_run(r->world,
		 "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < "
		 "50000) INSERT INTO mailboxes SELECT i, 'o', 'x' || i || '@lapse.local', "
		 "'x' || i, 'lapse.local', 'active', 0, 1800000000001, 'local', '', '', '', 0, "
		 "0 FROM n");
	assert_true(time_deliveries(r, &m) < 20 * alone + 50000);
	arena_done(&arena);
}

/* Nobody has looked and no tick has come: wanting its address lets a due mailbox expire. */
static void the_address_of_a_due_mailbox_is_free(void **state)
{
	struct rig *r = *state;
	struct arena arena;

	arena_init(&arena);
	int64_t first = create(r, "alice", TTL, &arena).id;
	pass_deadline(r);
	int64_t second = create(r, "alice", TTL, &arena).id;
	assert_string_equal(row(r, first), "expired 0 0");
	assert_string_equal(row(r, second), "active 0 0");
	world_check_counters(r->world);
	arena_done(&arena);
}

/* At a mail server it is taken until its account is gone; the refusal changes nothing. */
static void the_address_of_a_due_account_is_taken(void **state)
{
	struct mailbox_wish wish = { .username = "alice", .ttl_ms = TTL };
	struct rig *r = *state;
	struct problem p = { 0 };
	struct mailbox m;
	struct arena arena;
	struct tx tx;

	arena_init(&arena);
	int64_t first = create(r, "alice", TTL, &arena).id;
	pass_deadline(r);
	assert_int_equal(tx_begin(&tx, &r->world->engine), LAPSE_OK);
	assert_int_equal(mailbox_create(&tx, "owner", &wish, &arena, &m, &p), LAPSE_ECONFLICT);
	tx_rollback(&tx);
	assert_string_equal(row(r, first), "active 0 0");
	arena_done(&arena);
}

int main(void)
{
#define OUTSIDE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		OUTSIDE(the_deadline_expires_it),
		OUTSIDE(a_look_expires_it),
		OUTSIDE(a_renewal_after_the_deadline_changes_nothing),
		OUTSIDE(failures_end_as_a_dead_letter),
		OUTSIDE(an_expired_row_stays_until_its_account_is_gone),
		OUTSIDE(a_dead_letter_is_retried_or_let_go),
		OUTSIDE(the_address_is_free_when_it_is_clean),
		OUTSIDE(a_deleted_one_goes_when_it_is_clean),
		OUTSIDE(what_was_provisioned_at_a_crash_is_deleted),
		OUTSIDE(a_sweep_finds_what_was_never_settled),
		OUTSIDE(a_crash_during_the_deletion_repeats_it),
		OUTSIDE(an_end_is_no_outcome),
		OUTSIDE(a_provider_that_is_gone_makes_a_dead_letter),
		OUTSIDE(an_intent_waits_for_an_opener_who_can),
		OUTSIDE(a_hold_keeps_the_account),
		OUTSIDE(the_grace_after_a_restore_holds_for_looks_too),
		OUTSIDE(a_dry_run_only_tells),
		OUTSIDE(a_follower_sees_how_deletions_end),
		OUTSIDE(a_thousand_deadlines_at_once),
		OUTSIDE(the_address_of_a_due_account_is_taken),
		cmocka_unit_test_setup_teardown(the_address_of_a_due_mailbox_is_free, setup_local,
						teardown),
		cmocka_unit_test_setup_teardown(local_mail_goes_with_its_mailbox, setup_local,
						teardown),
		cmocka_unit_test_setup_teardown(a_delivery_costs_the_same_among_many, setup_local,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
