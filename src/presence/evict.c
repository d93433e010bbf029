/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound `agents`: what the engine asks of a table whose times live in memory.
 *
 * A check looks at the front of the fleet's list only, so it costs what is due. It removes agents
 * in steps of a few; a step that fails is taken apart, and the agent to blame is parked until the
 * next check of the interval while everybody else goes on time. Held agents are parked the same
 * way. The breaker is asked before anything is removed.
 */
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "presence/presence.h"

#define STEP_AGENTS 96 /* of one step; a failing one costs a second try of so many */
#define FLUSH_EVERY_US INT64_C(3600000000)
#define FLUSH_PAUSE_US 50000    /* between two slices of a flush */
#define FLUSH_STOP_US 1000000   /* a clean stop flushes so long and no longer */
#define FLUSH_LOOK_AGENTS 20000 /* a slice looks at, whether it writes them or not */
#define DUE_CAP 1000000
#define CATCH_UP_PAUSE_US 250000 /* between two walks of the mark that have caught up */

/* Starting: everybody gets one full threshold from now. After a kill and a clock set back trusted
 * time may be up to a minute before a row's last_seen; the row is removed by its own time too, so
 * that is brought back to now. */

static const struct db_stmt LOAD = {
	"SELECT id, owner, agent, cluster_id, capabilities, metadata, last_seen FROM agents"
};

static const struct db_stmt LOWER = { "UPDATE agents SET last_seen = $1 WHERE last_seen > $1" };

static int lower_seen(struct tx *tx, lapse_ms now)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LOWER);

	db_bind_int(&q, 1, now);
	return db_run(&q);
}

static int load(struct tx *tx)
{
	struct engine *e = tx->engine;
	lapse_ms now = clock_wall(e->clock);
	struct fleet *f =
		fleet_new(e->settings->agent_evict_after_ms, e->settings->agent_sweep_ms, now);
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LOAD);
	bool ahead = false;
	int r;

	e->fleet = f;
	f->leaps = e->guard.accepts;
	f->flushed_at = f->flush_started_at = now;
	f->flush_next = clock_mono(e->clock) + FLUSH_EVERY_US;
	fleet_reserve(f, (uint32_t)e->states[matrix_find(e, "agents")].live);
	while ((r = db_step(&q)) > 0) {
		struct traits t = { .owner = db_text(&q, 1),
				    .cluster = db_text(&q, 3),
				    .capabilities = db_text(&q, 4),
				    .metadata = presence_metadata_hash(db_text(&q, 5)) };
		lapse_ms seen = db_int(&q, 6);
		ahead |= seen > now;
		fleet_add(f, db_text(&q, 2), &t, db_int(&q, 0), seen < now ? seen : now, now);
	}
	return r == LAPSE_OK && ahead ? lower_seen(tx, now) : r;
}

static void done(struct engine *e)
{
	fleet_free(e->fleet);
	e->fleet = NULL;
}

static lapse_ms deadline(const struct engine *e)
{
	return fleet_deadline(presence_fleet((struct engine *)e));
}

/* The breaker */

static int announce_breaker(struct tx *tx, enum event_kind kind, int64_t agents)
{
	const struct fleet *f = tx->engine->fleet;
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_int(&data, "tracked", f->count);
	json_put_int(&data, "suspect", agents);
	json_end(&data, '}');
	return event_add(tx, "", kind, &data);
}

static void log_breaker(const struct engine *e, enum event_kind kind, enum log_level level)
{
	struct buf line;

	log_open(e->log, &line, level, event_name(kind));
	json_put_int(&line, "tracked", e->fleet->count);
	json_put_int(&line, "suspect", fleet_suspects(e->fleet));
	log_close(e->log, &line);
}

static void trip_effect(struct engine *e, void *arg)
{
	fleet_trip(e->fleet, *(lapse_ms *)arg);
	log_breaker(e, EVENT_BREAKER_TRIPPED, LOG_WARN);
}

static void release_effect(struct engine *e, void *arg)
{
	(void)arg;
	fleet_release(e->fleet);
	log_breaker(e, EVENT_BREAKER_RELEASED, LOG_INFO);
}

