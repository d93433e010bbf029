/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound `agents`: what the engine asks of a table whose times live in memory.
 *
 * A check looks at the front of the fleet's list only, so it costs what is due. It removes agents
 * in steps of a few; a step that fails is taken apart, and the agent to blame is parked until the
 * next check of the interval while all others go on time. Held agents are parked the same way.
 *
 * Each owner has a breaker, which is asked before an agent of the owner is removed: while it is
 * open, agents that are due leave as suspects (presence/suspect.h).
 */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "presence/presence.h"
#include "presence/suspect.h"

#define STEP_AGENTS 96 /* in one step; when it fails, each of them is tried a second time */
#define FLUSH_EVERY_US INT64_C(3600000000)
#define FLUSH_PAUSE_US 50000    /* between two slices of a flush */
#define FLUSH_STOP_US 1000000   /* a clean stop flushes no longer than this */
#define FLUSH_LOOK_AGENTS 20000 /* a slice looks at, whether it writes them or not */
#define DUE_CAP 1000000
#define LOAD_AT_ONCE 20000
#define UNKNOWN_PAUSE_MS 100     /* until a deadline is looked at again that cannot be judged yet */
#define CATCH_UP_PAUSE_US 250000 /* between two walks of the mark that have caught up */

/* Starting: every agent gets one full threshold from now. After a kill and a clock set back trusted
 * time may be up to a minute before a row's last_seen; the row is removed by its own time too, so
 * that is brought back to now. */

static const struct db_stmt LOAD = {
	"SELECT id, owner, agent, cluster_id, capabilities, metadata, last_seen FROM agents "
	"WHERE id > $1 ORDER BY id LIMIT $2"
};

static const struct db_stmt LOWER = { "UPDATE agents SET last_seen = $1 WHERE last_seen > $1" };

static int lower_seen(struct tx *tx, lapse_ms now)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LOWER);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, now);
	return db_post(&q, DB_ANY);
}

/* The agents after *last, some of them. */
static int load_some_agents(struct tx *tx, struct fleet *f, lapse_ms now, int64_t *last,
			    bool *ahead)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LOAD);
	int r, n = 0;

	db_bind_int(&q, 1, *last);
	db_bind_int(&q, 2, LOAD_AT_ONCE);
	while ((r = db_step(&q)) > 0) {
		struct traits t = { .owner = db_text(&q, 1),
				    .cluster = db_text(&q, 3),
				    .capabilities = db_text(&q, 4),
				    .metadata = presence_metadata_hash(db_text(&q, 5)) };
		lapse_ms seen = db_int(&q, 6);
		*last = db_int(&q, 0);
		*ahead |= seen > now;
		fleet_add(f, db_text(&q, 2), &t, *last, seen < now ? seen : now, now);
		n++;
	}
	return r < 0 ? r : n == LOAD_AT_ONCE;
}

/* In many statements: a large fleet must not be one answer in memory, nor, in a cluster, one
 * statement that takes longer than a turn may wait for. */
static int load_agents(struct tx *tx)
{
	struct engine *e = tx->engine;
	lapse_ms now = clock_wall(e->clock);
	struct fleet *f = fleet_new(e->settings->agent_evict_after_ms, e->settings->agent_sweep_ms,
				    (struct breaker_rule){ e->settings->agent_breaker_percent,
							   e->settings->agent_breaker_min },
				    now);
	int64_t last = INT64_MIN;
	bool ahead = false;
	int r = 1;

	assert(tx_is_open(tx));
	engine_set_room(e, ROOM_PRESENCE, f);
	f->leaps = f->suspect_leaps = e->guard.accepts;
	f->outages = e->outage.count;
	f->flushed_at = f->flush_started_at = now;
	f->flush_next = clock_mono(e->clock) + FLUSH_EVERY_US;
	fleet_reserve(f, (uint32_t)tx_live(tx, &AGENT_BOUND));
	while (r > 0)
		r = load_some_agents(tx, f, now, &last, &ahead);
	return r == LAPSE_OK && ahead ? lower_seen(tx, now) : r;
}

static void free_agents(struct engine *e)
{
	fleet_free(engine_room(e, ROOM_PRESENCE));
	engine_set_room(e, ROOM_PRESENCE, NULL);
}

