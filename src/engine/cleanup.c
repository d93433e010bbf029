/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/id.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/tx.h"
#include "store/sql.h"

#define FILES_AT_ONCE 8
#define TAKE_MS INT64_C(60000)   /* the lease of one that was taken */
#define LOOK_US INT64_C(5000000) /* between two looks when nothing calls for one */

/* The target may be a restored backup's: nothing outside the data directory is ever removed. */
static int cleanup_remove_file(const char *data_dir, const char *target, char *why, size_t size)
{
	int error = -file_unlink_beneath(data_dir, target);

	assert(size > 0);
	if (error == 0 || error == ENOENT)
		return LAPSE_OK;
	if (error == EXDEV || error == ELOOP)
		snprintf(why, size, "the path leads out of the data directory");
	else
		snprintf(why, size, "%s", strerror(error));
	return LAPSE_EIO;
}

const struct cleanup_kind CLEANUP_FILE = {
	.name = "file",
	.running_max = FILES_AT_ONCE,
	.attempts_max = offsetof(struct settings, cleanup_max_attempts),
	.dead = EVENT_DEAD_LETTER,
	.needs_files = true,
	.remove = cleanup_remove_file,
};

void cleaner_init(struct cleaner *c, const struct cleanup_kind *const *kinds)
{
	*c = (struct cleaner){ 0 };
	list_init(&c->settled);
	list_init(&c->followers);
	for (; *kinds; kinds++) {
		assert(c->kinds_count < CLEANUP_KINDS_MAX);
		assert((*kinds)->running_max > 0 && (*kinds)->running_max <= CLEANUP_RUNNING_MAX);
		assert(!(*kinds)->remove != !(*kinds)->start);
		struct cleaner_kind *k = &c->kinds[c->kinds_count++];
		k->kind = *kinds;
		list_init(&k->taken);
		list_init(&k->running);
	}
}

static void cleanup_free(struct cleanup *c)
{
	assert(c->magic == CLEANUP_MAGIC);
	c->magic = 0;
	free(c->owner);
	free(c->target);
	free(c);
}

void cleanup_free_list(struct list *l)
{
	for (struct list *x = l->next, *next; x != l; x = next) {
		next = x->next;
		cleanup_free(CONTAINER_OF(x, struct cleanup, link));
	}
	list_init(l);
}

void cleaner_done(struct cleaner *c)
{
	for (size_t i = 0; i < c->kinds_count; i++) {
		cleanup_free_list(&c->kinds[i].taken);
		cleanup_free_list(&c->kinds[i].running);
	}
	if (c->settled.next) /* cleaner_init() has run */
		cleanup_free_list(&c->settled);
}

const struct cleanup_kind *cleaner_kind_named(const struct engine *e, const char *name)
{
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		if (strcmp(e->cleaner.kinds[i].kind->name, name) == 0)
			return e->cleaner.kinds[i].kind;
	return NULL;
}

/* Effects. */

static void cleaner_look_effect(struct engine *e, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		e->cleaner.kinds[i].look_again = 0;
}

void cleaner_look_now(struct tx *tx)
{
	tx_effect(tx, cleaner_look_effect, NULL);
}

static void cleaner_dead_effect(struct engine *e, void *arg)
{
	e->cleaner.dead += *(int64_t *)arg;
	if (e->cluster.on && e->cleaner.dead < 0)
		e->cleaner.dead = 0; /* another replica's; it is counted again soon */
	assert(e->cleaner.dead >= 0);
}

void cleaner_count_dead(struct tx *tx, int64_t delta)
{
	int64_t *arg = tx_alloc(tx, sizeof(*arg));

	assert(delta != 0);
	*arg = delta;
	tx_effect(tx, cleaner_dead_effect, arg);
}

/* Intents. */

static const struct db_stmt FIND_DEAD = {
	"SELECT 1 FROM cleanups WHERE kind = $1 AND target = $2 AND state = -1"
};
static const struct db_stmt ADD = {
	"INSERT INTO cleanups (id, owner, kind, target, state, attempts, next_at, created_at, "
	"error) "
	"VALUES ($1, $2, $3, $4, 1, 0, $5, $6, '') "
	"ON CONFLICT (kind, target) DO UPDATE SET state = 1, attempts = 0, taken = 0, "
	"next_at = excluded.next_at WHERE cleanups.state = -1"
};

