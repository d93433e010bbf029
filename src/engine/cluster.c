/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cluster.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "engine/eventlog.h"
#include "engine/housekeeping.h"
#include "engine/job.h"
#include "engine/tx.h"
#include "engine/usage.h"
#include "store/migrate.h"

#define POLL_US INT64_C(50000)        /* between two looks at the changes of others */
#define ALONE_POLL_US INT64_C(250000) /* and while there are no others */
#define TRUST_US INT64_C(900000)      /* memory that is older is not answered from */
#define RENEW_US INT64_C(1000000)
#define WINDOW_MAX_MS                                                                              \
	INT64_C(600000) /* the number of a replica left out rests until it is over                 \
			 */
#define CHANGES_AT_ONCE 1000
#define EVENTS_AT_ONCE 1000

lapse_ms cluster_lease_ms(const struct engine *e)
{
	return e->settings->cluster_lease_ms;
}

static lapse_us renew_us(const struct engine *e)
{
	lapse_us quarter = cluster_lease_ms(e) * 1000 / 4;

	return quarter < RENEW_US ? quarter : RENEW_US;
}

/* Others wait a little longer than the lease itself: their clocks differ by what a round trip
 * takes.
 */
static lapse_ms patience_ms(const struct engine *e)
{
	return cluster_lease_ms(e) / 4;
}

/* The window. A replica that cannot reach the database takes heartbeats of known agents for one
 * threshold after it last renewed its lease; it cannot know whether others reach it. So when it is
 * left out, the others judge nobody until that time is over, and a little longer; then everybody
 * gets a threshold. */

static lapse_ms window_ms(const struct engine *e)
{
	lapse_ms threshold = e->settings->agent_evict_after_ms;

	return threshold < WINDOW_MAX_MS ? threshold : WINDOW_MAX_MS;
}

lapse_ms cluster_window_start(const struct engine *e, lapse_ms now)
{
	return time_sub(now, window_ms(e) + patience_ms(e));
}

bool cluster_takes_beats(const struct engine *e)
{
	const struct cluster *c = &e->cluster;

	return !c->on || (!c->lost && clock_mono(e->clock) - c->renewed < window_ms(e) * 1000);
}

/* Hearing */

static int hear_counts(struct tx *tx)
{
	static const struct db_stmt ALL = { "SELECT tbl, live FROM counts" };
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ALL);
	int r;

	while ((r = db_step(&q)) > 0) {
		struct bound *b = matrix_find(tx->engine, db_text(&q, 0));
		if (b && bound_is_ours(b))
			b->live = db_int(&q, 1);
	}
	return r;
}

/* Another replica has given out ids up to this one: ours go on after it. */
static int hear_turn(struct tx *tx, const char *key, lapse_ms at)
{
	int64_t last = 0;

	(void)at;
	if (id_parse(key, &last) && last > tx->engine->ids.last)
		tx->engine->ids.last = last;
	return LAPSE_OK;
}

static int hear_tokens(struct tx *tx, const char *key, lapse_ms at)
{
	(void)key;
	(void)at;
	return tokens_reload(tx->engine);
}

static int hear_quotas(struct tx *tx, const char *key, lapse_ms at)
{
	(void)key;
	(void)at;
	return quotas_reload(tx->engine);
}

static int hear_usage(struct tx *tx, const char *key, lapse_ms at)
{
	(void)at;
	usage_refresh(tx->engine, key);
	return LAPSE_OK;
}

static int hear_clock(struct tx *tx, const char *key, lapse_ms at)
{
	(void)key;
	(void)at;
	guard_accept(&tx->engine->guard);
	return LAPSE_OK;
}

static int hear_swept(struct tx *tx, const char *key, lapse_ms at)
{
	schedule_heard(tx->engine, key, at);
	return LAPSE_OK;
}

static const struct {
	const char *topic;
	int (*hear)(struct tx *tx, const char *key, lapse_ms at);
} OWN_TOPICS[] = {
	{ "turn", hear_turn },       { "tokens", hear_tokens }, { "quotas", hear_quotas },
	{ USAGE_TOPIC, hear_usage }, { "clock", hear_clock },   { CLUSTER_SWEPT, hear_swept },
};