static int trip(struct tx *tx, lapse_ms now)
{
	lapse_ms *at = tx_alloc(tx, sizeof(*at));

	*at = now;
	tx_effect(tx, trip_effect, at);
	return announce_breaker(tx, EVENT_BREAKER_TRIPPED, tx->engine->fleet->silent);
}

static int release(struct tx *tx)
{
	tx_effect(tx, release_effect, NULL);
	return announce_breaker(tx, EVENT_BREAKER_RELEASED, fleet_suspects(tx->engine->fleet));
}

/* Removing */

/* A check: one walk along the agents that are due. */
struct check {
	struct sweep *sweep;
	struct tx *tx;
	struct fleet *fleet;
	lapse_ms now;
	struct buf *lines; /* of the log, written after the commit */
	bool open;         /* the breaker: nobody goes who was no suspect before */
	bool holds;        /* there are holds on agents at all */
	int64_t evicted;
};

/* What happens to one agent in memory once the transaction has committed. */
struct move {
	uint32_t index;
	bool held;
	lapse_ms now;
};

static void park_effect(struct engine *e, void *arg)
{
	const struct move *m = arg;

	fleet_park(e->fleet, m->index, m->held);
}

static void suspect_effect(struct engine *e, void *arg)
{
	const struct move *m = arg;

	fleet_suspect(e->fleet, m->index, m->now);
}

/* A check is one piece of work from its first look to its effects, so an index stays what it is. */
static void move_later(struct check *c, effect_fn *effect, uint32_t i, bool held)
{
	struct move *m = tx_alloc(c->tx, sizeof(*m));

	*m = (struct move){ i, held, c->now };
	tx_effect(c->tx, effect, m);
}

/* Whether the agent goes: 1 or 0. One that does not is moved where it waits. */
static int judge_one(struct check *c, uint32_t i)
{
	const struct agent *a = fleet_at(c->fleet, i);
	bool had_its_chance = a->flags & (AGENT_SUSPECT | AGENT_OVERDUE);
	int held = 0;

	if (c->open && !had_its_chance) {
		move_later(c, suspect_effect, i, false);
		return 0;
	}
	if (c->holds)
		held = presence_is_held(c->tx, fleet_profile(c->fleet, i)->owner, agent_name(a));
	if (held > 0)
		move_later(c, park_effect, i, true);
	return held < 0 ? held : !held;
}

static int evict_one(struct check *c, uint32_t i, int64_t *evicted)
{
	int r = presence_evict(c->tx, c->fleet, i, c->now, c->lines);

	*evicted += r > 0;
	return r < 0 ? r : LAPSE_OK;
}

/* Those without capabilities together, the others one by one. */
static int settle_all(struct check *c, const uint32_t *agents, size_t n, int64_t *evicted)
{
	uint32_t bare[STEP_AGENTS];
	size_t bare_count = 0;

	for (size_t i = 0; i < n; i++) {
		int r = judge_one(c, agents[i]);
		if (r > 0 && n > 1 && fleet_profile(c->fleet, agents[i])->is_bare) {
			bare[bare_count++] = agents[i];
			continue;
		}
		if (r > 0)
			r = evict_one(c, agents[i], evicted);
		if (r < 0)
			return r;
	}
	*evicted += (int64_t)bare_count;
	return presence_evict_together(c->tx, c->fleet, bare, bare_count, c->now, c->lines);
}

/* One step for `n` agents; all of them, or none and an error. */
static int settle_step(struct check *c, const uint32_t *agents, size_t n)
{
	int64_t evicted = 0;
	int r = tx_step_begin(c->tx);

	if (r == LAPSE_OK)
		r = settle_all(c, agents, n, &evicted);
	if (!db_in_transaction(c->tx->db)) /* a full disk, for one, takes everything with it */
		return r < 0 ? r : LAPSE_EUNAVAILABLE;
	if (r == LAPSE_OK)
		r = tx_step_end(c->tx);
	else
		tx_step_undo(c->tx);
	if (r == LAPSE_OK)
		c->evicted += evicted;
	return r;
}

