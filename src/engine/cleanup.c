/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/follow.h"
#include "engine/tx.h"

#define FILES_AT_ONCE 8
#define TAKE_MS INT64_C(60000)   /* a taken one is not taken again before, after a crash */
#define RETRY_MS INT64_C(10000)  /* pause after the first failure; it grows with each */
#define LOOK_US INT64_C(5000000) /* between two looks when nothing calls for one */

/* While others want the store, outcomes gather and are written together, since each transaction
 * adds to what the next sync of theirs has to carry: the next ones are written after so many times
 * as long as the last ones took. */
#define GATHER_FACTOR 32
#define GATHER_MAX_US INT64_C(50000)

static int remove_file(const char *data_dir, const char *target, char *why, size_t size)
{
	char path[DATADIR_PATH_MAX];

	if (datadir_file(data_dir, target, path) < 0) {
		snprintf(why, size, "the path is too long");
		return LAPSE_EINVAL;
	}
	if (unlink(path) < 0 && errno != ENOENT) {
		snprintf(why, size, "%s", strerror(errno));
		return LAPSE_EIO;
	}
	return LAPSE_OK;
}

const struct cleanup_kind CLEANUP_FILE = {
	.name = "file",
	.running_max = FILES_AT_ONCE,
	.attempts_max = offsetof(struct settings, cleanup_max_attempts),
	.dead = EVENT_DEAD_LETTER,
	.remove = remove_file,
};

void cleaner_init(struct cleaner *c, const struct cleanup_kind *const *kinds)
{
	*c = (struct cleaner){ 0 };
	list_init(&c->settled);
	list_init(&c->followers);
	for (; *kinds; kinds++) {
		assert(c->kinds_count < CLEANUP_KINDS_MAX);
		assert((*kinds)->running_max <= CLEANUP_RUNNING_MAX);
		struct cleaner_kind *k = &c->kinds[c->kinds_count++];
		k->kind = *kinds;
		list_init(&k->taken);
		list_init(&k->running);
	}
}

static void cleanup_free(struct cleanup *c)
{
	free(c->owner);
	free(c->target);
	free(c);
}

static void free_list(struct list *l)
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
		free_list(&c->kinds[i].taken);
		free_list(&c->kinds[i].running);
	}
	if (c->settled.next) /* it was initialised */
		free_list(&c->settled);
}

const struct cleanup_kind *cleaner_kind_named(const struct engine *e, const char *name)
{
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		if (strcmp(e->cleaner.kinds[i].kind->name, name) == 0)
			return e->cleaner.kinds[i].kind;
	return NULL;
}

static struct cleaner_kind *state_of(struct engine *e, const struct cleanup_kind *kind)
{
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		if (e->cleaner.kinds[i].kind == kind)
			return &e->cleaner.kinds[i];
	return NULL;
}

/* Effects. */

static void look_now(struct engine *e, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		e->cleaner.kinds[i].look_again = 0;
}

void cleaner_look_now(struct tx *tx)
{
	tx_effect(tx, look_now, NULL);
}

static void add_dead(struct engine *e, void *arg)
{
	e->cleaner.dead += *(int64_t *)arg;
}

void cleaner_count_dead(struct tx *tx, int64_t delta)
{
	int64_t *arg = tx_alloc(tx, sizeof(*arg));

	*arg = delta;
	tx_effect(tx, add_dead, arg);
}

/* Intents. */

static const struct db_stmt FIND_DEAD = {
	"SELECT 1 FROM cleanups WHERE kind = $1 AND target = $2 AND state = -1"
};
static const struct db_stmt ADD = {
	"INSERT INTO cleanups (id, owner, kind, target, state, attempts, next_at, created_at, "
	"error) "
	"VALUES ($1, $2, $3, $4, 1, 0, $5, $6, '') "
	"ON CONFLICT (kind, target) DO UPDATE SET state = 1, attempts = 0, "
	"next_at = excluded.next_at WHERE cleanups.state = -1"
};

static int revives_dead(struct tx *tx, const struct cleanup_kind *kind, const char *target)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FIND_DEAD);

	db_bind_text(&q, 1, kind->name);
	db_bind_text(&q, 2, target);
	return db_step(&q);
}

int cleanup_add_at(struct tx *tx, const char *owner, const struct cleanup_kind *kind,
		   const char *target, lapse_ms at)
{
	int dead = tx->engine->cleaner.dead > 0 ? revives_dead(tx, kind, target) : 0;

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
	return db_run(&q);
}

int cleanup_add(struct tx *tx, const char *owner, const struct cleanup_kind *kind,
		const char *target)
{
	return cleanup_add_at(tx, owner, kind, target, tx->now);
}

