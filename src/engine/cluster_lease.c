/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sweeps: one lease per scheduler. Each replica that renews itself looks at all of them. It
 * renews its own, takes those that nobody holds up to its fair share, and gives back what it has
 * beyond that. A taker raises the token under the row's lock; whoever deletes holds the row
 * `FOR KEY SHARE` with the token it knows, so the two cannot pass each other.
 */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "engine/cluster.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/tx.h"
#include "store/sql.h"

static struct lead *lead_find(const struct cluster *c, const char *name)
{
	for (size_t i = 0; i < c->leases_count; i++)
		if (strcmp(c->leases[i].name, name) == 0)
			return (struct lead *)&c->leases[i];
	return NULL;
}

static struct lead *lead_get(struct cluster *c, const char *name)
{
	struct lead *l = lead_find(c, name);

	if (l || c->leases_count == CLUSTER_LEASES_MAX)
		return l;
	l = &c->leases[c->leases_count++];
	*l = (struct lead){ 0 };
	snprintf(l->name, sizeof(l->name), "%s", name);
	return l;
}

/* A lease counts only as long as others cannot have taken it over. */
bool cluster_leads(const struct engine *e, const char *scheduler)
{
	const struct cluster *c = &e->cluster;
	const struct lead *l = lead_find(c, scheduler);

	if (!c->on)
		return true;
	return l && l->mine && !c->lost &&
	       clock_mono(e->clock) - c->renewed < cluster_lease_ms(e) * 1000;
}

int cluster_fence(struct tx *tx, const char *scheduler)
{
	static const struct db_stmt FENCE = {
		"SELECT 1 FROM scheduler_leases WHERE scheduler = $1 AND replica = $2 "
		"AND token = $3" SQL_KEY_SHARE
	};
	struct engine *e = tx->engine;
	struct lead *l = lead_find(&e->cluster, scheduler);

	assert(tx_can_write(tx));
	if (!e->cluster.on)
		return LAPSE_OK;
	if (!l || !l->mine)
		return LAPSE_ECONFLICT;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FENCE);
	db_bind_text(&q, 1, scheduler);
	db_bind_int(&q, 2, e->ids.replica);
	db_bind_int(&q, 3, l->token);
	int r = db_step(&q);
	if (r == 0)
		l->mine = false;
	return r > 0 ? LAPSE_OK : r < 0 ? r : LAPSE_ECONFLICT;
}

/* What the memory learns once the transaction has committed. */
static void lead_effect(struct engine *e, void *arg)
{
	const struct lead *news = arg;
	struct lead *l = lead_get(&e->cluster, news->name);

	if (l)
		*l = *news;
}

static void lead_note(struct tx *tx, const char *name, int64_t token, bool mine)
{
	struct lead *l = tx_alloc(tx, sizeof(*l));

	*l = (struct lead){ .token = token, .mine = mine };
	snprintf(l->name, sizeof(l->name), "%s", name);
	tx_effect(tx, lead_effect, l);
}

static int announce_move(struct tx *tx, const char *name, int64_t from, int64_t token)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_text(&data, "scheduler", name);
	json_put_int(&data, "replica", tx->engine->ids.replica);
	json_put_int(&data, "from", from);
	json_put_int(&data, "token", token);
	json_end(&data, '}');
	return event_add(tx, "", EVENT_LEASE_MOVED, &data);
}

struct lead_row {
	const char *name;
	int64_t replica, token;
	lapse_ms until;
};

static const struct db_stmt LOCK = {
	"SELECT token FROM scheduler_leases WHERE scheduler = $1 AND token = $2" SQL_FOR_UPDATE
};
static const struct db_stmt SET = { "UPDATE scheduler_leases SET replica = $2, token = $3, "
				    "until = $4, moved_at = $5 WHERE scheduler = $1" };
static const struct db_stmt EXTEND = {
	"UPDATE scheduler_leases SET until = $2 WHERE scheduler = $1"
};

static int lead_lock(struct tx *tx, const struct lead_row *row)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LOCK);

	db_bind_text(&q, 1, row->name);
	db_bind_int(&q, 2, row->token);
	int r = db_step(&q);
	return r > 0 ? LAPSE_OK : r < 0 ? r : LAPSE_ERETRY;
}

static int lead_set(struct tx *tx, const struct lead_row *row, int64_t replica, int64_t token,
		    lapse_ms until)
{
	int r = lead_lock(tx, row);

	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SET);
	db_bind_text(&q, 1, row->name);
	db_bind_int(&q, 2, replica);
	db_bind_int(&q, 3, token);
	db_bind_int(&q, 4, until);
	db_bind_int(&q, 5, tx->now);
	r = db_post(&q, DB_ONE);
	lead_note(tx, row->name, token, replica == tx->engine->ids.replica);
	return r;
}

static int lead_take(struct tx *tx, const struct lead_row *row)
{
	const struct engine *e = tx->engine;
	int r = lead_set(tx, row, e->ids.replica, row->token + 1,
			 time_add(tx->now, cluster_lease_ms(e)));

	return r < 0 ? r : announce_move(tx, row->name, row->replica, row->token + 1);
}