static void log_failed(struct check *c, uint32_t i, int err)
{
	const struct engine *e = c->tx->engine;
	const struct agent *a = fleet_at(c->fleet, i);
	struct buf line;

	log_open(e->log, &line, LOG_ERROR, "agent.evict_failed");
	json_put_text(&line, "agent_id", agent_name(a));
	json_put_time(&line, "last_seen", a->last_seen);
	json_put_text(&line, "error", err_text(err));
	json_put_text(&line, "detail", db_error(e->db));
	json_put_int(&line, "next_try_ms", e->settings->agent_sweep_ms);
	log_close(e->log, &line);
}

/* A step that failed, one by one: whoever is to blame waits for the next check. */
static int settle_apart(struct check *c, const uint32_t *agents, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int r = settle_step(c, &agents[i], 1);
		if (r == LAPSE_OK)
			continue;
		if (!db_in_transaction(c->tx->db))
			return r;
		log_failed(c, agents[i], r);
		c->sweep->step_err = r;
		move_later(c, park_effect, agents[i], false);
	}
	return LAPSE_OK;
}

static int settle_many(struct check *c, const uint32_t *agents, size_t n)
{
	int r = settle_step(c, agents, n);

	if (r == LAPSE_OK || !db_in_transaction(c->tx->db))
		return r;
	return settle_apart(c, agents, n);
}

static bool is_due(const struct check *c, uint32_t i)
{
	return i && presence_is_due(fleet_at(c->fleet, i)->base, c->fleet->evict_after, c->now);
}

static void flush_effect(struct engine *e, void *arg)
{
	log_flush(e->log, arg);
}

static int settle_due(struct check *c, lapse_us stop, bool *ret_more)
{
	uint32_t agents[STEP_AGENTS], i = fleet_first(c->fleet);
	int r = LAPSE_OK;

	c->lines = tx_alloc(c->tx, sizeof(*c->lines));
	while (r == LAPSE_OK && is_due(c, i)) {
		size_t n = 0;
		for (; n < STEP_AGENTS && is_due(c, i); i = fleet_next(c->fleet, i))
			agents[n++] = i;
		r = settle_many(c, agents, n);
		if (clock_mono(c->tx->engine->clock) >= stop)
			break;
	}
	tx_effect(c->tx, flush_effect, c->lines);
	*ret_more = is_due(c, i);
	return r;
}

static const struct db_stmt ANY_HOLD = {
	"SELECT 1 FROM holds WHERE tbl = 'agents' AND until > $1 LIMIT 1"
};

static int any_hold(struct tx *tx, bool *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ANY_HOLD);

	db_bind_int(&q, 1, tx->now);
	int r = db_step(&q);
	*ret = r > 0;
	return r < 0 ? r : LAPSE_OK;
}

/* Asks the breaker. *ret_go = agents may be removed. */
static int ask_breaker(struct check *c, bool *ret_go)
{
	enum breaker_step step = fleet_breaker(c->fleet, c->now);
	int r = LAPSE_OK;

	*ret_go = is_due(c, fleet_first(c->fleet));
	if (step == BREAKER_RELEASES) {
		r = release(c->tx);
		step = fleet_breaker_released(c->fleet, c->now);
	}
	if (r == LAPSE_OK && step == BREAKER_TRIPS && *ret_go) {
		*ret_go = false;
		r = trip(c->tx, c->now);
	}
	c->open = step == BREAKER_STAYS_OPEN;
	return r;
}

/* A dry run: how many would go, from memory, without those that are held. */
static const struct db_stmt HELD_AGENTS = {
	"SELECT owner, key FROM holds WHERE tbl = 'agents' AND until > $1"
};

static int count_held(struct check *c, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(c->tx->db, &HELD_AGENTS);
	int r;

	db_bind_int(&q, 1, c->tx->now);
	while ((r = db_step(&q)) > 0)
		*ret += is_due(c, fleet_find(c->fleet, db_text(&q, 0), db_text(&q, 1)));
	return r;
}