static const struct db_stmt RETRY = {
	"UPDATE cleanups SET next_at = $1 WHERE id IN (SELECT id FROM cleanups WHERE state = 1 "
	"AND kind = $2 AND next_at = $3 ORDER BY id LIMIT $4) RETURNING target"
};

/* Whether there is anybody to run this kind. */
static bool has_means(const struct cleaner *c, const struct cleanup_kind *kind)
{
	if (kind->asks_outside && c->stays_here)
		return false;
	return kind->start || c->runner;
}

int cleanup_retry(struct tx *tx, const struct cleanup_kind *kind, int64_t max,
		  void (*fn)(void *arg, const char *target), void *arg, int64_t *ret_n)
{
	int64_t n = 0;
	int r;

	if (!has_means(&tx->engine->cleaner, kind)) {
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

static const struct db_stmt TAKE = {
	"UPDATE cleanups SET next_at = $1 WHERE state = 1 AND id IN ("
	"SELECT id FROM cleanups WHERE state = 1 AND kind = $2 AND next_at <= $3 "
	"ORDER BY next_at LIMIT $4) RETURNING id, attempts, owner, target"
};

static bool is_in(const struct list *all, int64_t id)
{
	for (const struct list *l = all->next; l != all; l = l->next)
		if (CONTAINER_OF(l, struct cleanup, link)->id == id)
			return true;
	return false;
}

static struct cleanup *copy_row(const struct db_query *q, const struct cleanup_kind *kind)
{
	struct cleanup *c = mem_zalloc(1, sizeof(*c));

	c->kind = kind;
	c->id = db_int(q, 0);
	c->attempts = db_int(q, 1);
	c->owner = mem_strdup(db_text(q, 2));
	c->target = mem_strdup(db_text(q, 3));
	return c;
}

/* One that is under way for longer than TAKE_MS, or whose outcome waits to be written, is not
 * started a second time. */
static bool is_under_way(const struct engine *e, const struct cleaner_kind *k, int64_t id)
{
	return is_in(&k->running, id) || is_in(&k->taken, id) || is_in(&e->cleaner.settled, id);
}

static int take(struct tx *tx, const struct cleaner_kind *k, struct list *taken)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &TAKE);
	int r;

	db_bind_int(&q, 1, time_add(tx->now, TAKE_MS));
	db_bind_text(&q, 2, k->kind->name);
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, k->kind->running_max - k->running_count);
	while ((r = db_step(&q)) > 0)
		if (!is_under_way(tx->engine, k, db_int(&q, 0)))
			list_append(taken, &copy_row(&q, k->kind)->link);
	return r;
}

/* Pending intents are rare: a look that finds none must not open a write transaction. Gives the
 * milliseconds until one is due; 0 = now, LAPSE_NEVER = none is. */
static lapse_ms until_pending(struct engine *e, const struct cleanup_kind *kind)
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

static int take_in_transaction(struct engine *e, const struct cleaner_kind *k, struct list *taken)
{
	struct tx tx;
	int r = tx_begin(&tx, e);

	if (r == LAPSE_OK)
		r = take(&tx, k, taken);
	if (r == LAPSE_OK)
		return tx_commit_lazy(&tx);
	tx_rollback(&tx);
	return r;
}

static void take_due(struct engine *e, struct cleaner_kind *k)
{
	struct list taken;

	lapse_ms in = until_pending(e, k->kind);
	k->look_again =
		clock_mono(e->clock) + (in < LOOK_US / 1000 && in > 0 ? in * 1000 : LOOK_US);
	if (in > 0)
		return;
	list_init(&taken);
	if (take_in_transaction(e, k, &taken) < 0) {
		free_list(&taken);
		return;
	}
	k->taken_at = e->commits;
	for (const struct list *l = taken.next; l != &taken; l = l->next)
		k->running_count++;
	list_move_all(&k->taken, &taken);
}

static bool waits_for_sync(const struct engine *e, const struct cleaner_kind *k)
{
	return e->durable < k->taken_at && (e->syncing || e->cleaner.syncing);
}

static void sync_log(struct offload *o) /* on a worker */
{
	syncer_sync(o->engine->syncer);
}

static void log_synced(struct offload *o)
{
	struct engine *e = o->engine;

	e->cleaner.syncing = false;
	if (e->durable < e->cleaner.sync_to) /* a turn's may have come later and been quicker */
		e->durable = e->cleaner.sync_to;
}

/* A sync lasts as long as the disk likes: the loop does not wait for it. */
static void start_sync(struct engine *e)
{
	e->cleaner.syncing = true;
	e->cleaner.sync_to = e->commits;
	e->cleaner.sync = (struct offload){ .work = sync_log, .done = log_synced };
	offload_start(e, &e->cleaner.sync);
}

