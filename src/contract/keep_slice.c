/* SPDX-License-Identifier: Apache-2.0 */
/* A slice of a contract's sweep: on the loop, what the last one removed is told and the next intent
 * is written; then a worker removes rows. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/wait.h"
#include "base/thread.h"
#include "contract/keep_state.h"
#include "contract/replica.h"

#define RENEW_US (LEASE_MS * INT64_C(1000) / 3)

/* Looked at about once a second; in between the last answer counts. */
#define LAG_LOOK_US 1000000

static int look_at_standbys(struct keep_worker *w)
{
	struct replica_lag lag;

	if (clock_mono(&CLOCK_SYSTEM) - w->lag_at < LAG_LOOK_US)
		return LAPSE_OK;
	w->lag_at = clock_mono(&CLOCK_SYSTEM);
	int err = replica_lag_read(w->f, &lag);
	w->lagging =
		err == LAPSE_OK && lag.lag_ms > worker_bound(w)->bound->pace.replica_lag_max_ms;
	return err;
}

static void work_slice(struct offload *o)
{
	struct keep_worker *w = worker_of(o);
	int err = LAPSE_OK;

	assert(w->busy && w->pass && w->f);
	/* On SQLite the work is done by this thread, on the machine of those who use the file.
	 * PostgreSQL's is done elsewhere. */
	if (w->f->engine == FOREIGN_SQLITE)
		thread_give_way();
	if (!w->scheduler->sweep.dry_run && clock_mono(&CLOCK_SYSTEM) - w->lease_at > RENEW_US) {
		err = lease_take(w->lease, w->f);
		w->lease_at = clock_mono(&CLOCK_SYSTEM);
	}
	w->removed = 0;
	if (err == LAPSE_OK)
		err = look_at_standbys(w);
	if (err == LAPSE_OK && !w->lagging)
		err = pass_slice(w->pass, &w->removed, &w->more);
	if (err < 0)
		worker_job_failed(w, err, foreign_error(w->f));
}

/* So many rows must take so long. */
static void rest_after_slice(struct keep_worker *w, lapse_us began)
{
	int64_t rate = worker_bound(w)->bound->pace.rows_per_second;

	assert(w->removed >= 0 && rate >= 0);
	w->rest_until = rate > 0 ? began + w->removed * 1000000 / rate : began;
	if (w->lagging)
		w->rest_until = clock_mono(worker_engine(w)->clock) + LAG_LOOK_US;
}

static void keep_count_removed(struct keep_worker *w)
{
	struct keep_bound *b = worker_bound(w);

	assert(w->removed >= 0);
	w->scheduler->sweep.total += w->removed;
	b->row->swept += w->removed;
	if (w->scheduler->sweep.dry_run)
		return;
	b->row->pruned += w->removed;
	w->unsettled += w->removed;
	assert(w->unsettled <= w->intended);
}

/* The rule was swept whole: it is no new rule any more, and an approval is used up. */
static int write_swept(struct keep_worker *w)
{
	struct keep_bound *b = worker_bound(w);
	struct tx tx;
	int r = tx_begin(&tx, worker_engine(w));

	assert(!w->scheduler->sweep.dry_run && !w->interrupted && w->job_err == LAPSE_OK);
	if (r == LAPSE_OK)
		r = kept_bound_swept(&tx, b->spec.name, b->hash);
	if (r == LAPSE_OK)
		r = approval_done(&tx, b->spec.name);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	return tx_commit_lazy(&tx);
}

/* After a whole pass only locked rows are still due; after another one, what it did not come to. */
static void note_left(struct keep_worker *w)
{
	struct keep_bound *b = worker_bound(w);
	bool whole = w->job_err == LAPSE_OK && !w->interrupted;
	int64_t rest = b->expected - b->left.removed;

	assert(b->row && w->rule);
	b->row->due = whole ? 0 : rest > 0 ? rest : 0;
	b->row->oldest_due =
		b->left.newest > INT64_MIN ? b->left.newest : rule_cutoff(w->rule, w->now);
	if (whole)
		matrix_note_success(b->row,
				    clock_mono(worker_engine(w)->clock) - b->row->swept_from,
				    clock_wall(worker_engine(w)->clock));
}

static void pass_ended(struct keep_worker *w)
{
	struct keep_bound *b = worker_bound(w);
	int r = LAPSE_OK;

	assert(!w->busy && w->pass && w->slice == 0);
	if (!w->scheduler->sweep.dry_run) {
		r = worker_settle(w, 0);
		if (r == LAPSE_OK && w->job_err == LAPSE_OK && !w->interrupted)
			r = write_swept(w);
		b->left = *pass_tally(w->pass);
		note_left(w);
	}
	if (r < 0)
		worker_bound_failed(w, r, "lapse's own store failed");
	else if (w->job_err == LAPSE_OK)
		b->problem[0] = '\0';
	bool away = w->job_err == LAPSE_EUNAVAILABLE || w->job_err == LAPSE_EUNKNOWN;
	bool lost = w->job_err == LAPSE_EPRECONDITION || w->job_err == LAPSE_EBUSY;
	worker_next_bound(w);
	if (away)
		worker_drop_connection(w);
	if (away || lost)
		w->state = KEEP_CLOSE;
}

/* After a commit of unknown outcome the intent stays: the number told is an upper bound. */
static void done_slice(struct offload *o)
{
	struct keep_worker *w = worker_of(o);
	struct engine *e = worker_engine(w);

	assert(w->busy && w->slice > 0 && w->state == KEEP_SLICE);
	w->busy = false;
	w->slice = 0;
	worker_slice_over(w);
	waiters_wake(e, w->scheduler->def->name);
	keep_count_removed(w);
	rest_after_slice(w, w->slice_at);
	if (w->job_err < 0 && w->job_err != LAPSE_EPRECONDITION)
		worker_bound_failed(w, w->job_err, w->job_error);
	w->interrupted = w->more && keepers_of(e)->stopping;
	if (w->job_err < 0 || !w->more || w->interrupted)
		pass_ended(w);
}

void worker_start_slice(struct keep_worker *w)
{
	struct engine *e = worker_engine(w);
	int64_t intend = w->scheduler->sweep.dry_run ? 0 : pass_limit(w->pass);
	int r = LAPSE_OK;

	assert(!w->busy && w->state == KEEP_SLICE && w->pass);
	if (keepers_of(e)->winding_down) {
		w->interrupted = true;
		pass_ended(w);
		return;
	}
	if (intend > 0)
		r = worker_intend(w, intend);
	if (r < 0) {
		worker_bound_failed(w, r, "lapse's own store failed");
		worker_next_bound(w);
		return;
	}
	w->slice = ++keepers_of(e)->slices;
	w->slice_at = clock_mono(e->clock);
	worker_job(w, work_slice, done_slice);
}