/* A deadline that has passed waits until the heartbeats of all replicas are known up to it. */
static lapse_ms agent_deadline(const struct engine *e)
{
	const struct fleet *f = presence_fleet((struct engine *)e);
	lapse_ms at = fleet_deadline(f), now;

	if (f->known_through == LAPSE_NEVER || at == LAPSE_NEVER || at < f->known_through)
		return at;
	now = clock_wall(e->clock);
	return time_add(at > now ? at : now, UNKNOWN_PAUSE_MS);
}

/* The breaker of an owner */

struct breaker_news {
	enum event_kind kind;
	const char *owner;
	lapse_ms at;
	int64_t tracked, agents; /* agents: silent when it trips, suspected when it closes */
};

static void write_news(struct buf *out, const struct breaker_news *n)
{
	json_put_int(out, "tracked", n->tracked);
	json_put_int(out, n->kind == EVENT_BREAKER_TRIPPED ? "silent" : "suspected", n->agents);
}

static void log_breaker(const struct engine *e, const struct breaker_news *n)
{
	struct buf line;

	log_open(e->log, &line, n->kind == EVENT_BREAKER_TRIPPED ? LOG_WARN : LOG_INFO,
		 event_name(n->kind));
	json_put_text(&line, "owner", n->owner);
	write_news(&line, n);
	log_close(e->log, &line);
}

/* Found again by its name: the transaction may have taken its time. */
static void breaker_effect(struct engine *e, void *arg)
{
	const struct breaker_news *n = arg;
	struct breaker *b = fleet_breaker_find(fleet_of(e), n->owner);
	bool trips = n->kind == EVENT_BREAKER_TRIPPED;

	if (!b || (b->opened_at == LAPSE_NEVER) != trips)
		return;
	if (trips)
		fleet_trip(fleet_of(e), b, n->at);
	else
		fleet_release(fleet_of(e), b);
	log_breaker(e, n);
}

static int announce_breaker(struct tx *tx, enum event_kind kind, const struct breaker *b,
			    lapse_ms now)
{
	struct breaker_news *n = tx_alloc(tx, sizeof(*n));
	struct buf CLEANUP(buf_done) data = { 0 };

	*n = (struct breaker_news){ .kind = kind,
				    .owner = arena_strdup(&tx->arena, b->owner),
				    .at = now,
				    .tracked = b->count,
				    .agents = kind == EVENT_BREAKER_TRIPPED ? b->silent
									    : b->suspected };
	tx_effect(tx, breaker_effect, n);
	json_begin(&data, '{');
	write_news(&data, n);
	json_end(&data, '}');
	return event_add(tx, n->owner, kind, &data);
}

/* Removing */

/* A check: one walk along the agents that are due. */
struct check {
	struct sweep *sweep;
	struct tx *tx;
	struct fleet *fleet;
	lapse_ms now;
	struct buf *lines; /* of the log, written after the commit */
	bool holds;        /* there are holds on agents at all */
	int64_t evicted;
};

/* Whether the breaker of the agent's owner is open for this check. It is asked once per owner, and
 * outside of steps: what it decides must not be undone with an agent that fails. */
static int ask_breaker(struct check *c, uint32_t i)
{
	struct breaker *b = fleet_breaker_of(c->fleet, i);

	if (b->asked_in == c->fleet->checks)
		return LAPSE_OK;
	enum breaker_step step = fleet_breaker(c->fleet, b, false, c->now);
	if (step == BREAKER_RELEASES) /* close_breakers() has announced it */
		step = fleet_breaker(c->fleet, b, true, c->now);
	b->asked_in = c->fleet->checks;
	b->opened_for_now = step == BREAKER_TRIPS || step == BREAKER_STAYS_OPEN;
	return step == BREAKER_TRIPS ? announce_breaker(c->tx, EVENT_BREAKER_TRIPPED, b, c->now)
				     : LAPSE_OK;
}

static int close_breakers(struct check *c)
{
	int r = LAPSE_OK;

	for (struct list *l = c->fleet->open.next; r == LAPSE_OK && l != &c->fleet->open;
	     l = l->next) {
		struct breaker *b = CONTAINER_OF(l, struct breaker, link);
		if (fleet_breaker(c->fleet, b, false, c->now) == BREAKER_RELEASES)
			r = announce_breaker(c->tx, EVENT_BREAKER_RELEASED, b, c->now);
	}
	return r;
}

/* An agent that waits in memory once the transaction has committed. */
struct park {
	uint32_t index;
	bool held;
};

static void park_effect(struct engine *e, void *arg)
{
	const struct park *p = arg;

	fleet_park(fleet_of(e), p->index, p->held);
}