/* Nothing outside is touched before the intent would survive a power loss. */
static void start_taken(struct engine *e, struct cleaner_kind *k)
{
	if (list_empty(&k->taken) || waits_for_sync(e, k))
		return;
	if (e->durable < k->taken_at)
		start_sync(e);
	if (e->durable < k->taken_at)
		return;
	for (struct list *l; (l = list_shift(&k->taken)) != NULL;) {
		struct cleanup *c = CONTAINER_OF(l, struct cleanup, link);
		list_append(&k->running, &c->link);
		if (k->kind->start)
			k->kind->start(e, c);
		else
			e->cleaner.runner(e->cleaner.runner_ctx, c);
	}
}

/* Outcomes. */

static const struct db_stmt DONE = { "DELETE FROM cleanups WHERE id = $1" };
static const struct db_stmt FAILED = {
	"UPDATE cleanups SET attempts = $2, state = $3, next_at = $4, error = $5 WHERE id = $1"
};

static int write_done(struct tx *tx, const struct cleanup *c)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DONE);

	db_bind_int(&q, 1, c->id);
	return db_run(&q);
}

static int write_failed(struct tx *tx, const struct cleanup *c, const struct cleanup_outcome *o)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FAILED);
	lapse_ms again =
		c->kind->retried_by_sweep ? LAPSE_NEVER : time_add(tx->now, RETRY_MS * o->attempts);

	db_bind_int(&q, 1, c->id);
	db_bind_int(&q, 2, o->attempts);
	db_bind_int(&q, 3, o->state);
	db_bind_int(&q, 4, again);
	db_bind_text(&q, 5, o->why);
	if (o->state == CLEANUP_DEAD)
		cleaner_count_dead(tx, 1);
	return db_run(&q);
}

static int announce(struct tx *tx, const struct cleanup *c, const struct cleanup_outcome *o)
{
	enum event_kind event = o->state == CLEANUP_DEAD ? c->kind->dead : c->kind->failed;
	struct buf CLEANUP(buf_done) data = { 0 };

	if (o->state == CLEANUP_DONE || event == EVENT_NONE)
		return LAPSE_OK;
	json_begin(&data, '{');
	json_put_id(&data, "id", c->id);
	json_put_text(&data, "kind", c->kind->name);
	json_put_text(&data, "target", c->target);
	json_put_int(&data, "attempts", o->attempts);
	json_put_text(&data, "error", o->why);
	json_end(&data, '}');
	return event_add(tx, c->owner, event, &data);
}

static int64_t attempts_max(const struct engine *e, const struct cleanup_kind *kind)
{
	return *(const int64_t *)((const char *)e->settings + kind->attempts_max);
}

static enum cleanup_state state_after(const struct engine *e, const struct cleanup *c)
{
	if (c->err == LAPSE_OK)
		return CLEANUP_DONE;
	return c->attempts + 1 >= attempts_max(e, c->kind) ? CLEANUP_DEAD : CLEANUP_PENDING;
}

static int write_outcome(struct tx *tx, const struct cleanup *c)
{
	struct cleanup_outcome o = { .state = state_after(tx->engine, c),
				     .owner = c->owner,
				     .target = c->target,
				     .attempts = c->attempts,
				     .why = "" };

	if (o.state != CLEANUP_DONE) {
		o.attempts++;
		o.why = c->why;
	}
	int r = o.state == CLEANUP_DONE ? write_done(tx, c) : write_failed(tx, c, &o);
	if (r == LAPSE_OK)
		r = announce(tx, c, &o);
	if (r == LAPSE_OK && c->kind->settled)
		r = c->kind->settled(tx, &o);
	if (r == LAPSE_OK)
		follow_settled(tx, c->target, o.state);
	return r;
}

static void log_failure(const struct engine *e, const struct cleanup *c, enum cleanup_state state,
			int64_t count)
{
	bool dead = state == CLEANUP_DEAD;
	struct buf line = { 0 };

	log_open(e->log, &line, dead ? LOG_ERROR : LOG_WARN,
		 dead ? "cleanup.dead_letter" : "cleanup.failed");
	json_put_text(&line, "message",
		      dead ? "what could not be deleted waits for a person: lapse dead-letters"
			   : "what could not be deleted is tried again");
	json_put_text(&line, "kind", c->kind->name);
	json_put_text(&line, "target", c->target);
	json_put_int(&line, "attempts", c->attempts + 1);
	json_put_text(&line, "error", c->why);
	json_put_int(&line, "count", count);
	log_close(e->log, &line);
}

