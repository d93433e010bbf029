/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/schedule.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/housekeeping.h"
#include "engine/job.h"
#include "engine/tx.h"

/* A scheduler is stalled when no sweep ended for this many intervals, and at least this long. */
#define STALLED_INTERVALS 5
#define STALLED_LEAST_US INT64_C(10000000)

/* While others want the store a scheduler has a quarter of it: it rests three times as long as it
 * works. A short sweep is not worth the rests, which would only make it longer: what it works
 * within BURST_US is paid for later, in the time until the next one. */
#define REST_FACTOR 3
#define BURST_US 10000

#define CAPPED_PAUSE_US INT64_C(1000000) /* until the rest of a sweep that had a limit */

static lapse_us interval_us(const struct engine *e, const struct scheduler *s)
{
	assert(*s->interval_ms > 0);
	(void)e;
	return *s->interval_ms * 1000;
}

void schedule_bounds_changed(struct engine *e)
{
	for (size_t i = 0; i < e->schedulers_count; i++)
		e->schedulers[i].has_deadlines = false;
	for (size_t i = 0; i < e->matrix.count; i++)
		if (bound_has_deadline(e->matrix.bounds[i]))
			e->matrix.bounds[i]->scheduler->has_deadlines = true;
}

void schedule_forget(struct engine *e, const struct bound *b)
{
	assert(b->magic == BOUND_MAGIC && b->scheduler);
	(void)e;
	if (b->scheduler->running)
		sweep_forget(&b->scheduler->sweep, b);
}

/* Trusted time at which something of this scheduler is due, not before the grace after a restore
 * is over; LAPSE_NEVER = nothing is. */
