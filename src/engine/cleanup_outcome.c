/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of deletions outside: outcomes are written in batches, failures logged, followers
 * told. The interface is engine/cleanup.h.
 */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/cleanup.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/tx.h"

#define RETRY_MS INT64_C(10000) /* pause after the first failure; it grows with each */

/* While requests want the store, outcomes gather and are written together: each transaction adds to
 * what the next sync has to carry. The cleaner waits GATHER_FACTOR times as long as the last write
 * took, GATHER_MAX_US at most. */
#define GATHER_FACTOR 32
#define GATHER_MAX_US INT64_C(50000)

/* Followers */

struct followed {
	struct map_node node;
	char *target;
};

void follower_init(struct engine *e, struct cleanup_follower *f)
{
	assert(e->magic == ENGINE_MAGIC);
	assert(f->magic != FOLLOWER_MAGIC);
	assert(f->settled);
	f->magic = FOLLOWER_MAGIC;
	map_init(&f->targets);
	list_append(&e->cleaner.followers, &f->link);
}

static void follower_forget(struct map *m, struct map_node *node)
{
	struct followed *x = CONTAINER_OF(node, struct followed, node);

	map_remove(m, node);
	free(x->target);
	free(x);
}

static void follower_forget_node(struct map_node *node, void *targets)
{
	follower_forget(targets, node);
}

void follower_done(struct cleanup_follower *f)
{
	assert(f->magic == FOLLOWER_MAGIC);
	f->magic = 0;
	list_remove(&f->link);
	map_each(&f->targets, follower_forget_node, &f->targets);
	assert(f->targets.count == 0);
	map_done(&f->targets);
}

struct follow_begun {
	struct cleanup_follower *follower;
	const char *target;
};

static void follow_begin_effect(struct engine *e, void *arg)
{
	const struct follow_begun *b = arg;

	assert(b->follower->magic == FOLLOWER_MAGIC);
	(void)e;
	if (map_find(&b->follower->targets, b->target))
		return;
	struct followed *x = mem_zalloc(1, sizeof(*x));
	x->target = mem_strdup(b->target);
	map_insert(&b->follower->targets, &x->node, x->target);
}

void follow_target(struct tx *tx, struct cleanup_follower *f, const char *target)
{
	if (!f)
		return;
	assert(f->magic == FOLLOWER_MAGIC && tx_is_open(tx));
	struct follow_begun *b = tx_alloc(tx, sizeof(*b));
	*b = (struct follow_begun){ f, arena_strdup(&tx->arena, target) };
	tx_effect(tx, follow_begin_effect, b);
}

struct follow_ended {
	const char *target;
	enum cleanup_state state;
};

static void follower_count(struct cleanup_follower *f, const struct follow_ended *x)
{
	struct map_node *node = map_find(&f->targets, x->target);

	assert(f->magic == FOLLOWER_MAGIC);
	if (!node)
		return;
	follower_forget(&f->targets, node);
	f->cleaned += x->state == CLEANUP_DONE;
	f->failed += x->state == CLEANUP_PENDING;
	f->dead += x->state == CLEANUP_DEAD;
	f->settled(f);
}

static void follow_end_effect(struct engine *e, void *arg)
{
	struct list *all = &e->cleaner.followers;

	for (struct list *l = all->next, *next; l != all; l = next) {
		next = l->next;
		follower_count(CONTAINER_OF(l, struct cleanup_follower, link), arg);
	}
}

/* Tells the followers of the target, once the transaction has committed. */
static void follow_settled(struct tx *tx, const char *target, enum cleanup_state state)
{
	if (list_empty(&tx->engine->cleaner.followers))
		return;
	struct follow_ended *x = tx_alloc(tx, sizeof(*x));
	*x = (struct follow_ended){ arena_strdup(&tx->arena, target), state };
	tx_effect(tx, follow_end_effect, x);
}

/* Outcomes */

static const struct db_stmt DONE = { "DELETE FROM cleanups WHERE id = $1" };
static const struct db_stmt FAILED = {
	"UPDATE cleanups SET attempts = $2, state = $3, next_at = $4, error = $5, taken = 0 "
	"WHERE id = $1"
};

static int outcome_write_done(struct tx *tx, const struct cleanup *c)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DONE);

	db_bind_int(&q, 1, c->id);
	return db_post(&q, DB_ANY);
}

static int outcome_write_failed(struct tx *tx, const struct cleanup *c,
				const struct cleanup_outcome *o)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FAILED);
	lapse_ms again =
		c->kind->retried_by_sweep ? LAPSE_NEVER : time_add(tx->now, RETRY_MS * o->attempts);

	assert(o->state == CLEANUP_DEAD || o->state == CLEANUP_PENDING);
	assert(o->attempts > 0);
	db_bind_int(&q, 1, c->id);
	db_bind_int(&q, 2, o->attempts);
	db_bind_int(&q, 3, o->state);
	db_bind_int(&q, 4, again);
	db_bind_text(&q, 5, o->why);
	if (o->state == CLEANUP_DEAD)
		cleaner_count_dead(tx, 1);
	return db_post(&q, DB_ANY);
}

static int outcome_announce(struct tx *tx, const struct cleanup *c, const struct cleanup_outcome *o)
{
	enum event_kind event = o->state == CLEANUP_DEAD ? c->kind->dead : c->kind->failed;
	struct buf CLEANUP(buf_done) data = { 0 };

	if (o->state == CLEANUP_DONE || event == EVENT_NONE)
		return LAPSE_OK;
	assert(o->state != CLEANUP_DROPPED);
	json_begin(&data, '{');
	json_put_id(&data, "id", c->id);
	json_put_text(&data, "kind", c->kind->name);
	json_put_text(&data, "target", c->target);
	json_put_int(&data, "attempts", o->attempts);
	json_put_text(&data, "error", o->why);
	json_end(&data, '}');
	return event_add(tx, c->owner, event, &data);
}