static int64_t count_due(struct check *c)
{
	int64_t n = c->fleet->parked;

	for (uint32_t i = fleet_first(c->fleet); is_due(c, i); i = fleet_next(c->fleet, i)) {
		const struct agent *a = fleet_at(c->fleet, i);
		n += !c->open || (a->flags & (AGENT_SUSPECT | AGENT_OVERDUE));
	}
	return n;
}

static int tell(struct check *c)
{
	int64_t held = 0;
	enum breaker_step step = fleet_breaker(c->fleet, c->now);
	int r = count_held(c, &held);

	if (step == BREAKER_RELEASES)
		step = fleet_breaker_released(c->fleet, c->now);
	c->open = step == BREAKER_TRIPS || step == BREAKER_STAYS_OPEN;
	c->evicted = count_due(c) - held;
	if (c->evicted < 0) /* held ones that would only become suspects */
		c->evicted = 0;
	return r;
}

static int prune(struct sweep *w, struct tx *tx, lapse_us stop, int64_t *ret_n, bool *ret_more)
{
	struct check c = {
		.sweep = w, .tx = tx, .fleet = presence_fleet(tx->engine), .now = w->started_at
	};
	bool go = false;
	int r;

	*ret_more = false;
	if (w->dry_run) {
		r = tell(&c);
	} else {
		if (!w->by_deadline && w->after_id++ == 0) /* the first slice of a whole check */
			fleet_unpark(c.fleet);
		r = ask_breaker(&c, &go);
		if (r == LAPSE_OK && go)
			r = any_hold(tx, &c.holds);
		if (r == LAPSE_OK && go)
			r = settle_due(&c, stop, ret_more);
	}
	*ret_n = c.evicted;
	return r;
}

/* Due rows, for the matrix and the metrics: those that should be gone and are not. */
static void due(const struct engine *e, lapse_ms now, struct due_count *ret)
{
	struct check c = { .fleet = presence_fleet((struct engine *)e), .now = now };

	*ret = (struct due_count){ 0 };
	for (uint32_t i = fleet_first(c.fleet); is_due(&c, i) && ret->rows < DUE_CAP;
	     i = fleet_next(c.fleet, i)) {
		if (ret->rows++ == 0)
			ret->oldest = fleet_at(c.fleet, i)->base;
	}
	for (uint32_t i = fleet_first_parked(c.fleet); i && ret->rows < DUE_CAP;
	     i = fleet_next(c.fleet, i)) {
		const struct agent *a = fleet_at(c.fleet, i);
		if (a->flags & AGENT_HELD)
			continue;
		if (ret->rows++ == 0 || a->base < ret->oldest)
			ret->oldest = a->base;
	}
}

/* Writing down last_seen: now and then, a slice at a time. */

static const struct db_stmt SEEN = {
	"UPDATE agents SET last_seen = $2 WHERE id = $1 AND last_seen < $2"
};

static int write_seen(struct tx *tx, const struct agent *a)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SEEN);

	db_bind_int(&q, 1, a->id);
	db_bind_int(&q, 2, a->last_seen);
	return db_run(&q);
}

static int write_slice(struct tx *tx, lapse_us stop)
{
	struct fleet *f = tx->engine->fleet;
	int r = LAPSE_OK;

	for (int n = 0; r == LAPSE_OK && n < FLUSH_LOOK_AGENTS && f->flush_cursor < f->used; n++) {
		const struct agent *a = fleet_at(f, f->flush_cursor++);
		if (a->id && a->last_seen >= f->flushed_at)
			r = write_seen(tx, a);
		if (n % 32 == 31 && clock_mono(tx->engine->clock) >= stop)
			break;
	}
	return r;
}