static int lead_extend(struct tx *tx, const struct lead_row *row)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &EXTEND);

	db_bind_text(&q, 1, row->name);
	db_bind_int(&q, 2, time_add(tx->now, cluster_lease_ms(tx->engine)));
	lead_note(tx, row->name, row->token, true);
	return db_post(&q, DB_ONE);
}

static int lead_insert(struct tx *tx, const char *name)
{
	static const struct db_stmt INSERT = {
		"INSERT INTO scheduler_leases (scheduler, replica, token, until, moved_at) "
		"VALUES ($1, 0, 0, 0, $2) ON CONFLICT (scheduler) DO NOTHING"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	db_bind_text(&q, 1, name);
	db_bind_int(&q, 2, tx->now);
	return db_post(&q, DB_ANY);
}

/* 1 = found. */
static int lead_read(struct tx *tx, const char *name, struct lead_row *ret)
{
	static const struct db_stmt READ = {
		"SELECT replica, token, until FROM scheduler_leases WHERE scheduler = $1"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &READ);

	db_bind_text(&q, 1, name);
	int r = db_step(&q);
	if (r > 0)
		*ret = (struct lead_row){ .name = arena_strdup(&tx->arena, name),
					  .replica = db_int(&q, 0),
					  .token = db_int(&q, 1),
					  .until = db_int(&q, 2) };
	return r;
}

/* Sharing */

/* The leases this replica could hold: those of its schedulers, and that of webhooks. */
static size_t lead_names(const struct engine *e, const char *names[CLUSTER_LEASES_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < e->schedulers_count && n < CLUSTER_LEASES_MAX - 1; i++)
		if (!e->schedulers[i].retired)
			names[n++] = e->schedulers[i].def->name;
	names[n++] = CLUSTER_WEBHOOKS;
	return n;
}

static int lead_read_or_make(struct tx *tx, const char *name, struct lead_row *ret)
{
	int r = lead_read(tx, name, ret);

	if (r != 0)
		return r < 0 ? r : LAPSE_OK;
	*ret = (struct lead_row){ .name = arena_strdup(&tx->arena, name) };
	return lead_insert(tx, name);
}

static bool leads_a_sweep(const struct engine *e, const char *name)
{
	const struct scheduler *s = schedule_find(e, name);

	return s && s->running;
}

int cluster_share_leases(struct tx *tx)
{
	const struct engine *e = tx->engine;
	const int64_t me = e->ids.replica, live = e->cluster.others + 1;
	const char *names[CLUSTER_LEASES_MAX];
	struct lead_row rows[CLUSTER_LEASES_MAX];
	const size_t n = lead_names(e, names);
	const int64_t share = ((int64_t)n + live - 1) / live;
	int64_t mine = 0;
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		r = lead_read_or_make(tx, names[i], &rows[i]);
		mine += r == LAPSE_OK && rows[i].replica == me;
	}
	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		bool ours = rows[i].replica == me;
		bool free = rows[i].replica == 0 ||
			    time_add(rows[i].until, cluster_lease_ms(e) / 4) < tx->now;
		if (ours && mine > share && !leads_a_sweep(e, names[i])) {
			r = lead_set(tx, &rows[i], 0, rows[i].token, 0);
			mine--;
		} else if (ours) {
			r = lead_extend(tx, &rows[i]);
		} else if (free && mine < share) {
			r = lead_take(tx, &rows[i]);
			mine++;
		}
	}
	return r;
}

int cluster_drop_leases(struct tx *tx, int64_t replica)
{
	static const struct db_stmt DROP = {
		"UPDATE scheduler_leases SET replica = 0, until = 0 WHERE replica = $1"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP);

	db_bind_int(&q, 1, replica);
	return db_post(&q, DB_ANY);
}

static int seize_in_tx(struct tx *tx, void *name)
{
	struct lead_row row;
	int r = lead_read_or_make(tx, name, &row);

	if (r < 0)
		return r;
	return row.replica == tx->engine->ids.replica ? lead_extend(tx, &row) : lead_take(tx, &row);
}

/* Asks the store: the memory learns of a lease that was taken away only when it is renewed. */
int cluster_seize(struct engine *e, const char *scheduler)
{
	if (!e->cluster.on)
		return LAPSE_OK;
	return job_do(e, JOB_LAZY, seize_in_tx, (void *)(uintptr_t)scheduler);
}

int cluster_write_led(struct tx *tx, int64_t replica, struct buf *out)
{
	static const struct db_stmt LED = { "SELECT scheduler, token FROM scheduler_leases WHERE "
					    "replica = $1 ORDER BY scheduler" };
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LED);
	int r;

	db_bind_int(&q, 1, replica);
	json_key(out, "schedulers");
	json_begin(out, '[');
	while ((r = db_step(&q)) > 0)
		json_text(out, db_text(&q, 0));
	json_end(out, ']');
	return r;
}