static int64_t cleanup_attempts_max(const struct engine *e, const struct cleanup_kind *kind)
{
	assert(kind->attempts_max + sizeof(int64_t) <= sizeof(struct settings));
	return *(const int64_t *)((const char *)e->settings + kind->attempts_max);
}

static enum cleanup_state cleanup_state_after(const struct engine *e, const struct cleanup *c)
{
	if (c->err == LAPSE_OK)
		return CLEANUP_DONE;
	return c->attempts + 1 >= cleanup_attempts_max(e, c->kind) ? CLEANUP_DEAD : CLEANUP_PENDING;
}

static int outcome_write(struct tx *tx, const struct cleanup *c)
{
	struct cleanup_outcome o = { .state = cleanup_state_after(tx->engine, c),
				     .owner = c->owner,
				     .target = c->target,
				     .attempts = c->attempts,
				     .why = "" };

	assert(tx_can_write(tx));
	assert(c->err <= 0);
	assert(c->magic == CLEANUP_MAGIC && c->stage == CLEANUP_SETTLED);
	if (o.state != CLEANUP_DONE) {
		o.attempts++;
		o.why = c->why;
	}
	int r = o.state == CLEANUP_DONE ? outcome_write_done(tx, c)
					: outcome_write_failed(tx, c, &o);
	if (r == LAPSE_OK)
		r = outcome_announce(tx, c, &o);
	if (r == LAPSE_OK && c->kind->settled)
		r = c->kind->settled(tx, &o);
	if (r == LAPSE_OK)
		follow_settled(tx, c->target, o.state);
	return r;
}

/* The targets of all attempts that ended alike since the last tick. */
static void outcome_put_targets(const struct engine *e, enum cleanup_state state, struct buf *line)
{
	const struct list *all = &e->cleaner.settled;

	json_key(line, "targets");
	json_begin(line, '[');
	for (const struct list *l = all->next; l != all; l = l->next) {
		const struct cleanup *c = CONTAINER_OF(l, struct cleanup, link);
		if (cleanup_state_after(e, c) == state)
			json_text(line, c->target);
	}
	json_end(line, ']');
}

static void outcome_log(const struct engine *e, const struct cleanup *c, enum cleanup_state state,
			int64_t count)
{
	bool dead = state == CLEANUP_DEAD;
	struct buf line = { 0 };

	assert(count > 0 && c->err < 0);
	log_open(e->log, &line, dead ? LOG_ERROR : LOG_WARN,
		 dead ? "cleanup.dead_letter" : "cleanup.failed");
	json_put_text(&line, "message",
		      dead ? "given up: list and retry it with 'lapse dead-letters'"
			   : "the deletion failed and will be tried again");
	json_put_text(&line, "kind", c->kind->name);
	json_put_text(&line, "target", c->target);
	json_put_int(&line, "attempts", c->attempts + 1);
	json_put_text(&line, "error", c->why);
	json_put_int(&line, "count", count);
	if (count > 1)
		outcome_put_targets(e, state, &line);
	log_close(e->log, &line);
}

/* One line for all attempts that ended alike since the last tick: a server that is down is one
 * fact. It gives the reason of the first and names every target. */
static void outcomes_log(const struct engine *e, enum cleanup_state state)
{
	const struct list *all = &e->cleaner.settled;
	const struct cleanup *first = NULL;
	int64_t count = 0;

	for (const struct list *l = all->next; l != all; l = l->next) {
		const struct cleanup *c = CONTAINER_OF(l, struct cleanup, link);
		if (cleanup_state_after(e, c) != state)
			continue;
		first = first ? first : c;
		count++;
	}
	if (first)
		outcome_log(e, first, state, count);
}

static int outcomes_write_all(struct tx *tx, void *arg)
{
	const struct list *all = arg;
	int r = LAPSE_OK;

	for (const struct list *l = all->next; r == LAPSE_OK && l != all; l = l->next)
		r = outcome_write(tx, CONTAINER_OF(l, struct cleanup, link));
	return r;
}

/* Writes all outcomes that came since the last tick in one transaction. When it fails the intents
 * stand as they were taken, and are tried again once the taking has run out. */
void cleaner_write_settled(struct engine *e)
{
	struct list *all = &e->cleaner.settled;

	if (list_empty(all))
		return;
	lapse_us began = clock_mono(e->clock);
	int r = job_do(e, JOB_LAZY, outcomes_write_all, all);
	if (r < 0) {
		log_message(e->log, LOG_WARN, "cleanup.settle_failed",
			    "outcomes of deletions could not be stored; the deletions will be "
			    "repeated: %s",
			    err_text(r));
	} else {
		outcomes_log(e, CLEANUP_PENDING);
		outcomes_log(e, CLEANUP_DEAD);
	}
	cleanup_free_list(all);
	lapse_us pause = GATHER_FACTOR * (clock_mono(e->clock) - began);
	e->cleaner.write_after =
		clock_mono(e->clock) + (pause < GATHER_MAX_US ? pause : GATHER_MAX_US);
	for (size_t i = 0; i < e->cleaner.kinds_count; i++)
		e->cleaner.kinds[i].look_again = 0; /* there is room for the next */
}

lapse_us cleaner_next_write_us(const struct engine *e)
{
	lapse_us in = e->cleaner.write_after - clock_mono(e->clock);

	if (list_empty(&e->cleaner.settled))
		return INT64_MAX;
	return e->crowded && in > 0 ? in : 0;
}
