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

/* In a cluster the same transaction notes that a slice begins. A hold that is placed afterwards,
 * through any replica, finds the note and waits. */
static int load_holds(struct keep_worker *w, struct tx *tx)
{
	const char *bound = worker_bound(w)->spec.name;
	int r = tx->engine->cluster.on ? slice_note_begun(tx, bound) : LAPSE_OK;

	return r < 0 ? r : held_keys_load(tx, bound, &w->held);
}

/* Rows the last intent still allows need no new one. The holds are read anew for every slice. */
static int read_holds(struct keep_worker *w)
{
	struct engine *e = worker_engine(w);
	struct tx tx;
	int r = e->cluster.on ? tx_begin(&tx, e) : tx_begin_read(&tx, e);

	if (r < 0)
		return r;
	r = load_holds(w, &tx);
	if (r == LAPSE_OK && tx.write)
		return tx_commit(&tx);
	tx_rollback(&tx);
	return r;
}

/* When this fails, others wait until the slice must be over. */
void worker_slice_over(struct keep_worker *w)
{
	struct engine *e = worker_engine(w);
	struct tx tx;

	assert(!w->busy && w->slice == 0);
	if (!e->cluster.on || w->scheduler->sweep.dry_run)
		return;
	int r = tx_begin(&tx, e);
	if (r == LAPSE_OK)
		r = slice_note_ended(&tx, worker_bound(w)->spec.name);
	if (r == LAPSE_OK)
		tx_commit_lazy(&tx);
	else
		tx_rollback(&tx);
}

int worker_intend(struct keep_worker *w, int64_t rows)
{
	bool hurries = w->f->engine == FOREIGN_POSTGRES &&
		       worker_bound(w)->bound->pace.rows_per_second == 0;

	assert(rows > 0 && w->unsettled <= w->intended);
	w->held_at = clock_mono(&CLOCK_SYSTEM);
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
		r = load_holds(w, &tx);
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
 * of what was not told. It is told now; the memory follows in commit_recovered(). */
static int tell_left_over(struct tx *tx, struct keep_terms *t, struct keep_bound *b,
			  const struct kept_bound *kept)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	int64_t most = kept->intent_rows + kept->untold;

	assert(b->row && b->worker);
	assert(kept->intent_rows >= 0 && kept->untold >= 0);
	if (most == 0)
		return LAPSE_OK;
	json_begin(&data, '{');
	json_put_text(&data, "contract", t->contract->name);
	json_put_text(&data, "scheduler", b->spec.scheduler);
	json_put_int(&data, "count", most);
	json_put_bool(&data, "upper_bound", kept->intent_rows > 0);
	json_key(&data, "tables");
	json_begin(&data, '{');
	json_put_int(&data, b->spec.name, most);
	json_end(&data, '}');
	json_end(&data, '}');
	b->recovering = most;
	int r = event_add_named(tx, "", t->pruned[b->worker->number], &data);
	return r < 0 ? r : kept_bound_told(tx, b->spec.name);
}

static int commit_recovered(struct tx *tx, struct keep_terms *t, int err)
{
	if (err < 0)
		tx_rollback(tx);
	else
		err = tx_commit(tx);
	for (size_t i = 0; i < t->contract->bounds_count; i++) {
		struct keep_bound *b = &t->bounds[i];
		if (err == LAPSE_OK) {
			b->row->pruned += b->recovering;
			b->recovered += b->recovering;
		}
		b->recovering = 0;
	}
	return err;
}

/* At a start. In a cluster another replica may be in the middle of a sweep: what is not told yet is
 * left to it, or to the replica that takes its lease. */
static int recover_bound(struct tx *tx, struct keep_terms *t, struct keep_bound *b)
{
	struct approval asked = { 0 };
	struct kept_bound kept = { 0 };
	int r = kept_bound_get(tx, b->spec.name, &kept);

	if (r < 0)
		return r;
	int asks = approval_get(tx, &tx->arena, b->spec.name, &asked);
	if (asks < 0 && asks != LAPSE_ENOTFOUND)
		return asks;
	b->waiting = asks == LAPSE_OK && asked.given_at == 0;
	if (kept.known && kept.hash == b->hash) /* the history of sweeps knows when */
		b->row->last_success = b->worker->scheduler->last_ended_at;
	return tx->engine->cluster.on ? LAPSE_OK : tell_left_over(tx, t, b, &kept);
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
	return commit_recovered(&tx, terms, r);
}

int worker_recover(struct keep_worker *w)
{
	struct keep_terms *t = worker_terms(w);
	struct tx tx;
	int r = tx_begin(&tx, worker_engine(w));

	assert(!w->busy && !w->scheduler->sweep.dry_run);
	for (size_t i = 0; r == LAPSE_OK && i < t->contract->bounds_count; i++) {
		struct kept_bound kept = { 0 };
		if (t->bounds[i].worker != w)
			continue;
		r = kept_bound_get(&tx, t->bounds[i].spec.name, &kept);
		if (r == LAPSE_OK)
			r = tell_left_over(&tx, t, &t->bounds[i], &kept);
	}
	r = commit_recovered(&tx, t, r);
	if (r == LAPSE_OK)
		w->intended = w->unsettled = 0; /* of a sweep whose end could not be written */
	return r;
}