static int hear_one(struct tx *tx, const char *topic, const char *key, lapse_ms at)
{
	int r = LAPSE_OK;

	for (size_t i = 0; i < ARRAY_LEN(OWN_TOPICS); i++)
		if (strcmp(OWN_TOPICS[i].topic, topic) == 0)
			return OWN_TOPICS[i].hear(tx, key, at);
	for (const struct room *const *x = tx->engine->rooms; r == LAPSE_OK && *x; x++)
		if ((*x)->news && engine_room(tx->engine, (*x)->id))
			r = (*x)->news(tx, topic, key, at);
	return r;
}

/* *ret_more = there may be further ones. */
static int hear_some(struct tx *tx, bool *ret_more)
{
	static const struct db_stmt AFTER = { "SELECT n, at, topic, key FROM changes WHERE n > $1 "
					      "ORDER BY n LIMIT $2" };
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &AFTER);
	struct cluster *c = &tx->engine->cluster;
	int r, n = 0;

	db_bind_int(&q, 1, c->heard);
	db_bind_int(&q, 2, CHANGES_AT_ONCE);
	while ((r = db_step(&q)) > 0) {
		int64_t number = db_int(&q, 0);
		assert(number > c->heard);
		r = hear_one(tx, db_text(&q, 2), db_text(&q, 3), db_int(&q, 1));
		if (r < 0)
			return r;
		c->heard = number;
		n++;
	}
	*ret_more = n == CHANGES_AT_ONCE;
	return r;
}

/* Events of others reach the ring in the order of the commits. Our own are there already, unless we
 * never learnt that their transaction had committed. */
struct hearing {
	struct engine *engine;
	int64_t n;
};

static bool hear_event(void *arg, const struct event_row *row)
{
	struct hearing *h = arg;
	struct engine *e = h->engine;
	struct buf CLEANUP(buf_done) text = { 0 };
	bool shown = id_replica(row->seq) == e->ids.replica && row->seq <= e->cluster.own_seq;

	h->n++;
	e->cluster.events_after = row->seq;
	if (shown || row->seq <= e->ring.newest)
		return true;
	event_write(&text, row->seq, row->at, row->owner, row->kind, event_row_data(row));
	ring_add(&e->ring, row->seq, row->owner, text.data, text.len);
	return true;
}

static int hear_events(struct tx *tx)
{
	struct engine *e = tx->engine;
	struct hearing h = { .engine = e };
	int64_t end;
	int r;

	ring_hold(&e->ring);
	do {
		const struct event_stretch s = { .after = e->cluster.events_after,
						 .upto = INT64_MAX,
						 .limit = EVENTS_AT_ONCE };
		h.n = 0;
		r = eventlog_walk(e, tx->db, &s, hear_event, &h, &end);
	} while (r == LAPSE_OK && h.n == EVENTS_AT_ONCE);
	ring_release(&e->ring);
	return r;
}

static int hear_pruned(struct tx *tx)
{
	int64_t pruned = 0;
	int r = meta_get(tx->db, "events_pruned", 0, &pruned);

	if (r == LAPSE_OK)
		events_forget(tx->engine, pruned);
	return r;
}

static int hear_all(struct tx *tx)
{
	bool more = true;
	int r = LAPSE_OK;

	while (r == LAPSE_OK && more)
		r = hear_some(tx, &more);
	if (r == LAPSE_OK)
		r = hear_events(tx);
	if (r == LAPSE_OK)
		r = hear_counts(tx);
	return r < 0 ? r : hear_pruned(tx);
}

static const struct db_stmt LOOK = {
	"SELECT r.state, r.incarnation, (SELECT coalesce(max(n), 0) FROM changes), "
	"(SELECT count(*) FROM replicas WHERE state = 1 AND number <> $1), "
	"(SELECT min(flushed_through) FROM replicas WHERE state = 1 AND number <> $1), "
	"(SELECT coalesce(min(flushed_through), $2) FROM replicas WHERE state = -1 AND "
	"flushed_through > $3), "
	"(SELECT count(*) FROM replicas WHERE state = -1 AND flushed_through > $3) "
	"FROM replicas AS r WHERE r.number = $1"
};

static int be_lost(struct engine *e)
{
	e->cluster.lost = true;
	return LAPSE_EUNAVAILABLE;
}

/* What the transaction sees of this replica and of the others. *ret_closed = one that was left out
 * takes no heartbeats any more. */