static int cleanup_is_dead(struct tx *tx, const struct cleanup_kind *kind, const char *target)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FIND_DEAD);

	db_bind_text(&q, 1, kind->name);
	db_bind_text(&q, 2, target);
	return db_step(&q);
}

int cleanup_add_at(struct tx *tx, const char *owner, const struct cleanup_kind *kind,
		   const char *target, lapse_ms at)
{
	bool may_be_dead = tx->engine->cleaner.dead > 0 || tx->engine->cluster.on;
	int dead = may_be_dead ? cleanup_is_dead(tx, kind, target) : 0;

	assert(tx_can_write(tx));
	assert(kind->name && *target);
	if (dead < 0)
		return dead;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ADD);
	db_bind_int(&q, 1, id_next(&tx->engine->ids, tx->now));
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, kind->name);
	db_bind_text(&q, 4, target);
	db_bind_int(&q, 5, at);
	db_bind_int(&q, 6, tx->now);
	cleaner_look_now(tx);
	if (dead > 0)
		cleaner_count_dead(tx, -1);
	return db_post(&q, DB_ANY);
}

int cleanup_add(struct tx *tx, const char *owner, const struct cleanup_kind *kind,
		const char *target)
{
	return cleanup_add_at(tx, owner, kind, target, tx->now);
}

static const struct db_stmt RETRY = {
	"UPDATE cleanups SET next_at = $1 WHERE id " SQL_CHOOSE
	"SELECT id FROM cleanups WHERE state = 1 "
	"AND kind = $2 AND next_at = $3 ORDER BY id LIMIT $4" SQL_SKIP_LOCKED " "
	"AND state = 1 AND next_at = $3 RETURNING target"
};

/* Whether this process can run the kind. */
static bool cleaner_can_run(const struct engine *e, const struct cleanup_kind *kind)
{
	return !(kind->asks_outside && e->cleaner.stays_here) &&
	       !(kind->needs_files && !e->files_shared);
}

int cleanup_retry(struct tx *tx, const struct cleanup_kind *kind, int64_t max,
		  void (*fn)(void *arg, const char *target), void *arg, int64_t *ret_n)
{
	int64_t n = 0;
	int r;

	assert(tx_can_write(tx));
	assert(kind->retried_by_sweep && max > 0);
	if (!cleaner_can_run(tx->engine, kind)) {
		*ret_n = 0;
		return LAPSE_OK;
	}
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &RETRY);
	db_bind_int(&q, 1, tx->now);
	db_bind_text(&q, 2, kind->name);
	db_bind_int(&q, 3, LAPSE_NEVER);
	db_bind_int(&q, 4, max);
	while ((r = db_step(&q)) > 0) {
		n++;
		if (fn)
			fn(arg, db_text(&q, 0));
	}
	if (r < 0)
		return r;
	if (n > 0)
		cleaner_look_now(tx);
	*ret_n = n;
	return LAPSE_OK;
}

/* Taking what is due. */

/* `taken` is the replica's number and one: the only process of a store has the number 0. An intent
 * of another replica is left to that one for a while, because a request of it may wait for the
 * outcome. */
#define OTHERS_MS INT64_C(5000)

static const struct db_stmt TAKE = {
	"UPDATE cleanups SET next_at = $1, taken = $5 WHERE state = 1 AND next_at <= $3 AND "
	"id " SQL_CHOOSE "SELECT id FROM cleanups WHERE state = 1 AND kind = $2 AND next_at <= $3 "
	"AND (next_at <= $6 OR id % 256 = $5 - 1) ORDER BY next_at LIMIT $4" SQL_SKIP_LOCKED
	" RETURNING id, attempts, owner, target"
};

static bool cleanup_is_in(const struct list *all, int64_t id)
{
	for (const struct list *l = all->next; l != all; l = l->next)
		if (CONTAINER_OF(l, struct cleanup, link)->id == id)
			return true;
	return false;
}

static struct cleanup *cleanup_new(const struct db_query *q, const struct cleanup_kind *kind)
{
	struct cleanup *c = mem_zalloc(1, sizeof(*c));

	c->magic = CLEANUP_MAGIC;
	c->stage = CLEANUP_TAKEN;
	c->kind = kind;
	c->id = db_int(q, 0);
	c->attempts = db_int(q, 1);
	c->owner = mem_strdup(db_text(q, 2));
	c->target = mem_strdup(db_text(q, 3));
	return c;
}

