/* SPDX-License-Identifier: Apache-2.0 */
#include "webhook/webhook.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "webhook/post.h"

#define COLUMNS                                                                                    \
	"id, owner, url, types, secret, state, generation, created_at, disabled_at, after_seq, "   \
	"attempts, next_at, event_since, failing_since, last_at, last_status, last_error"

void webhook_id_format(int64_t id, char out[WEBHOOK_ID_LEN + 1])
{
	id_format(id, stpcpy(out, "whk_"));
}

bool webhook_id_parse(const char *text, int64_t *ret)
{
	return strncmp(text, "whk_", 4) == 0 && id_parse(text + 4, ret);
}

/* Reading */

static struct webhook webhook_read_row(const struct db_query *q, struct arena *arena)
{
	return (struct webhook){
		.id = db_int(q, 0),
		.owner = arena_strdup(arena, db_text(q, 1)),
		.url = arena_strdup(arena, db_text(q, 2)),
		.types = arena_strdup(arena, db_text(q, 3)),
		.secret = arena_strdup(arena, db_text(q, 4)),
		.enabled = strcmp(db_text(q, 5), "active") == 0,
		.generation = db_int(q, 6),
		.created_at = db_int(q, 7),
		.disabled_at = db_is_null(q, 8) ? 0 : db_int(q, 8),
		.progress = { .after = db_int(q, 9),
			      .attempts = db_int(q, 10),
			      .next_at = db_int(q, 11),
			      .event_since = db_int(q, 12),
			      .failing_since = db_int(q, 13),
			      .last_at = db_int(q, 14),
			      .last_status = db_int(q, 15),
			      .last_error = arena_strdup(arena, db_text(q, 16)) },
	};
}

static const struct db_stmt READ = { "SELECT " COLUMNS " FROM webhooks WHERE id = $1" };
static const struct db_stmt READ_ALL = { "SELECT " COLUMNS " FROM webhooks ORDER BY id" };
static const struct db_stmt LIST = { "SELECT " COLUMNS " FROM webhooks WHERE owner = $1 "
				     "AND id < $2 ORDER BY id DESC LIMIT $3" };

int webhook_read(struct db *db, int64_t id, struct arena *arena, struct webhook *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &READ);

	db_bind_int(&q, 1, id);
	int r = db_step(&q);
	if (r > 0)
		*ret = webhook_read_row(&q, arena);
	return r;
}

static int webhook_rows(struct db_query *q, struct arena *arena, webhook_fn *fn, void *arg)
{
	int r;

	while ((r = db_step(q)) > 0) {
		struct webhook w = webhook_read_row(q, arena);
		fn(arg, &w);
	}
	return r;
}

int webhook_each(struct db *db, struct arena *arena, webhook_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &READ_ALL);

	return webhook_rows(&q, arena, fn, arg);
}

int webhook_list(struct tx *tx, const char *owner, int64_t before, int64_t limit, webhook_fn *fn,
		 void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIST);

	assert(tx_is_open(tx) && limit > 0);
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, before);
	db_bind_int(&q, 3, limit);
	return webhook_rows(&q, &tx->arena, fn, arg);
}

int webhook_find(struct tx *tx, const char *owner, const char *id, struct arena *arena,
		 struct webhook *ret, struct problem *p)
{
	int64_t number = 0;
	int r = webhook_id_parse(id, &number) ? webhook_read(tx->db, number, arena, ret) : 0;

	if (r < 0)
		return r;
	if (r == 0 || strcmp(ret->owner, owner) != 0)
		return problem_set(p, LAPSE_ENOTFOUND, NULL, "there is no such webhook");
	return LAPSE_OK;
}

/* Writing */

