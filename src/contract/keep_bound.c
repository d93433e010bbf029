/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep of a contract comes to a bound: it is resolved against the catalogue, and what is due is
 * counted where a person may have to approve. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "contract/keep_state.h"

#define COUNT_LIMIT_MS 2000 /* for counting what is due, before asking */

static void work_bound(struct offload *o)
{
	struct keep_worker *w = worker_of(o);

	assert(w->busy && w->f && !w->rule && !w->has_findings && !w->has_count);
	findings_init(&w->findings);
	w->has_findings = true;
	int err = rule_resolve(w->f, worker_bound(w)->bound, &w->findings, &w->rule);
	if (err == LAPSE_OK && w->rule && w->wants_count) {
		err = plan_bound(w->f, w->rule, w->now, COUNT_LIMIT_MS, &w->count);
		w->has_count = err == LAPSE_OK;
	}
	if (err < 0)
		worker_job_failed(w, err, foreign_error(w->f));
}

/* Where the count was cut off, the rest is taken to be as dense as what was counted. */
static int64_t worker_estimate_due(const struct keep_worker *w)
{
	const struct pass_tally *t = &w->count.tally;
	lapse_ms cutoff = rule_cutoff(w->rule, w->now);

	assert(w->has_count && w->rule);
	if (w->count.exact || t->newest <= t->oldest || cutoff <= t->newest)
		return t->removed;
	double share = (double)time_sub(t->newest, t->oldest) / (double)time_sub(cutoff, t->oldest);
	return (int64_t)((double)t->removed / share);
}

static int write_wanted(struct tx *tx, const struct keep_bound *b, int64_t due, int64_t rows)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	assert(due > 0 && b->spec.contract);
	json_begin(&data, '{');
	json_put_text(&data, "contract", b->spec.contract);
	json_put_text(&data, "bound", b->spec.name);
	json_put_int(&data, "due_rows", due);
	json_put_int(&data, "table_rows", rows);
	json_end(&data, '}');
	return event_add(tx, "", EVENT_APPROVAL_WANTED, &data);
}

/* Whether the sweep may go on: it asks for nothing, or was approved. An error leaves the bound for
 * the next tick. */
static int ask_approval(struct keep_worker *w, struct tx *tx, bool *ret_go)
{
	struct keep_bound *b = worker_bound(w);
	struct approval a = { 0 };
	int r = approval_get(tx, &tx->arena, b->spec.name, &a);
	bool wanted = r == LAPSE_OK;

	assert(!w->looking && !w->scheduler->sweep.dry_run);
	if (r < 0 && r != LAPSE_ENOTFOUND)
		return r;
	if (wanted && a.given_at > 0) {
		w->covered = true;
		w->covered_at = a.given_at;
		*ret_go = true;
		return LAPSE_OK;
	}
	int64_t due = w->has_count ? worker_estimate_due(w) : 0;
	*ret_go = !w->has_count || !plan_asks(b->bound, due, w->count.table_rows);
	if (*ret_go)
		return wanted ? approval_done(tx, b->spec.name) : LAPSE_OK;
	b->row->due = due;
	b->row->oldest_due = w->count.tally.oldest;
	r = approval_want(tx, b->spec.name, due, w->count.table_rows);
	return r == LAPSE_OK && !wanted ? write_wanted(tx, b, due, w->count.table_rows) : r;
}

static int ask_first(struct keep_worker *w, bool *ret_go)
{
	struct tx tx;
	int r = tx_begin(&tx, worker_engine(w));

	if (r == LAPSE_OK)
		r = ask_approval(w, &tx, ret_go);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	return tx_commit(&tx);
}

static bool pass_is_held(void *arg, const char *key)
{
	const struct keep_worker *w = arg;

	return key ? held_keys_have(&w->held, key) : held_keys_any(&w->held);
}

static int pass_fence(void *arg, struct foreign *f)
{
	struct keep_worker *w = arg;

	return lease_fence(w->lease, f);
}

/* In a cluster others may have given the slice up: keep_store.h. */
static bool pass_is_late(void *arg)
{
	const struct keep_worker *w = arg;

	return worker_engine(w)->settings->cluster &&
	       clock_mono(&CLOCK_SYSTEM) - w->held_at > SLICE_TRUST_MS * INT64_C(1000);
}