/* An attempt that takes longer than TAKE_MS, or whose outcome waits to be written, is not started a
 * second time. */
static bool cleanup_is_under_way(const struct engine *e, const struct cleaner_kind *k, int64_t id)
{
	return cleanup_is_in(&k->running, id) || cleanup_is_in(&k->taken, id) ||
	       cleanup_is_in(&e->cleaner.settled, id);
}

struct taking {
	const struct cleaner_kind *kind;
	struct list taken; /* struct cleanup */
};

static int cleaner_take(struct tx *tx, void *arg)
{
	struct taking *x = arg;
	const struct cleaner_kind *k = x->kind;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &TAKE);
	int r;

	cleanup_free_list(&x->taken); /* of a run that was undone */
	db_bind_int(&q, 1, time_add(tx->now, TAKE_MS));
	db_bind_text(&q, 2, k->kind->name);
	db_bind_int(&q, 3, tx->now);
	assert(k->running_count < k->kind->running_max);
	db_bind_int(&q, 4, k->kind->running_max - k->running_count);
	db_bind_int(&q, 5, tx->engine->ids.replica + 1);
	db_bind_int(&q, 6, tx->engine->cluster.on ? time_sub(tx->now, OTHERS_MS) : tx->now);
	assert(tx_can_write(tx));
	while ((r = db_step(&q)) > 0)
		if (!cleanup_is_under_way(tx->engine, k, db_int(&q, 0)))
			list_append(&x->taken, &cleanup_new(&q, k->kind)->link);
	return r;
}

/* Pending intents are rare: a look that finds none must not open a write transaction. Gives the
 * milliseconds until one is due; 0 = now, LAPSE_NEVER = none is. */
static lapse_ms cleaner_until_due(struct engine *e, const struct cleanup_kind *kind)
{
	static const struct db_stmt FIRST = {
		"SELECT min(next_at) FROM cleanups WHERE state = 1 AND kind = $1"
	};
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &FIRST);

	db_bind_text(&q, 1, kind->name);
	if (db_step(&q) <= 0 || db_is_null(&q, 0) || db_int(&q, 0) == LAPSE_NEVER)
		return LAPSE_NEVER;
	lapse_ms in = time_sub(db_int(&q, 0), clock_wall(e->clock));
	return in > 0 ? in : 0;
}

static void cleaner_take_due(struct engine *e, struct cleaner_kind *k)
{
	struct taking x = { .kind = k };

	assert(k->running_count < k->kind->running_max);
	lapse_ms in = cleaner_until_due(e, k->kind);
	k->look_again =
		clock_mono(e->clock) + (in < LOOK_US / 1000 && in > 0 ? in * 1000 : LOOK_US);
	if (in > 0)
		return;
	list_init(&x.taken);
	if (job_do(e, JOB_LAZY, cleaner_take, &x) < 0) {
		cleanup_free_list(&x.taken);
		return;
	}
	k->taken_at = store_mark(e->store);
	for (const struct list *l = x.taken.next; l != &x.taken; l = l->next)
		k->running_count++;
	assert(k->running_count <= k->kind->running_max);
	list_move_all(&k->taken, &x.taken);
}

static void cleanup_remove_work(struct offload *o) /* on a worker */
{
	struct cleanup *c = CONTAINER_OF(o, struct cleanup, job);

	assert(c->magic == CLEANUP_MAGIC && c->stage == CLEANUP_RUNNING && c->kind->remove);
	c->err = c->kind->remove(o->engine->settings->data_dir, c->target, c->why, sizeof(c->why));
}

/* The attempt is over: its outcome is to be written. */
static void cleanup_end(struct engine *e, struct cleanup *c)
{
	struct cleaner_kind *k = NULL;

	assert(c->magic == CLEANUP_MAGIC && c->stage == CLEANUP_RUNNING);
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		if (e->cleaner.kinds[i].kind == c->kind)
			k = &e->cleaner.kinds[i];
	assert(k && k->running_count > 0);
	utf8_repair(c->why); /* the cut may have gone through a character */
	c->stage = CLEANUP_SETTLED;
	list_remove(&c->link);
	list_append(&e->cleaner.settled, &c->link);
	k->running_count--;
}

static void cleanup_removed(struct offload *o)
{
	cleanup_end(o->engine, CONTAINER_OF(o, struct cleanup, job));
}