static const struct db_stmt COUNT = { "SELECT count(*) FROM webhooks WHERE owner = $1" };
static const struct db_stmt INSERT = {
	"INSERT INTO webhooks (id, owner, url, types, secret, state, generation, created_at, "
	"after_seq, attempts, next_at, event_since, failing_since, last_at, last_status, "
	"last_error) VALUES ($1, $2, $3, $4, $5, 'active', 1, $6, $7, 0, 0, 0, 0, 0, 0, '')"
};
static const struct db_stmt CHANGE = {
	"UPDATE webhooks SET url = $2, types = $3, state = $4, disabled_at = $5, after_seq = $6, "
	"generation = generation + 1, attempts = 0, next_at = 0, event_since = 0, "
	"failing_since = 0 WHERE id = $1"
};
static const struct db_stmt SAVE = {
	"UPDATE webhooks SET after_seq = $3, attempts = $4, next_at = $5, event_since = $6, "
	"failing_since = $7, last_at = $8, last_status = $9, last_error = $10, state = $11, "
	"disabled_at = $12 WHERE id = $1 AND generation = $2"
};
static const struct db_stmt DELETE = { "DELETE FROM webhooks WHERE id = $1" };
static const struct db_stmt DELETE_DEAD = { "DELETE FROM webhook_dead_letters WHERE webhook = $1" };
static const struct db_stmt COUNT_DEAD = {
	"SELECT count(*) FROM webhook_dead_letters WHERE webhook = $1"
};
static const struct db_stmt BURY = {
	"INSERT INTO webhook_dead_letters (id, owner, webhook, event, kind, attempts, status, "
	"error, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
};

static int webhook_check_room(struct tx *tx, const char *owner, struct problem *p)
{
	const struct settings *set = tx->engine->settings;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT);

	db_bind_text(&q, 1, owner);
	int r = db_step(&q);
	if (r < 0)
		return r;
	if (db_int(&q, 0) >= set->webhooks_max_per_owner)
		return problem_set(p, LAPSE_ELIMIT, NULL,
				   "an owner may have %" PRId64
				   " webhooks (webhooks_max_per_owner)",
				   set->webhooks_max_per_owner);
	if (tx_live(tx, &WEBHOOK_BOUND) >= set->webhooks_max)
		return problem_set(p, LAPSE_ELIMIT, NULL,
				   "there may be %" PRId64 " webhooks (webhooks_max)",
				   set->webhooks_max);
	return LAPSE_OK;
}

int webhook_create(struct tx *tx, struct webhook *w, struct problem *p)
{
	int r = webhook_check_room(tx, w->owner, p);

	assert(tx_can_write(tx));
	assert(w->id && w->secret && w->types);
	if (r < 0)
		return r;
	w->created_at = tx->now;
	w->progress.after = tx->engine->ids.last; /* what happens from now on */
	w->enabled = true;
	w->generation = 1;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);
	db_bind_int(&q, 1, w->id);
	db_bind_text(&q, 2, w->owner);
	db_bind_text(&q, 3, w->url);
	db_bind_text(&q, 4, w->types);
	db_bind_text(&q, 5, w->secret);
	db_bind_int(&q, 6, w->created_at);
	db_bind_int(&q, 7, w->progress.after);
	tx_count(tx, &WEBHOOK_BOUND, 1);
	webhooks_refresh(tx, w->id);
	return db_post(&q, DB_ONE);
}

static void webhook_bind_time(struct db_query *q, int i, lapse_ms at)
{
	if (at)
		db_bind_int(q, i, at);
	else
		db_bind_text(q, i, NULL);
}

int webhook_change(struct tx *tx, const struct webhook *w)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CHANGE);

	assert(tx_can_write(tx));
	assert(!w->enabled || w->disabled_at == 0);
	db_bind_int(&q, 1, w->id);
	db_bind_text(&q, 2, w->url);
	db_bind_text(&q, 3, w->types);
	db_bind_text(&q, 4, w->enabled ? "active" : "disabled");
	webhook_bind_time(&q, 5, w->enabled ? 0 : w->disabled_at);
	db_bind_int(&q, 6, w->progress.after);
	webhooks_refresh(tx, w->id);
	return db_post(&q, DB_ONE);
}

static int webhook_run_id(struct tx *tx, const struct db_stmt *stmt, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	assert(tx_can_write(tx) && id > 0);
	db_bind_int(&q, 1, id);
	int r = db_run(&q);
	if (r == LAPSE_OK && stmt == &DELETE_DEAD)
		tx_count(tx, &WEBHOOK_DEAD_BOUND, -db_changed(&q));
	return r;
}

int webhook_delete(struct tx *tx, const struct webhook *w)
{
	int r = webhook_run_id(tx, &DELETE_DEAD, w->id);

	if (r == LAPSE_OK)
		r = webhook_run_id(tx, &DELETE, w->id);
	if (r < 0)
		return r;
	tx_count(tx, &WEBHOOK_BOUND, -1);
	webhooks_refresh(tx, w->id);
	return LAPSE_OK;
}

