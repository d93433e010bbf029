/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/schedule.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

/* A scheduler is stalled when no sweep ended for this many intervals, and at least this long. */
#define STALLED_INTERVALS 5
#define STALLED_LEAST_US INT64_C(10000000)

/* While others want the store a scheduler has a quarter of it: it rests three times as long as it
 * works. A short sweep is not worth the rests, which would only make it longer: what it works
 * within BURST_US is paid for later, in the time until the next one. */
#define REST_FACTOR 3
#define BURST_US 10000

static lapse_us interval_us(const struct engine *e, const struct scheduler *s)
{
	return *(const int64_t *)((const char *)e->settings + s->def->interval) * 1000;
}

static bool has_deadlines(const struct engine *e, const char *scheduler)
{
	for (size_t i = 0; i < e->bounds_count; i++)
		if (strcmp(e->bounds[i]->scheduler, scheduler) == 0 &&
		    bound_has_deadline(e->bounds[i]))
			return true;
	return false;
}

/* Trusted time at which something of this scheduler is due, not before the grace after a restore
 * is over; LAPSE_NEVER = nothing is. */
static lapse_ms earliest_deadline(const struct engine *e, const struct scheduler *s)
{
	lapse_ms earliest = LAPSE_NEVER;

	for (size_t i = 0; i < e->bounds_count; i++) {
		const struct bound *b = e->bounds[i];
		if (!bound_has_deadline(b) || strcmp(b->scheduler, s->def->name) != 0)
			continue;
		lapse_ms at = b->memory->deadline(e);
		lapse_ms grace = guard_grace_end(e->restored_at, bound_window(b, e->settings));
		at = at > grace ? at : grace;
		earliest = at < earliest ? at : earliest;
	}
	return earliest;
}

/* Milliseconds until then; 0 = now or before, LAPSE_NEVER = no deadline is waited for. */
static lapse_ms until_deadline(const struct engine *e, const struct scheduler *s)
{
	if (!s->has_deadlines || s->deadlines_off)
		return LAPSE_NEVER;
	lapse_ms at = earliest_deadline(e, s);
	lapse_ms now = clock_wall(e->clock);
	return at == LAPSE_NEVER ? at : at > now ? at - now : 0;
}

void schedule_init(struct engine *e, const struct scheduler_def *defs)
{
	for (; defs->name; defs++) {
		assert(e->schedulers_count < SCHEDULERS_MAX);
		struct scheduler *s = &e->schedulers[e->schedulers_count++];
		*s = (struct scheduler){ .def = defs, .last_ended_at = LAPSE_NEVER };
		list_init(&s->requests);
		s->has_deadlines = has_deadlines(e, defs->name);
		s->last_ended = clock_mono(e->clock);
		s->next_at = s->last_ended + interval_us(e, s);
	}
}

static const struct db_stmt LAST = {
	"SELECT max(ended_at) FROM sweeps WHERE scheduler = $1 AND dry_run = 0 AND error = ''"
};

int schedule_load(struct engine *e, struct scheduler *s)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &LAST);

	db_bind_text(&q, 1, s->def->name);
	int r = db_step(&q);
	if (r > 0 && !db_is_null(&q, 0))
		s->last_ended_at = db_int(&q, 0);
	return r < 0 ? r : LAPSE_OK;
}

struct scheduler *schedule_find(const struct engine *e, const char *name)
{
	for (size_t i = 0; i < e->schedulers_count; i++)
		if (strcmp(e->schedulers[i].def->name, name) == 0)
			return (struct scheduler *)&e->schedulers[i];
	return NULL;
}

bool schedule_is_stalled(const struct engine *e, const struct scheduler *s)
{
	lapse_us limit = interval_us(e, s) * STALLED_INTERVALS;

	if (limit < STALLED_LEAST_US)
		limit = STALLED_LEAST_US;
	return clock_mono(e->clock) - s->last_ended > limit;
}