void cleanup_settle(struct engine *e, struct cleanup *c, int err, const char *why)
{
	assert(c->magic == CLEANUP_MAGIC && c->kind->start);
	assert(err <= 0 && why);
	c->err = err;
	snprintf(c->why, sizeof(c->why), "%s", why);
	cleanup_end(e, c);
}

static void cleanup_start(struct engine *e, struct cleaner_kind *k, struct cleanup *c)
{
	assert(c->magic == CLEANUP_MAGIC && c->stage == CLEANUP_TAKEN && c->kind == k->kind);
	c->stage = CLEANUP_RUNNING;
	list_append(&k->running, &c->link);
	if (k->kind->start) {
		k->kind->start(e, c);
		return;
	}
	c->job = (struct offload){ .work = cleanup_remove_work, .done = cleanup_removed };
	offload_start(e, &c->job);
}

/* Nothing outside is touched before the intent would survive a power loss. */
static void cleaner_start_taken(struct engine *e, struct cleaner_kind *k)
{
	if (list_empty(&k->taken) || !durable_want(e, k->taken_at))
		return;
	assert(store_is_durable(e->store, k->taken_at));
	for (struct list *l; (l = list_shift(&k->taken)) != NULL;)
		cleanup_start(e, k, CONTAINER_OF(l, struct cleanup, link));
}

/* The loop. */

static bool cleaner_has_room(const struct engine *e, const struct cleaner_kind *k)
{
	return k->running_count < k->kind->running_max && cleaner_can_run(e, k->kind);
}

static lapse_us cleaner_next_look_us(const struct engine *e, const struct cleaner_kind *k)
{
	lapse_us in = k->look_again - clock_mono(e->clock);

	if (!cleaner_has_room(e, k))
		return INT64_MAX;
	return in > 0 ? in : 0;
}

void cleaner_tick(struct engine *e)
{
	if (cleaner_next_write_us(e) == 0)
		cleaner_write_settled(e);
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		if (cleaner_next_look_us(e, &e->cleaner.kinds[i]) == 0)
			cleaner_take_due(e, &e->cleaner.kinds[i]);
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		cleaner_start_taken(e, &e->cleaner.kinds[i]);
	if (cleaner_next_write_us(e) == 0) /* what was removed at once, without a loop */
		cleaner_write_settled(e);
}

void cleaner_stop(struct engine *e)
{
	cleaner_write_settled(e);
}

lapse_us cleaner_next_us(const struct engine *e)
{
	lapse_us next = cleaner_next_write_us(e);

	for (size_t i = 0; i < e->cleaner.kinds_count; i++) {
		const struct cleaner_kind *k = &e->cleaner.kinds[i];
		bool can_go = !list_empty(&k->taken) && !durable_waits(e, k->taken_at);
		lapse_us in = can_go ? 0 : cleaner_next_look_us(e, k);
		next = in < next ? in : next;
	}
	return next;
}

/* Whatever is taken, and not by a live replica, was taken by a process that has ended: its lease is
 * void. */
static int void_leases(struct engine *e)
{
	static const struct db_stmt VOID = {
		"UPDATE cleanups SET next_at = $1, taken = 0 WHERE state = 1 AND taken > 0 "
		"AND taken - 1 NOT IN (SELECT number FROM replicas WHERE state = 1 "
		"AND number <> $2)"
	};
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &VOID);

	db_bind_int(&q, 1, clock_wall(e->clock));
	db_bind_int(&q, 2, e->ids.replica);
	return db_post(&q, DB_ANY);
}

int cleaner_free_taken(struct tx *tx, int64_t replica)
{
	static const struct db_stmt FREE = {
		"UPDATE cleanups SET next_at = $1, taken = 0 WHERE state = 1 AND taken = $2 + 1"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FREE);

	db_bind_int(&q, 1, tx->now);
	db_bind_int(&q, 2, replica);
	return db_post(&q, DB_ANY);
}

int cleaner_load(struct engine *e)
{
	static const struct db_stmt FIGURES = {
		"SELECT (SELECT coalesce(max(id), 0) FROM cleanups), "
		"(SELECT count(*) FROM cleanups WHERE state = -1)"
	};
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &FIGURES);
	int r = db_step(&q);

	assert(e->cleaner.dead == 0);
	if (r <= 0)
		return r;
	if (db_int(&q, 0) > e->ids.last)
		e->ids.last = db_int(&q, 0);
	e->cleaner.dead = db_int(&q, 1);
	return void_leases(e);
}