/* A check is one piece of work from its first look to its effects, so an index stays what it is. */
static void park_later(struct check *c, uint32_t i, bool held)
{
	struct park *p = tx_alloc(c->tx, sizeof(*p));

	*p = (struct park){ i, held };
	tx_effect(c->tx, park_effect, p);
}

/* The fate of an agent that is due. AGENT_STAYS = it is held, and waits. */
static int judge_one(struct check *c, uint32_t i, enum agent_fate *ret)
{
	const struct agent *a = fleet_at(c->fleet, i);
	const struct breaker *b = fleet_breaker_of(c->fleet, i);
	struct arena *arena = &c->tx->arena;
	int held = 0;

	assert(b->asked_in == c->fleet->checks);
	enum agent_fate fate = agent_judge(a->base, a->flags & AGENT_OVERDUE, b->opened_for_now,
					   c->fleet->evict_after, c->now);
	if (c->holds) /* copies: what the store is asked with must not move meanwhile */
		held = presence_is_held(c->tx,
					arena_strdup(arena, fleet_profile(c->fleet, i)->owner),
					arena_strndup(arena, agent_name(a), a->len));
	if (held > 0)
		park_later(c, i, true);
	if (held >= 0)
		*ret = held ? AGENT_STAYS : fate;
	return held < 0 ? held : LAPSE_OK;
}

static int settle_one(struct check *c, uint32_t i, enum agent_fate fate, int64_t *evicted)
{
	int r = presence_leave(c->tx, c->fleet, i, fate, c->now, c->lines);

	*evicted += r > 0 && fate == AGENT_EVICTED;
	return r < 0 ? r : LAPSE_OK;
}

/* Agents of one step that leave together, because they have no capabilities and the same fate. */
struct leaving {
	uint32_t agents[STEP_AGENTS];
	size_t n;
};

/* Agents without capabilities together, the others one by one. */
static int settle_all(struct check *c, const uint32_t *agents, size_t n, int64_t *evicted)
{
	struct leaving evict = { .n = 0 }, suspect = { .n = 0 };

	assert(n > 0 && n <= STEP_AGENTS);
	for (size_t i = 0; i < n; i++) {
		enum agent_fate fate = AGENT_STAYS;
		int r = judge_one(c, agents[i], &fate);
		if (r == LAPSE_OK && fate != AGENT_STAYS) {
			struct leaving *l = fate == AGENT_EVICTED ? &evict : &suspect;
			if (n > 1 && fleet_profile(c->fleet, agents[i])->is_bare)
				l->agents[l->n++] = agents[i];
			else
				r = settle_one(c, agents[i], fate, evicted);
		}
		if (r < 0)
			return r;
	}
	*evicted += (int64_t)evict.n;
	int r = presence_leave_together(c->tx, c->fleet, evict.agents, evict.n, AGENT_EVICTED,
					c->now, c->lines);
	return r < 0 ? r
		     : presence_leave_together(c->tx, c->fleet, suspect.agents, suspect.n,
					       AGENT_SUSPECTED, c->now, c->lines);
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

/* A step that failed, one by one: the agent to blame waits for the next check. */
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
		park_later(c, agents[i], false);
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
		for (; r == LAPSE_OK && n < STEP_AGENTS && is_due(c, i);
		     i = fleet_next(c->fleet, i)) {
			agents[n++] = i;
			r = ask_breaker(c, i);
		}
		if (r == LAPSE_OK)
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

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, tx->now);
	int r = db_step(&q);
	*ret = r > 0;
	return r < 0 ? r : LAPSE_OK;
}

/* A dry run: how many would be evicted, from memory, without those that are held. */
static const struct db_stmt HELD_AGENTS = {
	"SELECT owner, key FROM holds WHERE tbl = 'agents' AND until > $1"
};

/* Held agents among those that count_due_agents() counted. */
static int count_held(struct check *c, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(c->tx->db, &HELD_AGENTS);
	int r;

	db_bind_int(&q, 1, c->tx->now);
	while ((r = db_step(&q)) > 0) {
		uint32_t i = fleet_find(c->fleet, db_text(&q, 0), db_text(&q, 1));
		*ret += i && fleet_fate(c->fleet, i, c->now) == AGENT_EVICTED;
	}
	return r;
}