static lapse_ms earliest_deadline(const struct engine *e, const struct scheduler *s)
{
	lapse_ms earliest = LAPSE_NEVER;

	for (size_t i = 0; i < e->matrix.count; i++) {
		const struct bound *b = e->matrix.bounds[i];
		if (b->scheduler != s || !bound_has_deadline(b))
			continue;
		assert(b->magic == BOUND_MAGIC && !b->removed);
		lapse_ms at = b->spec->memory->deadline(e);
		lapse_ms grace = guard_grace_end(e->restored_at, bound_window(b));
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

/* Tells all that wait at a scheduler that it ends. */
static void schedule_fail_requests(struct scheduler *s)
{
	struct list *l;

	while ((l = list_shift(&s->requests))) {
		struct sweep_request *r = CONTAINER_OF(l, struct sweep_request, link);
		assert(s->requests_count > 0 && r != s->serving);
		r->done(r, LAPSE_EUNAVAILABLE, &s->sweep);
	}
	assert(list_empty(&s->requests));
	s->requests_count = 0;
}

static void scheduler_init(struct engine *e, struct scheduler *s, const struct scheduler_def *def)
{
	assert(def->name && def->failed);
	*s = (struct scheduler){ .def = def, .last_ended_at = LAPSE_NEVER };
	list_init(&s->requests);
	s->interval_ms =
		def->interval ? settings_int(e->settings, def->interval) : &def->interval_ms;
	assert(s->interval_ms && *s->interval_ms > 0);
	s->last_ended = clock_mono(e->clock);
	s->next_at = s->last_ended + interval_us(e, s);
}

void schedule_init(struct engine *e, const struct scheduler_def *defs)
{
	for (; defs->name; defs++) {
		assert(e->schedulers_count < SCHEDULERS_MAX);
		scheduler_init(e, &e->schedulers[e->schedulers_count++], defs);
	}
}

int schedule_add(struct engine *e, const struct scheduler_def *def, schedule_begin_fn *begin,
		 struct scheduler **ret)
{
	struct scheduler *s = schedule_find(e, def->name);

	if (s) {
		assert(!s->running);
		s->def = def;
		s->interval_ms = &def->interval_ms;
		assert(!s->serving);
		*ret = s;
		return LAPSE_OK;
	}
	for (size_t i = 0; !s && i < e->schedulers_count; i++)
		if (e->schedulers[i].retired)
			s = &e->schedulers[i];
	if (!s && e->schedulers_count == SCHEDULERS_MAX)
		return LAPSE_ELIMIT;
	if (!s)
		s = &e->schedulers[e->schedulers_count++];
	scheduler_init(e, s, def);
	s->begin = begin;
	int r = schedule_load(e, s);
	if (r < 0) {
		s->retired = true;
		return r;
	}
	*ret = s;
	return LAPSE_OK;
}

void schedule_remove(struct engine *e, struct scheduler *s)
{
	assert(!s->running && !s->retired);
	for (size_t i = 0; i < e->matrix.count; i++)
		assert(e->matrix.bounds[i]->scheduler != s);
	schedule_fail_requests(s);
	assert(!s->serving);
	s->retired = true;
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
		if (!e->schedulers[i].retired && strcmp(e->schedulers[i].def->name, name) == 0)
			return (struct scheduler *)&e->schedulers[i];
	return NULL;
}

bool schedule_is_stalled(const struct engine *e, const struct scheduler *s)
{
	lapse_us limit = interval_us(e, s) * STALLED_INTERVALS;

	if (limit < STALLED_LEAST_US)
		limit = STALLED_LEAST_US;
	return !s->retired && cluster_leads(e, s->def->name) &&
	       clock_mono(e->clock) - s->last_ended > limit;
}

int schedule_request(struct engine *e, struct scheduler *s, struct sweep_request *r)
{
	assert(r->done && !s->retired);
	(void)e;
	if (s->requests_count >= SWEEP_REQUESTS_MAX)
		return LAPSE_ELIMIT;
	list_append(&s->requests, &r->link);
	assert(s->requests_count < SWEEP_REQUESTS_MAX);
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

	assert(tx_can_write(tx));
	assert(w->total >= 0 && err <= 0);
	db_bind_int(&q, 1, id_next(&tx->engine->ids, tx->now));
	db_bind_text(&q, 2, w->scheduler->def->name);
	db_bind_int(&q, 3, w->started_at);
	db_bind_int(&q, 4, tx->now);
	db_bind_int(&q, 5, w->total);
	db_bind_int(&q, 6, w->dry_run);
	db_bind_text(&q, 7, err < 0 ? err_text(err) : "");
	tx_count(tx, &SWEEP_BOUND, 1);
	return db_post(&q, DB_ONE);
}

static int write_failures(struct tx *tx, const struct scheduler *s)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	assert(s->unreported > 0);
	json_begin(&data, '{');
	json_put_text(&data, "scheduler", s->def->name);
	json_put_int(&data, "failures", s->unreported);
	json_end(&data, '}');
	return event_add_named(tx, "", s->def->failed, &data);
}

/* What a sweep removed of each of its tables, in one event. */
static int schedule_write_pruned(struct tx *tx, const struct scheduler *s)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	struct sweep_count *tables;
	size_t n = sweep_counts(&s->sweep, &tx->arena, &tables);

	assert(s->sweep.total > 0 && !s->sweep.dry_run);
	json_begin(&data, '{');
	json_put_text(&data, "scheduler", s->def->name);
	json_put_int(&data, "pruned", s->sweep.total);
	json_key(&data, "tables");
	json_begin(&data, '{');
	for (size_t i = 0; i < n; i++)
		json_put_int(&data, tables[i].table, tables[i].pruned);
	json_end(&data, '}');
	json_end(&data, '}');
	return event_add_named(tx, "", s->def->pruned, &data);
}

/* The sweep's line in the history, and the event of failures that could not be written down so far.
 */
struct sweep_record {
	struct scheduler *scheduler;
	int err; /* the sweep's */
};