int schedule_request(struct engine *e, struct scheduler *s, struct sweep_request *r)
{
	(void)e;
	if (s->requests_count >= SWEEP_REQUESTS_MAX)
		return LAPSE_ELIMIT;
	list_append(&s->requests, &r->link);
	s->requests_count++;
	return LAPSE_OK;
}

static const struct db_stmt HISTORY = {
	"INSERT INTO sweeps (id, scheduler, started_at, ended_at, pruned, dry_run, error) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7)"
};

static int write_history(struct tx *tx, const struct sweep *w, int err)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HISTORY);

	db_bind_int(&q, 1, id_next(&tx->engine->ids, tx->now));
	db_bind_text(&q, 2, w->scheduler);
	db_bind_int(&q, 3, w->started_at);
	db_bind_int(&q, 4, tx->now);
	db_bind_int(&q, 5, w->total);
	db_bind_int(&q, 6, w->dry_run);
	db_bind_text(&q, 7, err < 0 ? err_text(err) : "");
	tx_count(tx, "sweeps", 1);
	return db_run(&q);
}

static int write_failures(struct tx *tx, const struct scheduler *s)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_text(&data, "scheduler", s->def->name);
	json_put_int(&data, "failures", s->unreported);
	json_end(&data, '}');
	return event_add(tx, "", s->def->failed, &data);
}

/* The sweep's line in the history, and the event of failures nobody could write down so far. */
static int record(struct engine *e, struct scheduler *s, int err)
{
	struct tx tx;
	int r = tx_begin(&tx, e);

	if (r == LAPSE_OK)
		r = write_history(&tx, &s->sweep, err);
	if (r == LAPSE_OK && s->unreported > 0)
		r = write_failures(&tx, s);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	r = tx_commit_lazy(&tx);
	if (r == LAPSE_OK)
		s->unreported = 0;
	return r;
}

static void log_failure(const struct engine *e, const struct scheduler *s, int err)
{
	struct buf line;

	log_open(e->log, &line, LOG_ERROR, event_name(s->def->failed));
	json_put_text(&line, "scheduler", s->def->name);
	json_put_text(&line, "error", err_text(err));
	json_put_text(&line, "detail", db_error(e->db));
	json_put_int(&line, "failures", s->errors);
	json_put_int(&line, "next_try_ms", interval_us(e, s) / 1000);
	log_close(e->log, &line);
}

static void log_pruned(const struct engine *e, const struct scheduler *s)
{
	struct buf line;

	if (s->sweep.total == 0 || s->sweep.dry_run || s->sweep.by_deadline)
		return;
	log_open(e->log, &line, LOG_INFO, "sweep.pruned");
	json_put_text(&line, "scheduler", s->def->name);
	json_put_int(&line, "rows", s->sweep.total);
	json_put_int(&line, "duration_ms", (s->sweep.ended - s->sweep.started) / 1000);
	log_close(e->log, &line);
}

/* Every way a sweep can end comes through here, and arms the next one. */
static void sweep_ended(struct engine *e, struct scheduler *s, int err)
{
	struct sweep_request *asker = s->serving;

	s->running = false;
	s->serving = NULL;
	s->sweep.ended = clock_mono(e->clock);
	if (err < 0) {
		s->errors++;
		s->unreported++;
		log_failure(e, s, err);
	}
	int recorded = s->sweep.by_deadline && err == LAPSE_OK ? LAPSE_OK : record(e, s, err);
	if (recorded < 0 && err == LAPSE_OK) { /* it did its work, but the store is failing now */
		s->errors++;
		s->unreported++;
		log_failure(e, s, recorded);
	}
	if (err == LAPSE_OK) {
		if (!s->sweep.dry_run && !s->sweep.by_deadline) {
			s->last_ended = clock_mono(e->clock);
			s->last_ended_at = clock_wall(e->clock);
		}
		histogram_add(&s->seconds, HISTOGRAM_SECONDS, s->sweep.ended - s->sweep.started);
		log_pruned(e, s);
	}
	/* A dry run has removed nothing, and must not put the real one off; nor must deadlines. */
	if (!s->sweep.dry_run && !(s->sweep.by_deadline && err == LAPSE_OK))
		s->next_at = clock_mono(e->clock) + interval_us(e, s);
	if (asker)
		asker->done(asker, err, &s->sweep);
}