/* *ret_more = the pass is not over. After an error it begins anew at its next time. */
static int flush_slice(struct engine *e, lapse_us stop, bool *ret_more)
{
	struct fleet *f = e->fleet;
	struct tx tx;
	int r = tx_begin(&tx, e);

	if (f->flush_cursor == 0)
		f->flush_started_at = clock_wall(e->clock);
	if (r == LAPSE_OK)
		r = write_slice(&tx, stop);
	if (r == LAPSE_OK)
		r = tx_commit_lazy(&tx);
	else
		tx_rollback(&tx);
	*ret_more = r == LAPSE_OK && f->flush_cursor < f->used;
	if (r == LAPSE_OK && !*ret_more)
		f->flushed_at = f->flush_started_at;
	if (!*ret_more)
		f->flush_cursor = 0;
	return r;
}

static void tick_flush(struct engine *e)
{
	lapse_us now = clock_mono(e->clock);
	bool more = false;

	if (now < e->fleet->flush_next)
		return;
	flush_slice(e, now + e->settings->sweep_budget_ms * 1000, &more);
	e->fleet->flush_next = clock_mono(e->clock) + (more ? FLUSH_PAUSE_US : FLUSH_EVERY_US);
}

static void tick(struct engine *e)
{
	struct fleet *f = e->fleet;

	tick_flush(e);
	if (clock_mono(e->clock) < f->catch_up_next)
		return;
	bool more = fleet_catch_up(f, clock_wall(e->clock));
	f->catch_up_next = clock_mono(e->clock) + (more ? 0 : CATCH_UP_PAUSE_US);
}

/* When there is somebody to catch up with, at its own pace. */
static lapse_us catch_up_us(const struct engine *e, lapse_us now)
{
	const struct fleet *f = e->fleet;
	lapse_ms at = f->tripping ? 0 : fleet_silence_at(f);

	if (at == LAPSE_NEVER)
		return INT64_MAX;
	lapse_us in = time_sub(at, clock_wall(e->clock)) * 1000;
	return in > f->catch_up_next - now ? in : f->catch_up_next - now;
}

static lapse_us next_us(const struct engine *e)
{
	lapse_us now = clock_mono(e->clock);
	lapse_us flush = e->fleet->flush_next - now, catch_up = catch_up_us(e, now);
	lapse_us in = flush < catch_up ? flush : catch_up;

	return in > 0 ? in : 0;
}

static void stop_flush(struct engine *e)
{
	lapse_us stop = clock_mono(e->clock) + FLUSH_STOP_US;
	bool more = true;

	e->fleet->flush_cursor = 0;
	while (more && clock_mono(e->clock) < stop)
		if (flush_slice(e, stop, &more) < 0)
			return;
}

static void write_metrics(const struct engine *e, struct buf *out)
{
	metrics_family(out, METRIC_AGENTS);
	metrics_sample(out, METRIC_AGENTS, "", e->fleet->count);
	metrics_family(out, METRIC_AGENTS_SUSPECT);
	metrics_sample(out, METRIC_AGENTS_SUSPECT, "", fleet_suspects(e->fleet));
}

static const struct bound_memory MEMORY = {
	.load = load,
	.tick = tick,
	.next_us = next_us,
	.stop = stop_flush,
	.done = done,
	.deadline = deadline,
	.prune = prune,
	.due = due,
	.write_metrics = write_metrics,
};

const struct bound AGENT_BOUND = {
	.table = "agents",
	.scheduler = "agents",
	.bounded_by = "agent_evict_after_ms after last_seen; agents_max",
	.due_when = "now - last_seen > agent_evict_after_ms",
	.safety_rule = "After a restart every agent gets one threshold; when more than half of the "
		       "fleet falls silent together, they are suspects for one threshold first.",
	.action = "delete row and capabilities, log",
	.paths = PATH_LAZY | PATH_DEADLINE | PATH_SWEEP,
	.window = offsetof(struct settings, agent_evict_after_ms),
	.event = EVENT_AGENT_EVICTED,
	.reason = "silent for longer than agent_evict_after_ms",
	.holdable = true,
	.keyed_by_name = true,
	.newest = { "SELECT coalesce(max(id), 0) FROM agents" },
	.find = { "SELECT id FROM agents WHERE owner = $1 AND agent = $2" },
	.memory = &MEMORY,
};
