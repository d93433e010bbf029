/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts under care, for the doors: names, states, progress and results. */
#include <assert.h>
#include <string.h>

#include "contract/keep_state.h"
#include "contract/report.h"

struct keeper *keep_find(const struct engine *e, const char *name)
{
	struct keepers *all = keepers_of(e);

	for (size_t i = 0; i < all->count; i++)
		if (strcmp(all->all[i]->terms->contract->name, name) == 0)
			return all->all[i];
	return NULL;
}

size_t keep_count(const struct engine *e)
{
	return keepers_of(e)->count;
}

static struct keep_bound *find_bound(const struct engine *e, const char *name)
{
	struct keepers *all = keepers_of(e);

	for (size_t i = 0; i < all->count; i++)
		for (size_t j = 0; j < all->all[i]->terms->contract->bounds_count; j++)
			if (strcmp(all->all[i]->terms->bounds[j].spec.name, name) == 0)
				return &all->all[i]->terms->bounds[j];
	return NULL;
}

bool keep_has_bound(const struct engine *e, const char *bound)
{
	return find_bound(e, bound) != NULL;
}

static void write_bound(const struct keep_bound *b, struct buf *out)
{
	json_begin(out, '{');
	json_put_text(out, "bound", b->spec.name);
	json_put_text(out, "table", b->spec.table);
	json_put_text(out, "scheduler", b->spec.scheduler);
	json_put_int(out, "pruned_total", b->row ? b->row->pruned : 0);
	keep_bound_write(b, out);
	json_end(out, '}');
}

static void write_lease(const struct keep_worker *w, struct buf *out)
{
	json_begin(out, '{');
	json_put_text(out, "scheduler", w->scheduler->def->name);
	json_put_int(out, "fencing_token", w->busy ? 0 : lease_token(w->lease));
	json_put_bool(out, "sweeping", w->scheduler->running);
	json_end(out, '}');
}

void keep_write(const struct engine *e, size_t i, struct buf *out)
{
	const struct keeper *k = keepers_of(e)->all[i];
	const struct keep_terms *t = k->terms;

	assert(i < keep_count(e));
	json_begin(out, '{');
	json_put_text(out, "name", t->contract->name);
	json_put_text(out, "database", report_engine(t->contract));
	json_put_text(out, "refused", k->error.len ? buf_text(&k->error) : NULL);
	json_key(out, "bounds");
	json_begin(out, '[');
	for (size_t j = 0; j < t->contract->bounds_count; j++)
		write_bound(&t->bounds[j], out);
	json_end(out, ']');
	json_key(out, "leases");
	json_begin(out, '[');
	for (size_t j = 0; j < t->contract->schedulers_count; j++)
		write_lease(&k->workers[j], out);
	json_end(out, ']');
	json_end(out, '}');
}

void keep_write_waiting(const struct engine *e, struct buf *out)
{
	struct keepers *all = keepers_of(e);

	for (size_t i = 0; i < all->count; i++)
		for (size_t j = 0; j < all->all[i]->terms->contract->bounds_count; j++)
			if (all->all[i]->terms->bounds[j].waiting)
				buf_printf(out, "%s%s", out->len ? ", " : "",
					   all->all[i]->terms->bounds[j].spec.name);
}

void keep_approved(struct engine *e, const char *bound)
{
	struct keep_bound *b = find_bound(e, bound);

	if (b && b->worker)
		b->worker->scheduler->next_at = clock_mono(e->clock);
}

void keep_progress(const struct keeper *k, int64_t *ret_removed, int64_t *ret_expected)
{
	*ret_removed = *ret_expected = 0;
	for (size_t i = 0; i < k->terms->contract->bounds_count; i++) {
		const struct keep_bound *b = &k->terms->bounds[i];
		*ret_removed += b->row->swept;
		*ret_expected += b->expected > b->row->swept ? b->expected : b->row->swept;
	}
}

struct scheduler *keep_scheduler(const struct keeper *k, size_t i)
{
	return i < k->terms->contract->schedulers_count ? k->workers[i].scheduler : NULL;
}

bool keep_write_result(const struct keeper *k, struct buf *out)
{
	const struct keep_terms *t = k->terms;
	int64_t removed = 0, unsure = 0;
	bool all = true;

	assert(t && t->bounds);
	json_begin(out, '{');
	json_put_text(out, "contract", t->contract->name);
	json_key(out, "data");
	json_begin(out, '[');
	for (size_t i = 0; i < t->contract->bounds_count; i++) {
		const struct keep_bound *b = &t->bounds[i];
		json_begin(out, '{');
		json_put_text(out, "bound", b->spec.name);
		json_put_int(out, "removed", b->before + b->row->swept);
		json_put_int(out, "together", b->together_before + b->left.together);
		json_put_int(out, "earlier_at_most", b->recovered);
		keep_bound_write(b, out);
		json_end(out, '}');
		removed += b->before + b->row->swept;
		unsure += b->recovered;
		all = all && !b->waiting && !b->problem[0];
	}
	json_end(out, ']');
	json_put_int(out, "removed", removed);
	json_put_int(out, "earlier_at_most", unsure);
	json_end(out, '}');
	return all;
}