static void start(struct engine *e, struct scheduler *s)
{
	struct list *l = list_shift(&s->requests);

	s->serving = l ? CONTAINER_OF(l, struct sweep_request, link) : NULL;
	if (l)
		s->requests_count--;
	sweep_init(&s->sweep, e, s->def->name, s->serving && s->serving->dry_run);
	s->sweep.follower = s->serving ? s->serving->follower : NULL;
	s->sweep.by_deadline = !l && clock_mono(e->clock) < s->next_at;
	s->running = true;
}

static bool wants_to_run(const struct engine *e, const struct scheduler *s)
{
	if (s->running)
		return clock_mono(e->clock) >= s->rest_until;
	return !list_empty(&s->requests) || clock_mono(e->clock) >= s->next_at ||
	       until_deadline(e, s) == 0;
}

/* How long to rest after a slice, while others want the store. */
static lapse_us rest_us(struct scheduler *s, lapse_us began, lapse_us ended)
{
	lapse_us paid = (began - s->worked_until) / REST_FACTOR;

	s->owed = (s->owed > paid ? s->owed - paid : 0) + (ended - began);
	s->worked_until = ended;
	return s->owed > BURST_US ? (s->owed - BURST_US) * REST_FACTOR : 0;
}

void schedule_tick_one(struct engine *e, struct scheduler *s)
{
	bool more = false;

	if (!wants_to_run(e, s))
		return;
	if (!s->running)
		start(e, s);
	lapse_us began = clock_mono(e->clock);
	int r = sweep_slice(&s->sweep, &more);
	lapse_us ended = clock_mono(e->clock);
	lapse_us rest = rest_us(s, began, ended);
	s->rest_until = e->crowded ? ended + rest : ended;
	if (r < 0 || !more) {
		if (!s->sweep.dry_run) /* a failed step is put aside, a failed slice comes again */
			s->deadlines_off = r < 0;
		sweep_ended(e, s, r < 0 ? r : s->sweep.step_err);
	}
}

void schedule_tick(struct engine *e)
{
	for (size_t i = 0; i < e->schedulers_count; i++)
		schedule_tick_one(e, &e->schedulers[i]);
}

lapse_us schedule_next_us(const struct engine *e)
{
	lapse_us now = clock_mono(e->clock);
	lapse_us next = INT64_MAX;

	for (size_t i = 0; i < e->schedulers_count; i++) {
		const struct scheduler *s = &e->schedulers[i];
		lapse_us in = (s->running ? s->rest_until : s->next_at) - now;
		if (wants_to_run(e, s))
			in = 0;
		next = in < next ? in : next;
		lapse_ms deadline = in > 0 && !s->running ? until_deadline(e, s) : LAPSE_NEVER;
		if (deadline < next / 1000)
			next = deadline * 1000;
	}
	return next > 0 ? next : 0;
}

void schedule_stop(struct engine *e)
{
	for (size_t i = 0; i < e->schedulers_count; i++) {
		struct scheduler *s = &e->schedulers[i];
		struct list *l;
		if (s->serving)
			s->serving->done(s->serving, LAPSE_EUNAVAILABLE, &s->sweep);
		s->serving = NULL;
		s->running = false;
		while ((l = list_shift(&s->requests))) {
			struct sweep_request *r = CONTAINER_OF(l, struct sweep_request, link);
			r->done(r, LAPSE_EUNAVAILABLE, &s->sweep);
		}
		s->requests_count = 0;
	}
}