/* One line for all that ended alike since the last tick, with the first of them: a server that is
 * down is one fact. */
static void log_failures(const struct engine *e, enum cleanup_state state)
{
	const struct list *all = &e->cleaner.settled;
	const struct cleanup *first = NULL;
	int64_t count = 0;

	for (const struct list *l = all->next; l != all; l = l->next) {
		const struct cleanup *c = CONTAINER_OF(l, struct cleanup, link);
		if (state_after(e, c) != state)
			continue;
		first = first ? first : c;
		count++;
	}
	if (first)
		log_failure(e, first, state, count);
}

/* All outcomes that came since the last tick, in one transaction. When it fails the intents stand
 * as they were taken, and are tried again after TAKE_MS. */
static void write_settled(struct engine *e)
{
	struct list *all = &e->cleaner.settled;
	struct tx tx;

	if (list_empty(all))
		return;
	lapse_us began = clock_mono(e->clock);
	int r = tx_begin(&tx, e);
	for (struct list *l = all->next; r == LAPSE_OK && l != all; l = l->next)
		r = write_outcome(&tx, CONTAINER_OF(l, struct cleanup, link));
	if (r == LAPSE_OK)
		r = tx_commit_lazy(&tx);
	else
		tx_rollback(&tx);
	if (r < 0) {
		log_message(e->log, LOG_WARN, "cleanup.settle_failed",
			    "outcomes could not be written and will come again: %s", err_text(r));
	} else {
		log_failures(e, CLEANUP_PENDING);
		log_failures(e, CLEANUP_DEAD);
	}
	free_list(all);
	lapse_us pause = GATHER_FACTOR * (clock_mono(e->clock) - began);
	e->cleaner.write_after =
		clock_mono(e->clock) + (pause < GATHER_MAX_US ? pause : GATHER_MAX_US);
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		e->cleaner.kinds[i].look_again = 0; /* there is room for the next */
}

/* Until outcomes are to be written; 0 = now. */
static lapse_us next_write_us(const struct engine *e)
{
	lapse_us in = e->cleaner.write_after - clock_mono(e->clock);

	if (list_empty(&e->cleaner.settled))
		return INT64_MAX;
	return e->crowded && in > 0 ? in : 0;
}

void cleanup_settle(struct engine *e, struct cleanup *c, int err, const char *why)
{
	struct cleaner_kind *k = state_of(e, c->kind);

	c->err = err;
	snprintf(c->why, sizeof(c->why), "%s", why);
	utf8_repair(c->why); /* the cut may have gone through a character */
	list_remove(&c->link);
	list_append(&e->cleaner.settled, &c->link);
	k->running_count--;
}

/* The loop. */

static bool can_start(const struct engine *e, const struct cleaner_kind *k)
{
	return k->running_count < k->kind->running_max && has_means(&e->cleaner, k->kind);
}

static lapse_us next_look_us(const struct engine *e, const struct cleaner_kind *k)
{
	lapse_us in = k->look_again - clock_mono(e->clock);

	if (!can_start(e, k))
		return INT64_MAX;
	return in > 0 ? in : 0;
}

void cleaner_tick(struct engine *e)
{
	if (next_write_us(e) == 0)
		write_settled(e);
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		if (next_look_us(e, &e->cleaner.kinds[i]) == 0)
			take_due(e, &e->cleaner.kinds[i]);
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		start_taken(e, &e->cleaner.kinds[i]);
	if (next_write_us(e) == 0) /* of a runner that has no loop */
		write_settled(e);
}

void cleaner_stop(struct engine *e)
{
	write_settled(e);
}

lapse_us cleaner_next_us(const struct engine *e)
{
	lapse_us next = next_write_us(e);

	for (size_t i = 0; i < e->cleaner.kinds_count; i++) {
		const struct cleaner_kind *k = &e->cleaner.kinds[i];
		bool can_go = !list_empty(&k->taken) && !waits_for_sync(e, k);
		lapse_us in = can_go ? 0 : next_look_us(e, k);
		next = in < next ? in : next;
	}
	return next;
}

int cleaner_load(struct engine *e)
{
	static const struct db_stmt FIGURES = {
		"SELECT (SELECT coalesce(max(id), 0) FROM cleanups), "
		"(SELECT count(*) FROM cleanups WHERE state = -1)"
	};
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &FIGURES);
	int r = db_step(&q);

	if (r <= 0)
		return r;
	if (db_int(&q, 0) > e->ids.last)
		e->ids.last = db_int(&q, 0);
	e->cleaner.dead = db_int(&q, 1);
	return LAPSE_OK;
}