static int read_cluster(struct tx *tx, int64_t *ret_newest, bool *ret_closed)
{
	struct engine *e = tx->engine;
	struct cluster *c = &e->cluster;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LOOK);

	db_bind_int(&q, 1, e->ids.replica);
	db_bind_int(&q, 2, LAPSE_NEVER);
	db_bind_int(&q, 3, cluster_window_start(e, tx->now));
	int r = db_step(&q);
	if (r < 0)
		return r;
	if (r == 0 || db_int(&q, 0) != REPLICA_ALIVE || db_int(&q, 1) != c->incarnation)
		return be_lost(e);
	*ret_newest = db_int(&q, 2);
	c->others = db_int(&q, 3);
	c->flushed = c->others ? db_int(&q, 4) : LAPSE_NEVER;
	c->lost_flushed = db_int(&q, 5);
	*ret_closed = db_int(&q, 6) < c->lost_open;
	c->lost_open = db_int(&q, 6);
	return LAPSE_OK;
}

/* Brings the memory up to what the transaction sees. What that wakes must not look again. */
static int cluster_look(struct tx *tx)
{
	struct engine *e = tx->engine;
	struct cluster *c = &e->cluster;
	lapse_us began = clock_mono(e->clock);
	const bool unsure = c->unsure;
	int64_t newest = 0;
	bool closed = false;
	int r = read_cluster(tx, &newest, &closed);

	assert(!c->looking);
	if (r == LAPSE_OK && closed)
		r = hear_one(tx, CLUSTER_SILENCE, "", tx->now);
	if (r == LAPSE_OK && (newest > c->heard || unsure)) {
		c->unsure = true; /* until all of it was heard: it may fail in between */
		c->looking = true;
		r = hear_all(tx);
		c->looking = false;
	} else if (r == LAPSE_OK && c->own_seq > c->events_after) {
		c->events_after = c->own_seq; /* no other replica has written since */
	}
	if (r < 0)
		return r;
	/* Without the turn, what was unsure may still be about to commit. */
	c->unsure = unsure && !tx->write;
	c->synced = began;
	return LAPSE_OK;
}

static int look_now(struct engine *e)
{
	struct tx tx;
	int r = tx_begin_read(&tx, e);

	if (r == LAPSE_OK)
		r = cluster_look(&tx);
	tx_rollback(&tx);
	e->cluster.next_sync = clock_mono(e->clock) + (e->cluster.others ? POLL_US : ALONE_POLL_US);
	return r;
}

bool cluster_is_current(const struct engine *e)
{
	return !e->cluster.on || clock_mono(e->clock) - e->cluster.synced < TRUST_US;
}

int cluster_refresh(struct engine *e)
{
	const struct cluster *c = &e->cluster;

	if (c->looking || cluster_is_current(e))
		return LAPSE_OK;
	return look_now(e) < 0 ? LAPSE_EUNAVAILABLE : LAPSE_OK;
}

int cluster_catch_up(struct engine *e)
{
	if (!cluster_has_others(&e->cluster) || e->cluster.looking)
		return LAPSE_OK;
	return look_now(e) < 0 ? LAPSE_EUNAVAILABLE : LAPSE_OK;
}

/* Turns */

int cluster_begin_turn(struct tx *tx)
{
	struct cluster *c = &tx->engine->cluster;

	assert(tx_can_write(tx));
	if (!c->on)
		return LAPSE_OK;
	c->told = 0;
	c->has_news = false;
	int r = cluster_look(tx);
	return r == LAPSE_ERETRY ? LAPSE_EUNAVAILABLE : r;
}

static const struct db_stmt TELL = {
	"INSERT INTO changes (n, replica, at, topic, key) VALUES ($1, $2, $3, $4, $5)"
};

int cluster_tell(struct tx *tx, const char *topic, const char *key)
{
	struct engine *e = tx->engine;

	assert(tx_can_write(tx));
	if (!cluster_has_others(&e->cluster))
		return LAPSE_OK;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &TELL);
	db_bind_int(&q, 1, e->cluster.heard + ++e->cluster.told);
	db_bind_int(&q, 2, e->ids.replica);
	db_bind_int(&q, 3, tx->now);
	db_bind_text(&q, 4, topic);
	db_bind_text(&q, 5, key);
	return db_post_row(&q, DB_ONE);
}

