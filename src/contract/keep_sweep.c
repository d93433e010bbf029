/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep of a contract's scheduler, as a chain of jobs: see contract/keep.h. This file has the
 * chain, its first link (open) and its last (close); keep_bound.c and keep_slice.c have those
 * between. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "contract/keep_state.h"

void worker_job(struct keep_worker *w, void (*work)(struct offload *),
		void (*done)(struct offload *))
{
	assert(!w->busy && w->state != KEEP_IDLE);
	w->busy = true;
	w->job_err = LAPSE_OK;
	w->job_error[0] = '\0';
	w->job = (struct offload){ .engine = worker_engine(w), .work = work, .done = done };
	offload_start(worker_engine(w), &w->job);
}

void worker_job_failed(struct keep_worker *w, int err, const char *words)
{
	assert(w->busy && err < 0);
	w->job_err = err;
	snprintf(w->job_error, sizeof(w->job_error), "%s", words);
}

static void log_trouble(struct keep_worker *w, const char *bound, int err, const char *words)
{
	struct engine *e = worker_engine(w);
	struct buf line;

	log_open(e->log, &line, LOG_ERROR, "contract.failed");
	json_put_text(&line, "contract", worker_terms(w)->contract->name);
	json_put_text(&line, "scheduler", w->scheduler->def->name);
	json_put_text(&line, "bound", bound);
	json_put_text(&line, "error", err_text(err));
	json_put_text(&line, "detail", words);
	log_close(e->log, &line);
}

void worker_failed(struct keep_worker *w, int err, const char *words)
{
	assert(err < 0);
	if (w->err == LAPSE_OK)
		w->err = err;
	log_trouble(w, NULL, err, words);
}

void worker_bound_failed(struct keep_worker *w, int err, const char *words)
{
	struct keep_bound *b = worker_bound(w);

	if (w->err == LAPSE_OK)
		w->err = err;
	snprintf(b->problem, sizeof(b->problem), "%s", words);
	log_trouble(w, b->spec.name, err, words);
}

void worker_forget_bound(struct keep_worker *w)
{
	pass_free(w->pass);
	rule_free(w->rule);
	if (w->has_findings)
		findings_done(&w->findings);
	if (w->has_count)
		plan_row_done(&w->count);
	held_keys_done(&w->held);
	w->pass = NULL;
	w->rule = NULL;
	w->has_findings = w->has_count = w->wants_count = w->covered = false;
}

void worker_next_bound(struct keep_worker *w)
{
	assert(!w->busy && w->at < worker_terms(w)->contract->bounds_count);
	worker_forget_bound(w);
	w->at++;
	w->state = KEEP_BOUND;
}
/* Open: connect, look at the other clock, take the lease. */

static void work_open(struct offload *o)
{
	struct keep_worker *w = worker_of(o);
	struct buf CLEANUP(buf_done) error = { 0 };
	struct foreign *f = w->f;
	int err = LAPSE_OK;

	assert(w->busy && w->state == KEEP_OPEN && !w->opened);
	if (!f)
		err = contract_connect(worker_terms(w)->contract, &w->opened, &error);
	if (err < 0) {
		worker_job_failed(w, err, buf_text(&error));
		return;
	}
	f = f ? f : w->opened;
	err = foreign_now(f, &w->theirs);
	if (err == LAPSE_OK && !w->scheduler->sweep.dry_run)
		err = lease_take(w->lease, f);
	if (err < 0)
		worker_job_failed(w, err, foreign_error(f));
}

void worker_drop_connection(struct keep_worker *w)
{
	assert(!w->busy && !w->pass);
	foreign_close(w->f);
	w->f = NULL;
}

static bool clocks_agree(struct keep_worker *w)
{
	lapse_ms apart = time_sub(w->theirs, w->trusted);
	char words[160];

	apart = apart < 0 ? -apart : apart;
	if (apart <= CLOCKS_APART_MS)
		return true;
	snprintf(words, sizeof(words), "the clock of the database is %lld s away from trusted time",
		 (long long)(apart / 1000));
	worker_failed(w, LAPSE_EUNAVAILABLE, words);
	return false;
}