static void worker_begin_pass(struct keep_worker *w)
{
	bool dry = w->scheduler->sweep.dry_run;
	lapse_ms now = w->covered && w->covered_at < w->now ? w->covered_at : w->now;
	struct pass_config config = { .f = w->f,
				      .rule = w->rule,
				      .now = now,
				      .dry = dry,
				      .held = pass_is_held,
				      .fence = dry ? NULL : pass_fence,
				      .late = dry ? NULL : pass_is_late,
				      .arg = w };

	assert(!w->pass);
	worker_bound(w)->expected = w->has_count ? worker_estimate_due(w) : 0;
	w->pass = pass_new(&config);
	w->removed = 0;
	w->more = true;
	worker_bound(w)->row->swept_from = clock_mono(worker_engine(w)->clock);
	w->state = KEEP_SLICE;
}

static const char *first_error(const struct findings *f)
{
	for (const struct finding *i = f->first; i; i = i->next)
		if (i->level == FINDING_ERROR)
			return i->text;
	return "the bound does not check";
}

/* What the matrix tells before the first sweep. */
static void note_look(struct keep_worker *w)
{
	struct keep_bound *b = worker_bound(w);

	assert(w->looking && w->scheduler->sweep.dry_run);
	if (!w->has_count)
		return;
	b->row->due = worker_estimate_due(w);
	b->row->oldest_due = w->count.tally.oldest;
	b->left = w->count.tally;
	b->left.removed = b->left.together = 0; /* it only counted */
	b->problem[0] = '\0';
}

static void done_bound(struct offload *o)
{
	struct keep_worker *w = worker_of(o);
	struct keep_bound *b = worker_bound(w);
	bool go = true;
	int r = LAPSE_OK;

	assert(w->busy && w->state == KEEP_BOUND && !w->pass);
	w->busy = false;
	if (w->job_err < 0) {
		worker_bound_failed(w, w->job_err, w->job_error);
		if (w->job_err == LAPSE_EUNAVAILABLE) {
			worker_forget_bound(w);
			worker_drop_connection(w);
			w->state = KEEP_CLOSE;
			return;
		}
		worker_next_bound(w);
		return;
	}
	if (!w->rule) {
		worker_bound_failed(w, LAPSE_EUNPROCESSABLE, first_error(&w->findings));
		worker_next_bound(w);
		return;
	}
	if (w->rule->relation->rows >= 0)
		b->row->live = w->rule->relation->rows;
	if (w->looking) {
		note_look(w);
		worker_next_bound(w);
		return;
	}
	if (!w->scheduler->sweep.dry_run)
		r = ask_first(w, &go);
	if (r < 0)
		worker_bound_failed(w, r, "lapse's own store failed");
	b->waiting = r == LAPSE_OK && !go;
	if (r < 0 || !go)
		worker_next_bound(w);
	else
		worker_begin_pass(w);
}
void worker_start_bound(struct keep_worker *w)
{
	struct engine *e = worker_engine(w);
	struct contract *c = worker_terms(w)->contract;
	struct kept_bound kept = { 0 };
	struct tx tx;

	assert(!w->busy && !w->pass && !w->rule);
	while (w->at < c->bounds_count &&
	       (keepers_of(e)->winding_down || worker_terms(w)->bounds[w->at].worker != w ||
		guard_in_grace(e->restored_at, c->bounds[w->at].keep, w->trusted)))
		w->at++;
	if (w->at == c->bounds_count) {
		w->state = KEEP_CLOSE;
		return;
	}
	struct keep_bound *b = worker_bound(w);
	int r = tx_begin_read(&tx, e);
	if (r == LAPSE_OK)
		r = kept_bound_get(&tx, b->spec.name, &kept);
	tx_rollback(&tx);
	if (r < 0) {
		worker_bound_failed(w, r, "lapse's own store failed");
		worker_next_bound(w);
		return;
	}
	bool changed = !kept.known || kept.hash != b->hash;
	bool may_ask = b->bound->pace.ask_above_percent < 100 &&
		       (changed || b->bound->is_age || b->bound->at_most.count > 0);
	w->wants_count = w->looking || (!w->scheduler->sweep.dry_run && may_ask);
	worker_job(w, work_bound, done_bound);
}