static int write_record(struct tx *tx, void *arg)
{
	const struct sweep_record *x = arg;
	const struct scheduler *s = x->scheduler;
	int r = write_history(tx, &s->sweep, x->err);

	assert(x->scheduler->sweep.scheduler == x->scheduler);
	if (r == LAPSE_OK && s->def->pruned && s->sweep.total > 0 && !s->sweep.dry_run)
		r = schedule_write_pruned(tx, s);
	if (r == LAPSE_OK && x->scheduler->unreported > 0)
		r = write_failures(tx, x->scheduler);
	if (r == LAPSE_OK && x->err == LAPSE_OK && !s->sweep.dry_run)
		r = cluster_tell(tx, CLUSTER_SWEPT, s->def->name);
	return r;
}

static int record(struct engine *e, struct scheduler *s, int err)
{
	struct sweep_record x = { s, err };
	int r = job_do(e, JOB_LAZY, write_record, &x);

	assert(!s->running);
	if (r == LAPSE_OK)
		s->unreported = 0;
	return r;
}

static void log_failure(const struct engine *e, const struct scheduler *s, int err)
{
	struct buf line;

	log_open(e->log, &line, LOG_ERROR, s->def->failed);
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
	log_open(e->log, &line, LOG_INFO, s->def->pruned ? s->def->pruned : "sweep.pruned");
	json_put_text(&line, "scheduler", s->def->name);
	json_put_int(&line, "rows", s->sweep.total);
	json_put_int(&line, "duration_ms", (s->sweep.ended - s->sweep.started) / 1000);
	log_close(e->log, &line);
}

static lapse_us pause_us(const struct engine *e, const struct scheduler *s, int err)
{
	lapse_us interval = interval_us(e, s);

	if (err == LAPSE_OK && s->sweep.capped && interval > CAPPED_PAUSE_US)
		return CAPPED_PAUSE_US;
	return interval;
}

/* Notes for the matrix that the bounds of our own store were swept. */
static void note_success(struct engine *e, const struct scheduler *s)
{
	for (size_t i = 0; i < e->matrix.count; i++) {
		struct bound *b = e->matrix.bounds[i];
		if (b->scheduler == s && bound_is_ours(b) &&
		    (!s->sweep.by_deadline || bound_has_deadline(b)))
			matrix_note_success(b, s->sweep.ended - s->sweep.started,
					    clock_wall(e->clock));
	}
}

/* Every way a sweep can end comes through here, and arms the next one. */
static void sweep_ended(struct engine *e, struct scheduler *s, int err)
{
	struct sweep_request *asker = s->serving;

	assert(s->running && !s->retired && err <= 0);
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
		if (!s->sweep.dry_run)
			note_success(e, s);
		if (!s->sweep.dry_run && !s->sweep.by_deadline) {
			s->last_ended = clock_mono(e->clock);
			s->last_ended_at = clock_wall(e->clock);
			s->last_took = s->sweep.ended - s->sweep.started;
		}
		histogram_add(&s->seconds, HISTOGRAM_SECONDS, s->sweep.ended - s->sweep.started);
		log_pruned(e, s);
	}
	/* A dry run has removed nothing, and must not put the real one off; nor must deadlines. */
	if (!s->sweep.dry_run && !(s->sweep.by_deadline && err == LAPSE_OK))
		s->next_at = clock_mono(e->clock) + pause_us(e, s, err);
	if (asker)
		asker->done(asker, err, &s->sweep);
	sweep_done(&s->sweep);
}

static void scheduler_start(struct engine *e, struct scheduler *s)
{
	struct list *l = list_shift(&s->requests);

	assert(!s->running && !s->retired && !s->serving);
	s->serving = l ? CONTAINER_OF(l, struct sweep_request, link) : NULL;
	if (l)
		s->requests_count--;
	sweep_init(&s->sweep, e, s, s->serving && s->serving->dry_run);
	if (s->def->batch)
		s->sweep.limit = *settings_int(e->settings, s->def->batch) *
				 *settings_int(e->settings, s->def->batches);
	s->sweep.follower = s->serving ? s->serving->follower : NULL;
	s->sweep.by_deadline = !l && clock_mono(e->clock) < s->next_at;
	assert(s->sweep.limit > 0);
	s->running = true;
}

