/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

#define RUNNING_MAX 8            /* cleanups under way at once */
#define TAKE_MS INT64_C(60000)   /* a taken one is not taken again before */
#define RETRY_MS INT64_C(10000)  /* pause after the first failure; it grows with each */
#define LOOK_US INT64_C(5000000) /* between two looks when nothing calls for one */

void cleaner_init(struct cleaner *c)
{
	*c = (struct cleaner){ 0 };
}

static void look_now(struct engine *e, void *arg)
{
	(void)arg;
	e->cleaner.look_again = 0;
}

static const struct db_stmt ADD = {
	"INSERT INTO cleanups (id, owner, kind, target, state, attempts, next_at, created_at, "
	"error) "
	"VALUES ($1, $2, $3, $4, 1, 0, $5, $5, '') "
	"ON CONFLICT (kind, target) DO UPDATE SET state = 1, attempts = 0, "
	"next_at = excluded.next_at WHERE cleanups.state = -1"
};

int cleanup_add(struct tx *tx, const char *owner, const char *kind, const char *target)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ADD);

	db_bind_int(&q, 1, id_next(&tx->engine->ids, tx->now));
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, kind);
	db_bind_text(&q, 4, target);
	db_bind_int(&q, 5, tx->now);
	tx_effect(tx, look_now, NULL);
	return db_run(&q);
}

static const struct db_stmt TAKE = {
	"UPDATE cleanups SET next_at = $1 WHERE state = 1 AND id IN ("
	"SELECT id FROM cleanups WHERE state = 1 AND next_at <= $2 ORDER BY next_at LIMIT $3) "
	"RETURNING id, attempts, owner, kind, target"
};
static const struct db_stmt COUNT_DEAD = { "SELECT count(*) FROM cleanups WHERE state = -1" };

static struct cleanup *copy_row(const struct db_query *q)
{
	struct cleanup *c = mem_zalloc(1, sizeof(*c));

	c->id = db_int(q, 0);
	c->attempts = db_int(q, 1);
	c->owner = mem_strdup(db_text(q, 2));
	c->kind = mem_strdup(db_text(q, 3));
	c->target = mem_strdup(db_text(q, 4));
	return c;
}

static void cleanup_free(struct cleanup *c)
{
	free(c->owner);
	free(c->kind);
	free(c->target);
	free(c);
}

static int take(struct tx *tx, struct cleanup *taken[RUNNING_MAX], int *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &TAKE);
	int n = 0, r;

	db_bind_int(&q, 1, time_add(tx->now, TAKE_MS));
	db_bind_int(&q, 2, tx->now);
	db_bind_int(&q, 3, RUNNING_MAX - tx->engine->cleaner.running);
	while ((r = db_step(&q)) > 0)
		taken[n++] = copy_row(&q);
	*ret_n = n;
	return r;
}

static int count_dead(struct db *db, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &COUNT_DEAD);
	int r = db_step(&q);

	if (r > 0)
		*ret = db_int(&q, 0);
	return r < 0 ? r : LAPSE_OK;
}

int cleaner_load(struct engine *e)
{
	static const struct db_stmt newest = { "SELECT coalesce(max(id), 0) FROM cleanups" };
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &newest);
	int r = db_step(&q);

	if (r > 0 && db_int(&q, 0) > e->ids.last)
		e->ids.last = db_int(&q, 0);
	return r < 0 ? r : count_dead(e->db, &e->cleaner.dead);
}

/* Pending intents are rare: a look that finds none must not open a write transaction. */
static bool has_pending(struct engine *e)
{
	static const struct db_stmt ANY = {
		"SELECT 1 FROM cleanups WHERE state = 1 AND next_at <= $1 LIMIT 1"
	};
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &ANY);

	db_bind_int(&q, 1, clock_wall(e->clock));
	return db_step(&q) > 0;
}

void cleaner_tick(struct engine *e)
{
	struct cleanup *taken[RUNNING_MAX];
	struct tx tx;
	int n = 0;

	if (!e->cleaner.runner || e->cleaner.running == RUNNING_MAX || cleaner_next_us(e) > 0)
		return;
	e->cleaner.look_again = clock_mono(e->clock) + LOOK_US;
	if (!has_pending(e))
		return;
	int r = tx_begin(&tx, e);
	if (r == LAPSE_OK)
		r = take(&tx, taken, &n);
	if (r == LAPSE_OK)
		r = tx_commit(&tx);
	else
		tx_rollback(&tx);
	for (int i = 0; i < n; i++) {
		if (r < 0) {
			cleanup_free(taken[i]);
			continue;
		}
		e->cleaner.running++;
		e->cleaner.runner(e->cleaner.runner_ctx, taken[i]);
	}
}

lapse_us cleaner_next_us(const struct engine *e)
{
	lapse_us in = e->cleaner.look_again - clock_mono(e->clock);

	if (!e->cleaner.runner || e->cleaner.running == RUNNING_MAX)
		return INT64_MAX;
	return in > 0 ? in : 0;
}

int cleanup_delete(const struct cleanup *c, const char *data_dir, char *why, size_t size)
{
	char path[DATADIR_PATH_MAX];

	if (strcmp(c->kind, "file") != 0 || datadir_file(data_dir, c->target, path) < 0) {
		snprintf(why, size, "nobody knows how to delete this");
		return LAPSE_EINVAL;
	}
	if (unlink(path) < 0 && errno != ENOENT) {
		snprintf(why, size, "%s", strerror(errno));
		return LAPSE_EIO;
	}
	return LAPSE_OK;
}

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

static int announce_dead(struct tx *tx, const struct cleanup *c, const char *why)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_id(&data, "id", c->id);
	json_put_text(&data, "kind", c->kind);
	json_put_text(&data, "target", c->target);
	json_put_int(&data, "attempts", c->attempts + 1);
	json_put_text(&data, "error", why);
	json_end(&data, '}');
	return event_add(tx, c->owner, EVENT_DEAD_LETTER, &data);
}

static int write_failed(struct tx *tx, const struct cleanup *c, const char *why)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FAILED);
	int64_t attempts = c->attempts + 1;
	bool dead = attempts >= tx->engine->settings->cleanup_max_attempts;

	db_bind_int(&q, 1, c->id);
	db_bind_int(&q, 2, attempts);
	db_bind_int(&q, 3, dead ? CLEANUP_DEAD : CLEANUP_PENDING);
	db_bind_int(&q, 4, time_add(tx->now, RETRY_MS * attempts));
	db_bind_text(&q, 5, why);
	int r = db_run(&q);
	if (r == LAPSE_OK && dead)
		r = announce_dead(tx, c, why);
	return r;
}

void cleanup_settle(struct engine *e, struct cleanup *c, int err, const char *why)
{
	struct tx tx;
	int64_t dead = e->cleaner.dead;
	int r = tx_begin(&tx, e);

	e->cleaner.running--;
	e->cleaner.look_again = 0; /* there is room for the next */
	if (r == LAPSE_OK)
		r = err == LAPSE_OK ? write_done(&tx, c) : write_failed(&tx, c, why);
	if (r == LAPSE_OK)
		r = count_dead(tx.db, &dead);
	if (r == LAPSE_OK)
		r = tx_commit(&tx);
	else
		tx_rollback(&tx);
	if (r == LAPSE_OK)
		e->cleaner.dead = dead;
	else /* the intent stands as it was taken: it is tried again after TAKE_MS */
		log_message(e->log, LOG_WARN, "cleanup.settle_failed", "%s: %s", c->target,
			    err_text(r));
	cleanup_free(c);
}
