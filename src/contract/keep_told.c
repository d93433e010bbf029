/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What our own store is told of a contract's sweeps. Before a slice the intent is written: how many
 * rows it, or it and a few after it, may remove. With the next intent, what they have removed. At
 * the end of the sweep one event tells the sum. A run that was killed in between is told by the
 * next, as an upper bound.
 */
#include <assert.h>

#include "contract/keep_state.h"

/* On PostgreSQL at unlimited pace one intent is for several slices, since each costs a sync. On
 * SQLite that sync is the pause in which others get the one lock there is. */
#define INTENT_SLICES 8

/* Rows the last intent still allows need no new one. The holds are read anew for every slice. */
static int read_holds(struct keep_worker *w)
{
	struct tx tx;
	int r = tx_begin_read(&tx, worker_engine(w));

	if (r < 0)
		return r;
	r = held_keys_load(&tx, worker_bound(w)->spec.name, &w->held);
	tx_rollback(&tx);
	return r;
}

int worker_intend(struct keep_worker *w, int64_t rows)
{
	bool hurries = w->f->engine == FOREIGN_POSTGRES &&
		       worker_bound(w)->bound->pace.rows_per_second == 0;

	assert(rows > 0 && w->unsettled <= w->intended);
	if (rows <= w->intended - w->unsettled)
		return read_holds(w);
	return worker_settle(w, hurries ? rows * INTENT_SLICES : rows);
}

int worker_settle(struct keep_worker *w, int64_t intend)
{
	struct keep_bound *b = worker_bound(w);
	struct tx tx;
	int r = tx_begin(&tx, worker_engine(w));

	assert(intend >= 0 && w->unsettled <= w->intended); /* never more than was intended */
	if (r == LAPSE_OK && (intend > 0 || w->intended > 0))
		r = kept_bound_intend(&tx, b->spec.name, intend, w->unsettled);
	if (r == LAPSE_OK && intend > 0)
		r = held_keys_load(&tx, b->spec.name, &w->held);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	r = tx_commit(&tx);
	if (r == LAPSE_OK) {
		w->intended = intend;
		w->unsettled = 0;
	}
	return r;
}
static int keep_write_pruned(struct keep_worker *w, struct tx *tx)
{
	struct keep_terms *t = worker_terms(w);
	struct buf CLEANUP(buf_done) data = { 0 };

	assert(w->scheduler->sweep.total > 0 && !w->scheduler->sweep.dry_run);
	json_begin(&data, '{');
	json_put_text(&data, "contract", t->contract->name);
	json_put_text(&data, "scheduler", w->scheduler->def->name);
	json_put_int(&data, "count", w->scheduler->sweep.total);
	json_key(&data, "tables");
	json_begin(&data, '{');
	for (size_t i = 0; i < t->contract->bounds_count; i++)
		if (t->bounds[i].worker == w)
			json_put_int(&data, t->bounds[i].spec.name, t->bounds[i].row->swept);
	json_end(&data, '}');
	json_end(&data, '}');
	int r = event_add_named(tx, "", t->pruned[w->number], &data);
	for (size_t i = 0; r == LAPSE_OK && i < t->contract->bounds_count; i++)
		if (t->bounds[i].worker == w)
			r = kept_bound_told(tx, t->bounds[i].spec.name);
	return r;
}

void worker_tell(struct keep_worker *w)
{
	struct tx tx;
	int r;

	assert(!w->busy && w->state == KEEP_CLOSE);
	if (w->scheduler->sweep.total == 0 || w->scheduler->sweep.dry_run)
		return;
	r = tx_begin(&tx, worker_engine(w));
	if (r == LAPSE_OK)
		r = keep_write_pruned(w, &tx);
	if (r == LAPSE_OK)
		r = tx_commit(&tx);
	else
		tx_rollback(&tx);
	if (r < 0)
		worker_failed(w, r, "lapse's own store failed");
}
static int approve_waiting(struct tx *tx, struct keep_terms *t, bool *ret_any)
{
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < t->contract->bounds_count; i++) {
		struct approval a;
		if (!t->bounds[i].waiting)
			continue;
		*ret_any = true;
		r = approval_give(tx, &tx->arena, t->bounds[i].spec.name, &a);
	}
	return r;
}

int keep_approve(struct keeper *k, bool *ret_any)
{
	struct keep_terms *t = k->terms;
	struct tx tx;
	int r = tx_begin(&tx, k->e);

	*ret_any = false;
	if (r == LAPSE_OK)
		r = approve_waiting(&tx, t, ret_any);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	for (size_t i = 0; *ret_any && i < t->contract->bounds_count; i++) {
		assert(t->bounds[i].row && !t->bounds[i].worker->busy);
		t->bounds[i].before += t->bounds[i].row->swept;
		t->bounds[i].together_before += t->bounds[i].left.together;
	}
	return tx_commit(&tx);
}

/* What a run that ended in the middle removed, and the rows of the slice it was in: an upper bound
 * of what was not told. */
static int recover_bound(struct tx *tx, struct keep_terms *t, struct keep_bound *b)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	struct approval asked = { 0 };
	struct kept_bound kept = { 0 };
	int r = kept_bound_get(tx, b->spec.name, &kept);
	int64_t most = kept.intent_rows + kept.untold;

	assert(b->row && b->worker);
	assert(r < 0 || (kept.intent_rows >= 0 && kept.untold >= 0));
	int asks = approval_get(tx, &tx->arena, b->spec.name, &asked);
	if (r == LAPSE_OK && asks < 0 && asks != LAPSE_ENOTFOUND)
		r = asks;
	b->waiting = asks == LAPSE_OK && asked.given_at == 0;
	if (kept.known && kept.hash == b->hash) /* the history of sweeps knows when */
		b->row->last_success = b->worker->scheduler->last_ended_at;
	if (r < 0 || most == 0)
		return r;
	json_begin(&data, '{');
	json_put_text(&data, "contract", t->contract->name);
	json_put_text(&data, "scheduler", b->spec.scheduler);
	json_put_int(&data, "count", most);
	json_put_bool(&data, "upper_bound", kept.intent_rows > 0);
	json_key(&data, "tables");
	json_begin(&data, '{');
	json_put_int(&data, b->spec.name, most);
	json_end(&data, '}');
	json_end(&data, '}');
	b->row->pruned += most;
	b->recovered = most;
	r = event_add_named(tx, "", t->pruned[b->worker->number], &data);
	return r < 0 ? r : kept_bound_told(tx, b->spec.name);
}

int keep_recover(struct keeper *k, struct keep_terms *terms)
{
	struct tx tx;
	int r = tx_begin(&tx, k->e);

	assert(k->terms == terms && k->workers);
	for (size_t i = 0; r == LAPSE_OK && i < terms->contract->schedulers_count; i++)
		r = schedule_load(k->e, k->workers[i].scheduler);
	for (size_t i = 0; r == LAPSE_OK && i < terms->contract->bounds_count; i++)
		r = recover_bound(&tx, terms, &terms->bounds[i]);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	return tx_commit(&tx);
}