static int64_t count_due_agents(struct check *c)
{
	int64_t n = c->fleet->parked;

	for (uint32_t i = fleet_first(c->fleet); is_due(c, i); i = fleet_next(c->fleet, i))
		n += fleet_fate(c->fleet, i, c->now) == AGENT_EVICTED;
	return n;
}

static int tell(struct check *c)
{
	int64_t held = 0;
	int r = count_held(c, &held);

	c->evicted = count_due_agents(c) - held;
	assert(r < 0 || c->evicted >= 0);
	return r;
}

/* What a check does before it removes anything. */
static int begin_check(struct check *c)
{
	const struct sweep *w = c->sweep;
	int r = LAPSE_OK;

	c->fleet->checks++;
	if (!w->by_deadline && w->after.number[0] == 0) /* the first slice of a whole check */
		fleet_unpark(c->fleet);
	if (c->fleet->suspect_leaps != c->fleet->leaps)
		r = suspect_renew_all(c->tx);
	return r < 0 ? r : close_breakers(c);
}

static int prune_agents(struct sweep *w, struct tx *tx, lapse_us stop, int64_t *ret_n,
			bool *ret_more)
{
	struct fleet *f = presence_fleet(tx->engine);
	struct check c = { .sweep = w, .tx = tx, .fleet = f, .now = fleet_time(f, w->started_at) };
	int r;

	*ret_more = false;
	if (w->dry_run) {
		r = tell(&c);
	} else {
		r = begin_check(&c);
		w->after.number[0]++;
		bool go = r == LAPSE_OK && is_due(&c, fleet_first(c.fleet));
		if (go)
			r = any_hold(tx, &c.holds);
		if (go && r == LAPSE_OK)
			r = settle_due(&c, stop, ret_more);
	}
	*ret_n = c.evicted;
	return r;
}

/* Due rows, for the matrix and the metrics: agents that should be gone and are not. */
static void due_agents(const struct engine *e, lapse_ms now, struct due_count *ret)
{
	struct fleet *f = presence_fleet((struct engine *)e);
	struct check c = { .fleet = f, .now = fleet_time(f, now) };

	ret->rows = 0;
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

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, a->id);
	db_bind_int(&q, 2, a->last_seen);
	return db_post_row(&q, DB_ANY);
}

struct flush {
	lapse_us stop;
	uint32_t cursor; /* the next agent to look at, once this has committed */
};

static int write_slice(struct tx *tx, void *arg)
{
	const struct fleet *f = fleet_of(tx->engine);
	struct flush *x = arg;
	int r = LAPSE_OK;

	x->cursor = f->flush_cursor;
	for (int n = 0; r == LAPSE_OK && n < FLUSH_LOOK_AGENTS && x->cursor < f->used; n++) {
		const struct agent *a = fleet_at(f, x->cursor++);
		if (a->id && a->last_seen >= f->flushed_at)
			r = write_seen(tx, a);
		if (n % 32 == 31 && clock_mono(tx->engine->clock) >= x->stop)
			break;
	}
	return r;
}

/* *ret_more = the pass is not over. After an error it begins anew at its next time. */
static int flush_slice(struct engine *e, lapse_us stop, bool *ret_more)
{
	struct fleet *f = fleet_of(e);
	struct flush x = { .stop = stop };

	if (f->flush_cursor == 0)
		f->flush_started_at = clock_wall(e->clock);
	int r = job_do(e, JOB_LAZY, write_slice, &x);
	*ret_more = r == LAPSE_OK && x.cursor < f->used;
	if (r == LAPSE_OK && !*ret_more)
		f->flushed_at = f->flush_started_at;
	f->flush_cursor = *ret_more ? x.cursor : 0;
	return r;
}

static void tick_flush(struct engine *e)
{
	lapse_us now = clock_mono(e->clock);
	bool more = false;

	if (now < fleet_of(e)->flush_next)
		return;
	flush_slice(e, now + e->settings->sweep_budget_ms * 1000, &more);
	fleet_of(e)->flush_next = clock_mono(e->clock) + (more ? FLUSH_PAUSE_US : FLUSH_EVERY_US);
}

static void tick_agents(struct engine *e)
{
	struct fleet *f = fleet_of(e);

	tick_flush(e);
	if (clock_mono(e->clock) < f->catch_up_next)
		return;
	bool more = fleet_catch_up(f, clock_wall(e->clock));
	f->catch_up_next = clock_mono(e->clock) + (more ? 0 : CATCH_UP_PAUSE_US);
}