void cluster_tell_event(struct tx *tx)
{
	tx->engine->cluster.has_news = true;
}

void cluster_note_event(struct engine *e, int64_t seq)
{
	if (seq > e->cluster.own_seq)
		e->cluster.own_seq = seq;
}

int cluster_end_turn(struct tx *tx)
{
	const struct cluster *c = &tx->engine->cluster;
	char last[ID_TEXT_LEN + 1];

	if (!c->on || (c->told == 0 && !c->has_news))
		return LAPSE_OK;
	id_format(tx->engine->ids.last, last);
	return cluster_tell(tx, "turn", last);
}

void cluster_turn_over(struct engine *e, int err)
{
	struct cluster *c = &e->cluster;

	if (err == LAPSE_OK)
		c->heard += c->told;
	c->unsure |= err == LAPSE_EUNKNOWN;
	c->told = 0;
}

int cluster_is_live(struct tx *tx, int64_t number)
{
	static const struct db_stmt LIVE = {
		"SELECT 1 FROM replicas WHERE number = $1 AND state = 1"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIVE);

	if (!tx->engine->cluster.on || number == tx->engine->ids.replica)
		return 0;
	db_bind_int(&q, 1, number);
	return db_step(&q);
}

/* Renewing */

struct renewal {
	lapse_us began;
	bool gap; /* the replica was out of touch: heartbeats may have been refused */
};

static int renew_row(struct tx *tx)
{
	static const struct db_stmt RENEW = {
		"UPDATE replicas SET lease_until = $2, flushed_through = $3, heard = $4, "
		"clock_jumped = $5 WHERE number = $1"
	};
	const struct engine *e = tx->engine;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &RENEW);

	db_bind_int(&q, 1, e->ids.replica);
	db_bind_int(&q, 2, time_add(tx->now, cluster_lease_ms(e)));
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, e->cluster.heard);
	db_bind_int(&q, 5, e->guard.jumped);
	return db_post(&q, DB_ONE);
}

static int expel_one(struct tx *tx, int64_t number)
{
	int r = cluster_set_state(tx, number, REPLICA_EXPELLED);

	if (r == LAPSE_OK)
		r = cluster_clear_after(tx, number);
	if (r == LAPSE_OK)
		r = cluster_announce(tx, EVENT_REPLICA_LEFT, number, "its lease ran out");
	return r;
}

/* Leaves out those whose lease ran out. A replica that was out of touch itself waits for a whole
 * lease first: the database may have been away for everybody. *ret = how many. */
static int expel_silent(struct tx *tx, int64_t *ret)
{
	static const struct db_stmt SILENT = { "SELECT number FROM replicas WHERE state = 1 "
					       "AND number <> $1 AND lease_until < $2" };
	const struct engine *e = tx->engine;
	int64_t numbers[CLUSTER_NUMBERS_MAX], n = 0;
	int r;

	*ret = 0;
	if (clock_mono(e->clock) - e->cluster.contact_since < cluster_lease_ms(e) * 1000)
		return LAPSE_OK;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SILENT);
	db_bind_int(&q, 1, e->ids.replica);
	db_bind_int(&q, 2, time_sub(tx->now, patience_ms(e)));
	while ((r = db_step(&q)) > 0 && n < CLUSTER_NUMBERS_MAX)
		numbers[n++] = db_int(&q, 0);
	for (int64_t i = 0; r >= 0 && i < n; i++)
		r = expel_one(tx, numbers[i]);
	*ret = n;
	return r < 0 ? r : LAPSE_OK;
}

static int forget_changes(struct tx *tx)
{
	static const struct db_stmt FORGET = {
		"DELETE FROM changes WHERE n <= (SELECT min(heard) FROM replicas WHERE state = 1) "
		"AND n < (SELECT max(n) FROM changes)"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FORGET);

	return db_post(&q, DB_ANY);
}

static int renew_all(struct tx *tx, void *arg)
{
	const struct renewal *x = arg;
	int64_t expelled = 0;
	int r = renew_row(tx);

	if (r == LAPSE_OK)
		r = cluster_tell_rooms(tx);
	if (r == LAPSE_OK && !x->gap)
		r = expel_silent(tx, &expelled);
	/* Told to the others, and to ourselves: agents get one more threshold everywhere. */
	if (r == LAPSE_OK && (x->gap || expelled > 0)) {
		r = cluster_tell(tx, CLUSTER_SILENCE, "");
		if (r == LAPSE_OK)
			r = hear_one(tx, CLUSTER_SILENCE, "", tx->now);
	}
	if (r == LAPSE_OK)
		r = cluster_share_leases(tx);
	return r < 0 ? r : forget_changes(tx);
}