static void done_open(struct offload *o)
{
	struct keep_worker *w = worker_of(o);

	assert(w->busy && w->state == KEEP_OPEN && !w->pass);
	w->busy = false;
	if (w->opened)
		w->f = w->opened;
	w->opened = NULL;
	w->state = KEEP_CLOSE;
	if (w->job_err == LAPSE_EBUSY)
		return; /* another replica sweeps */
	if (w->job_err < 0) {
		worker_failed(w, w->job_err, w->job_error);
		if (w->f)
			worker_drop_connection(w);
		return;
	}
	if (!clocks_agree(w))
		return;
	int r = w->scheduler->sweep.dry_run ? LAPSE_OK : worker_recover(w);
	if (r < 0) {
		worker_failed(w, r, "lapse's own store failed");
		return;
	}
	w->lease_at = clock_mono(worker_engine(w)->clock);
	w->now = w->theirs < w->trusted ? w->theirs : w->trusted;
	w->at = 0;
	w->state = KEEP_BOUND;
}

/* Close: one event for the tick, the lease goes back. */

static void work_close(struct offload *o)
{
	struct keep_worker *w = worker_of(o);

	if (w->f && !w->scheduler->sweep.dry_run)
		lease_give(w->lease, w->f);
}

static void done_close(struct offload *o)
{
	struct keep_worker *w = worker_of(o);

	assert(w->busy && w->state == KEEP_CLOSE && !w->pass);
	w->busy = false;
	w->state = KEEP_IDLE;
	schedule_ended(worker_engine(w), w->scheduler, w->err);
}

void worker_begin(struct engine *e, struct scheduler *s)
{
	struct keepers *all = keepers_of(e);

	for (size_t i = 0; i < all->count; i++)
		for (size_t j = 0; j < all->all[i]->terms->contract->schedulers_count; j++) {
			struct keep_worker *w = &all->all[i]->workers[j];
			if (w->scheduler != s)
				continue;
			assert(w->state == KEEP_IDLE && !w->busy);
			w->state = KEEP_OPEN;
			w->err = LAPSE_OK;
			w->rest_until = 0;
			w->interrupted = false;
			w->looking = s->serving == &w->look;
			w->trusted = clock_wall(e->clock);
			return;
		}
	assert(0 && "a scheduler of a contract has a worker");
}

void worker_step(struct keep_worker *w)
{
	if (w->busy || clock_mono(worker_engine(w)->clock) < w->rest_until)
		return;
	switch (w->state) {
	case KEEP_IDLE:
		return;
	case KEEP_OPEN:
		worker_job(w, work_open, done_open);
		return;
	case KEEP_BOUND:
		worker_start_bound(w);
		return;
	case KEEP_SLICE:
		worker_start_slice(w);
		return;
	case KEEP_CLOSE:
		worker_tell(w);
		worker_job(w, work_close, done_close);
		return;
	}
}

lapse_us worker_next_us(const struct keep_worker *w)
{
	if (w->busy || w->state == KEEP_IDLE)
		return INT64_MAX;
	lapse_us in = w->rest_until - clock_mono(worker_engine(w)->clock);
	return in > 0 ? in : 0;
}

/* A running statement ends with an error; its job then comes back as usual. */
void worker_stop(struct keep_worker *w)
{
	if (w->busy && w->f)
		foreign_cancel(w->f);
	else if (!w->busy && w->intended > 0)
		worker_settle(w, 0); /* told already; if it fails, an upper bound is told next */
}

void worker_done(struct keep_worker *w)
{
	assert(!w->busy);
	worker_forget_bound(w);
	if (w->f && w->state != KEEP_IDLE)
		lease_give(w->lease, w->f);
	foreign_close(w->f);
	lease_free(w->lease);
}