/* When the mark has an agent to pass, at its own pace. */
static lapse_us catch_up_us(const struct engine *e, lapse_us now)
{
	const struct fleet *f = fleet_of(e);
	lapse_ms at = fleet_silence_at(f);

	if (at == LAPSE_NEVER)
		return INT64_MAX;
	lapse_us in = time_sub(at, clock_wall(e->clock)) * 1000;
	return in > f->catch_up_next - now ? in : f->catch_up_next - now;
}

static lapse_us next_agents_us(const struct engine *e)
{
	lapse_us now = clock_mono(e->clock);
	lapse_us flush = fleet_of(e)->flush_next - now, catch_up = catch_up_us(e, now);
	lapse_us in = flush < catch_up ? flush : catch_up;

	return in > 0 ? in : 0;
}

static void stop_flush(struct engine *e)
{
	lapse_us stop = clock_mono(e->clock) + FLUSH_STOP_US;
	bool more = true;

	fleet_of(e)->flush_cursor = 0;
	while (more && clock_mono(e->clock) < stop)
		if (flush_slice(e, stop, &more) < 0)
			return;
}

static void write_agent_metrics(const struct engine *e, struct buf *out)
{
	metrics_family(out, METRIC_AGENTS);
	metrics_sample(out, METRIC_AGENTS, "", fleet_of(e)->count);
	metrics_family(out, METRIC_BREAKERS_OPEN);
	metrics_sample(out, METRIC_BREAKERS_OPEN, "", fleet_of(e)->open_count);
	metrics_family(out, METRIC_AGENTS_SUSPECT);
	metrics_sample(out, METRIC_AGENTS_SUSPECT, "", matrix_of(e, &SUSPECT_BOUND)->live);
}

/* An agent past its deadline that was held is parked: it goes now, not at the next check. */
static void unpark_effect(struct engine *e, void *arg)
{
	(void)arg;
	fleet_unpark(fleet_of(e));
}

static int hold_on_agent_changed(struct tx *tx, const char *owner, const char *key, lapse_ms until)
{
	uint32_t i = fleet_find(fleet_of(tx->engine), owner, key);

	if (until == 0 && i && fleet_at(fleet_of(tx->engine), i)->flags & AGENT_HELD)
		tx_effect(tx, unpark_effect, NULL);
	return until == 0 ? cluster_tell(tx, PRESENCE_UNPARK, "") : LAPSE_OK;
}

const struct room PRESENCE_ROOM = {
	.id = ROOM_PRESENCE,
	.load = load_agents,
	.tick = tick_agents,
	.next_us = next_agents_us,
	.stop = stop_flush,
	.done = free_agents,
	.owner_movable = presence_owner_movable,
	.write_metrics = write_agent_metrics,
	.news = presence_news,
	.tell = presence_tell_beats,
};

static bool agent_time_of(const struct engine *e, const char *owner, const char *key, lapse_ms *ret)
{
	const struct fleet *f = fleet_of(e);
	uint32_t i = fleet_find(f, owner, key);

	if (i)
		*ret = fleet_at(f, i)->base;
	return i != 0;
}

static int64_t own_agents(const struct engine *e, const char *owner)
{
	return fleet_count_of(fleet_of(e), owner);
}

static const struct bound_memory AGENT_MEMORY = {
	.deadline = agent_deadline,
	.prune = prune_agents,
	.hold_changed = hold_on_agent_changed,
	.time_of = agent_time_of,
	.due = due_agents,
	.own_live = own_agents,
};

const struct bound_spec AGENT_BOUND = {
	.name = "agents",
	.scheduler = "agents",
	.bounded_by = "agent_evict_after_ms after last_seen; agents_max_per_owner; agents_max",
	.due_when = "now - last_seen > agent_evict_after_ms",
	.safety_rule = "After a restart every agent gets one threshold; when more than "
		       "agent_breaker_percent of an owner's agents fall silent together, their "
		       "records are kept for one more threshold.",
	.action = "delete row and capabilities, log",
	.paths = PATH_LAZY | PATH_DEADLINE | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.walk = WALK_MEMORY,
	.time = "last_seen",
	.window = "agent_evict_after_ms",
	.holdable = true,
	.named_by = BOUND_COLUMNS("agent"),
	.event = "agent.evicted",
	.reason = "silent for longer than agent_evict_after_ms",
	.owner = "owner",
	.shown = BOUND_COLUMNS("cluster_id"),
	.memory = &AGENT_MEMORY,
};