static void cluster_renew(struct engine *e)
{
	struct cluster *c = &e->cluster;
	struct renewal x = { .began = clock_mono(e->clock) };

	x.gap = x.began - c->renewed > 2 * renew_us(e) + RENEW_US / 2;
	int r = job_do(e, JOB_LAZY, renew_all, &x);
	c->next_renew = clock_mono(e->clock) + (r < 0 ? POLL_US : renew_us(e));
	if (r < 0)
		return;
	if (x.gap)
		c->contact_since = x.began;
	c->renewed = x.began;
}

void cluster_tick(struct engine *e)
{
	struct cluster *c = &e->cluster;
	lapse_us now = clock_mono(e->clock);

	if (!c->on || c->lost)
		return;
	if (now >= c->next_renew)
		cluster_renew(e);
	else if (now >= c->next_sync)
		look_now(e);
}

lapse_us cluster_next_us(const struct engine *e)
{
	const struct cluster *c = &e->cluster;
	lapse_us next = c->next_renew < c->next_sync ? c->next_renew : c->next_sync;
	lapse_us in = next - clock_mono(e->clock);

	if (!c->on || c->lost)
		return INT64_MAX;
	return in > 0 ? in : 0;
}

/* For people and machines */

static int write_replicas(struct tx *tx, struct buf *out)
{
	static const struct db_stmt ALL = {
		"SELECT number, state, name, listen, version, files, started_at, lease_until, "
		"flushed_through, heard FROM replicas ORDER BY number"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ALL);
	int r;

	while ((r = db_step(&q)) > 0) {
		lapse_ms behind = time_sub(tx->now, db_int(&q, 8));
		bool alive = db_int(&q, 1) == REPLICA_ALIVE;
		json_begin(out, '{');
		json_put_int(out, "number", db_int(&q, 0));
		json_put_text(out, "state",
			      alive           ? "live"
			      : db_int(&q, 1) ? "expelled"
					      : "stopped");
		json_put_bool(out, "self", db_int(&q, 0) == tx->engine->ids.replica);
		json_put_text(out, "name", db_text(&q, 2));
		json_put_text(out, "listen", db_text(&q, 3));
		json_put_text(out, "version", db_text(&q, 4));
		json_put_bool(out, "files", db_int(&q, 5) != 0);
		json_put_time(out, "started_at", db_int(&q, 6));
		json_put_time(out, "lease_until", db_int(&q, 7));
		json_put_time(out, "flushed_through", db_int(&q, 8));
		json_put_int(out, "lag_ms", alive && behind > 0 ? behind : 0);
		r = cluster_write_led(tx, db_int(&q, 0), out);
		json_end(out, '}');
		if (r < 0)
			return r;
	}
	return r;
}

int cluster_write_json(struct tx *tx, struct buf *out)
{
	json_begin(out, '{');
	json_put_bool(out, "cluster", tx->engine->cluster.on);
	json_key(out, "data");
	json_begin(out, '[');
	int r = write_replicas(tx, out);
	json_end(out, ']');
	json_end(out, '}');
	return r;
}

void cluster_write_metrics(const struct engine *e, struct buf *out)
{
	const struct cluster *c = &e->cluster;
	int64_t led = 0;

	if (!c->on)
		return;
	for (size_t i = 0; i < c->leases_count; i++)
		led += c->leases[i].mine;
	metrics_family(out, METRIC_REPLICAS);
	metrics_sample(out, METRIC_REPLICAS, "", c->others + 1);
	metrics_family(out, METRIC_SCHEDULERS_LED);
	metrics_sample(out, METRIC_SCHEDULERS_LED, "", led);
	metrics_family(out, METRIC_REPLICAS_LAG);
	lapse_ms lag = c->others ? time_sub(clock_wall(e->clock), c->flushed) : 0;
	metrics_sample_real(out, METRIC_REPLICAS_LAG, "", lag > 0 ? (double)lag / 1000.0 : 0.0);
}