int webhook_count_dead(struct tx *tx, int64_t id, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT_DEAD);

	db_bind_int(&q, 1, id);
	int r = db_step(&q);
	if (r > 0)
		*ret = db_int(&q, 0);
	return r < 0 ? r : LAPSE_OK;
}

/* What became of deliveries */

int webhook_save(struct tx *tx, const struct webhook *w)
{
	const struct webhook_progress *s = &w->progress;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SAVE);

	assert(tx_can_write(tx) && w->generation > 0);
	assert(s->attempts >= 0 && s->last_error);
	db_bind_int(&q, 1, w->id);
	db_bind_int(&q, 2, w->generation);
	db_bind_int(&q, 3, s->after);
	db_bind_int(&q, 4, s->attempts);
	db_bind_int(&q, 5, s->next_at);
	db_bind_int(&q, 6, s->event_since);
	db_bind_int(&q, 7, s->failing_since);
	db_bind_int(&q, 8, s->last_at);
	db_bind_int(&q, 9, s->last_status);
	db_bind_text(&q, 10, s->last_error);
	db_bind_text(&q, 11, w->enabled ? "active" : "disabled");
	webhook_bind_time(&q, 12, w->disabled_at);
	return db_post(&q, DB_ANY);
}

int webhook_bury(struct tx *tx, const struct webhook *w, int64_t event, const char *kind)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &BURY);

	assert(tx_can_write(tx) && w->progress.attempts > 0 && event > 0);
	db_bind_int(&q, 1, id_next(&tx->engine->ids, tx->now));
	db_bind_text(&q, 2, w->owner);
	db_bind_int(&q, 3, w->id);
	db_bind_int(&q, 4, event);
	db_bind_text(&q, 5, kind);
	db_bind_int(&q, 6, w->progress.attempts);
	db_bind_int(&q, 7, w->progress.last_status);
	db_bind_text(&q, 8, w->progress.last_error);
	db_bind_int(&q, 9, tx->now);
	tx_count(tx, &WEBHOOK_DEAD_BOUND, 1);
	return db_post(&q, DB_ONE);
}

int webhook_disable(struct tx *tx, struct webhook *w, const char *why)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	char id[WEBHOOK_ID_LEN + 1];

	assert(w->enabled && why);
	w->enabled = false;
	w->disabled_at = tx->now;
	webhook_id_format(w->id, id);
	json_begin(&data, '{');
	json_put_text(&data, "id", id);
	json_put_text(&data, "url", w->url);
	json_put_text(&data, "reason", why);
	json_put_text(&data, "error", w->progress.last_error);
	json_end(&data, '}');
	int r = webhook_save(tx, w);
	return r < 0 ? r : event_add(tx, w->owner, EVENT_WEBHOOK_DISABLED, &data);
}

/* Bounds */

static int webhook_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		webhooks_refresh(tx, rows[i].id);
	return LAPSE_OK;
}

const struct bound_spec WEBHOOK_BOUND = {
	.name = "webhooks",
	.scheduler = "housekeeping",
	.bounded_by = "webhooks_max_per_owner; webhooks_max; webhook_keep_ms after disabled_at",
	.due_when = "disabled and now - disabled_at > webhook_keep_ms",
	.safety_rule = "Only a disabled one; an active one stays until its owner deletes it.",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "disabled_at",
	.window = "webhook_keep_ms",
	.only = BOUND_ONLY(IS_TEXT("state", "disabled")),
	.event = "housekeeping.lifecycle_pruned",
	.reason = "disabled longer than webhook_keep_ms",
	.owner = "owner",
	.settle = webhook_settle,
};

const struct bound_spec WEBHOOK_DEAD_BOUND = {
	.name = "webhook_dead_letters",
	.scheduler = "housekeeping",
	.bounded_by = "webhook_keep_ms after at",
	.due_when = "now - at > webhook_keep_ms",
	.safety_rule = "none",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "at",
	.window = "webhook_keep_ms",
	.event = "housekeeping.lifecycle_pruned",
	.reason = "older than webhook_keep_ms",
	.owner = "owner",
};