static bool wants_to_run(const struct engine *e, const struct scheduler *s)
{
	if (s->retired || (s->running && s->begin))
		return false;
	if (s->running)
		return clock_mono(e->clock) >= s->rest_until;
	if (!list_empty(&s->requests))
		return true;
	return cluster_leads(e, s->def->name) &&
	       (clock_mono(e->clock) >= s->next_at || until_deadline(e, s) == 0);
}

/* How long to rest after a slice, while others want the store. */
static lapse_us rest_us(struct scheduler *s, lapse_us began, lapse_us ended)
{
	lapse_us paid = (began - s->worked_until) / REST_FACTOR;

	s->owed = (s->owed > paid ? s->owed - paid : 0) + (ended - began);
	s->worked_until = ended;
	return s->owed > BURST_US ? (s->owed - BURST_US) * REST_FACTOR : 0;
}

void schedule_heard(struct engine *e, const char *name, lapse_ms at)
{
	struct scheduler *s = schedule_find(e, name);

	if (!s || s->running)
		return;
	s->last_ended = clock_mono(e->clock);
	s->last_ended_at = at;
	s->next_at = clock_mono(e->clock) + interval_us(e, s);
}

/* Another replica has taken over: it goes on where this one was. */
static void sweep_moved(struct engine *e, struct scheduler *s)
{
	struct sweep_request *asker = s->serving;

	assert(s->running);
	s->running = false;
	s->serving = NULL;
	s->next_at = clock_mono(e->clock) + interval_us(e, s);
	if (asker)
		asker->done(asker, LAPSE_EUNAVAILABLE, &s->sweep);
	sweep_done(&s->sweep);
}

void schedule_ended(struct engine *e, struct scheduler *s, int err)
{
	assert(s->begin);
	if (s->running)
		sweep_ended(e, s, err);
}

/* A person asks this replica for a sweep that removes. */
static bool wants_lease(const struct scheduler *s)
{
	return !list_empty(&s->requests) &&
	       !CONTAINER_OF(s->requests.next, struct sweep_request, link)->dry_run;
}

void schedule_tick_one(struct engine *e, struct scheduler *s)
{
	bool more = false;

	if (!wants_to_run(e, s))
		return;
	if (!s->running && wants_lease(s))
		cluster_seize(e, s->def->name); /* where that fails, so does the sweep */
	if (!s->running)
		scheduler_start(e, s);
	if (s->begin) {
		s->begin(e, s);
		return;
	}
	lapse_us began = clock_mono(e->clock);
	int r = sweep_slice(&s->sweep, &more);
	lapse_us ended = clock_mono(e->clock);
	lapse_us rest = rest_us(s, began, ended);
	s->rest_until = e->crowded ? ended + rest : ended;
	if (r == LAPSE_ECONFLICT && e->cluster.on && !cluster_leads(e, s->def->name)) {
		sweep_moved(e, s);
		return;
	}
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

lapse_ms schedule_next_at(const struct engine *e, const struct scheduler *s, lapse_ms now)
{
	lapse_us in = s->next_at - clock_mono(e->clock);

	assert(!s->retired);
	return s->running || in < 0 ? now : time_add(now, in / 1000);
}

lapse_us schedule_next_us(const struct engine *e)
{
	lapse_us now = clock_mono(e->clock);
	lapse_us next = INT64_MAX;

	for (size_t i = 0; i < e->schedulers_count; i++) {
		const struct scheduler *s = &e->schedulers[i];
		if (s->retired || (s->running && s->begin))
			continue; /* there is none, or its end wakes the loop */
		if (!s->running && list_empty(&s->requests) && !cluster_leads(e, s->def->name))
			continue; /* another replica's */
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
		if (s->serving)
			s->serving->done(s->serving, LAPSE_EUNAVAILABLE, &s->sweep);
		assert(!s->serving || s->running);
		s->serving = NULL;
		s->running = false;
		sweep_done(&s->sweep);
		schedule_fail_requests(s);
	}
}
