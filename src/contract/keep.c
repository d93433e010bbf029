/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts under care: how they come, change and go. Their sweeps are in keep_sweep.c. */
#include "contract/keep.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "contract/keep_state.h"

struct keepers *keepers_of(const struct engine *e)
{
	struct keepers *k = engine_room(e, ROOM_CONTRACT);

	assert(k && k->magic == KEEPERS_MAGIC);
	return k;
}

/* Putting terms in force */

static int add_workers(struct keeper *k, struct keep_terms *t)
{
	const struct contract *c = t->contract;

	assert(!k->workers);
	k->workers = mem_zalloc(c->schedulers_count, sizeof(*k->workers));
	for (size_t i = 0; i < c->schedulers_count; i++) {
		struct keep_worker *w = &k->workers[i];
		w->keeper = k;
		w->number = i;
		int r = schedule_add(k->e, &t->defs[i], worker_begin, &w->scheduler);
		if (r < 0)
			return r;
		w->lease = lease_new(t->defs[i].name, k->holder, c->database);
	}
	for (size_t i = 0; i < c->bounds_count; i++)
		for (size_t j = 0; j < c->schedulers_count; j++)
			if (strcmp(c->schedulers[j].name, c->bounds[i].scheduler) == 0)
				t->bounds[i].worker = &k->workers[j];
	return LAPSE_OK;
}

static int add_contract_bounds(struct keeper *k, struct keep_terms *t, struct problem *p)
{
	for (size_t i = 0; i < t->contract->bounds_count; i++) {
		struct keep_bound *b = &t->bounds[i];
		int r = matrix_add(k->e, &b->spec, &b->row, p);
		if (r < 0)
			return r;
		t->refs++;
	}
	return LAPSE_OK;
}

/* What of the old terms goes: their bounds, their workers, and schedulers that are in none. */
static void take_out(struct keeper *k, const struct contract *stays)
{
	struct keep_terms *t = k->terms;
	size_t n = t->contract->schedulers_count;

	for (size_t i = 0; i < t->contract->bounds_count; i++)
		if (t->bounds[i].row)
			matrix_remove(k->e, t->bounds[i].row);
	for (size_t i = 0; i < n; i++) {
		struct scheduler *s = k->workers[i].scheduler;
		bool kept = false;
		for (size_t j = 0; s && stays && j < stays->schedulers_count; j++)
			kept = kept || strcmp(stays->schedulers[j].full_name, s->def->name) == 0;
		if (s && !kept)
			schedule_remove(k->e, s);
		worker_done(&k->workers[i]);
	}
	free(k->workers);
	k->workers = NULL;
}

static int put_in(struct keeper *k, struct keep_terms *t, struct problem *p)
{
	int r = add_workers(k, t);

	assert(t->refs > 0);
	if (r < 0)
		problem_set(p, r, NULL, "there are too many schedulers");
	if (r == LAPSE_OK)
		r = add_contract_bounds(k, t, p);
	k->terms = t;
	return r == LAPSE_OK ? keep_recover(k, t) : r;
}

static int contract_announce(struct keeper *k, enum event_kind kind, const char *why)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	struct tx tx;
	int r = tx_begin(&tx, k->e);

	json_begin(&data, '{');
	json_put_text(&data, "contract", k->terms->contract->name);
	json_put_int(&data, "bounds", (int64_t)k->terms->contract->bounds_count);
	if (why)
		json_put_text(&data, "reason", why);
	json_end(&data, '}');
	if (r == LAPSE_OK)
		r = event_add(&tx, "", kind, &data);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	log_message(k->e->log, why ? LOG_ERROR : LOG_INFO, event_name(kind), "%s%s%s",
		    k->terms->contract->name, why ? ": " : "", why ? why : "");
	return tx_commit(&tx);
}

static const char *keep_environment(const char *name)
{
	return getenv(name);
}

static void keeper_free(struct keeper *k)
{
	if (!k)
		return;
	if (k->workers)
		for (size_t i = 0; i < k->terms->contract->schedulers_count; i++)
			worker_done(&k->workers[i]);
	free(k->workers);
	if (k->terms)
		terms_release(k->terms);
	if (k->next)
		terms_release(k->next);
	if (k->is_checked)
		checked_done(&k->checked);
	buf_done(&k->error);
	free(k->file);
	free(k);
}

int keep_add(struct engine *e, const char *file, struct buf *error)
{
	struct keepers *all = keepers_of(e);
	struct problem p = { 0 };
	struct contract *c = NULL;
	int r = contract_read(file, keep_environment, &c, error);

	assert(all->count <= KEEPERS_MAX);
	if (r < 0)
		return r;
	if (keep_find(e, c->name) || all->count == KEEPERS_MAX) {
		buf_printf(error, "%s: %s", file,
			   all->count == KEEPERS_MAX ? "there are too many contracts"
						     : "another contract has this name");
		contract_free(c);
		return LAPSE_EINVAL;
	}
	struct keeper *k = mem_zalloc(1, sizeof(*k));
	k->e = e;
	k->file = mem_strdup(file);
	snprintf(k->holder, sizeof(k->holder), "%lld-%d", (long long)clock_wall(e->system),
		 (int)getpid());
	r = put_in(k, terms_new(c), &p);
	if (r == LAPSE_OK)
		r = contract_announce(k, EVENT_CONTRACT_LOADED, NULL);
	all->all[all->count++] = k;
	if (r < 0)
		buf_printf(error, "%s: %s", file, problem_text(&p, r));
	return r;
}

/* Reload */

static void reload_refused(struct keeper *k, const char *why)
{
	buf_clear(&k->error);
	buf_puts(&k->error, why);
	contract_announce(k, EVENT_CONTRACT_REFUSED, why);
}

static void work_reload(struct offload *o)
{
	struct keeper *k = CONTAINER_OF(o, struct keeper, reload);
	struct foreign *CLEANUP(foreign_closep) f = NULL;

	assert(k->reloading && !k->is_checked);
	if (contract_connect(k->next->contract, &f, &k->error) < 0)
		return;
	if (contract_check(f, k->next->contract, clock_wall(&CLOCK_SYSTEM), &k->checked) < 0) {
		buf_puts(&k->error, foreign_error(f));
		return;
	}
	k->is_checked = true;
	for (const struct finding *i = k->checked.findings.first; i; i = i->next)
		if (i->level == FINDING_ERROR && k->error.len == 0)
			buf_printf(&k->error, "%s:%d:%d: %s", k->file, i->line, i->column, i->text);
}

static void done_reload(struct offload *o)
{
	struct keeper *k = CONTAINER_OF(o, struct keeper, reload);

	assert(k->reloading && k->next);
	k->reloading = false;
	if (k->error.len == 0)
		return; /* the next tick without a sweep puts it in force */
	terms_release(k->next);
	k->next = NULL;
	contract_announce(k, EVENT_CONTRACT_REFUSED, buf_text(&k->error));
}

static void start_reload(struct keeper *k)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	struct contract *c = NULL;

	if (k->reloading || k->next)
		return;
	if (contract_read(k->file, keep_environment, &c, &error) < 0) {
		reload_refused(k, buf_text(&error));
		return;
	}
	if (strcmp(c->name, k->terms->contract->name) != 0) {
		reload_refused(k, "the name of a contract cannot change while it is kept");
		contract_free(c);
		return;
	}
	buf_clear(&k->error);
	if (k->is_checked)
		checked_done(&k->checked);
	k->is_checked = false;
	k->next = terms_new(c);
	k->reloading = true;
	k->reload = (struct offload){ .engine = k->e, .work = work_reload, .done = done_reload };
	offload_start(k->e, &k->reload);
}

void keep_reload(struct engine *e)
{
	struct keepers *all = keepers_of(e);

	for (size_t i = 0; i < all->count; i++)
		start_reload(all->all[i]);
}

static bool is_sweeping(const struct keeper *k)
{
	for (size_t i = 0; i < k->terms->contract->schedulers_count; i++)
		if (k->workers[i].scheduler->running)
			return true;
	return false;
}

/* The first look: what is due, before the first sweep. */

static void look_done(struct sweep_request *r, int err, const struct sweep *result)
{
	(void)r, (void)err, (void)result; /* the worker has noted what it saw */
}

static void keeper_look(struct keeper *k)
{
	for (size_t i = 0; i < k->terms->contract->schedulers_count; i++) {
		struct keep_worker *w = &k->workers[i];
		w->look = (struct sweep_request){ .dry_run = true, .done = look_done };
		schedule_request(k->e, w->scheduler, &w->look); /* too many: then without */
	}
}

void keep_look(struct engine *e)
{
	struct keepers *all = keepers_of(e);

	all->looks = true;
	for (size_t i = 0; i < all->count; i++)
		keeper_look(all->all[i]);
}

static void swap_terms(struct keeper *k)
{
	struct keep_terms *old = k->terms, *next = k->next;
	struct problem p = { 0 };

	assert(!is_sweeping(k) && next);
	terms_carry_totals(old, next);
	take_out(k, next->contract);
	k->next = NULL;
	int r = put_in(k, next, &p);
	for (size_t i = 0; i < next->contract->bounds_count; i++)
		if (next->bounds[i].row) {
			next->bounds[i].row->pruned += next->bounds[i].left.removed;
			next->bounds[i].left.removed = 0;
		}
	terms_release(old);
	if (r < 0)
		reload_refused(k, problem_text(&p, r));
	else
		contract_announce(k, EVENT_CONTRACT_LOADED, NULL);
	if (r == LAPSE_OK && keepers_of(k->e)->looks)
		keeper_look(k);
}

/* The room */

static int keepers_load(struct tx *tx)
{
	struct keepers *all = mem_zalloc(1, sizeof(*all));

	all->magic = KEEPERS_MAGIC;
	engine_set_room(tx->engine, ROOM_CONTRACT, all);
	return LAPSE_OK;
}

static void keepers_tick(struct engine *e)
{
	struct keepers *all = keepers_of(e);

	for (size_t i = 0; i < all->count && !all->stopping; i++) {
		struct keeper *k = all->all[i];
		if (k->next && !k->reloading && !is_sweeping(k))
			swap_terms(k);
		for (size_t j = 0; j < k->terms->contract->schedulers_count; j++)
			worker_step(&k->workers[j]);
	}
}

static lapse_us keepers_next_us(const struct engine *e)
{
	const struct keepers *all = keepers_of(e);
	lapse_us next = INT64_MAX;

	for (size_t i = 0; i < all->count && !all->stopping; i++) {
		const struct keeper *k = all->all[i];
		if (k->next && !k->reloading && !is_sweeping(k))
			return 0;
		for (size_t j = 0; j < k->terms->contract->schedulers_count; j++) {
			lapse_us in = worker_next_us(&k->workers[j]);
			next = in < next ? in : next;
		}
	}
	return next;
}

static void keepers_stop(struct engine *e)
{
	struct keepers *all = keepers_of(e);

	all->stopping = true;
	for (size_t i = 0; i < all->count; i++)
		for (size_t j = 0; j < all->all[i]->terms->contract->schedulers_count; j++)
			worker_stop(&all->all[i]->workers[j]);
}

static void keepers_done(struct engine *e)
{
	struct keepers *all = engine_room(e, ROOM_CONTRACT);

	if (!all)
		return;
	engine_set_room(e, ROOM_CONTRACT, NULL);
	for (size_t i = 0; i < all->count; i++)
		keeper_free(all->all[i]);
	free(all);
}

const struct room CONTRACT_ROOM = {
	.id = ROOM_CONTRACT,
	.load = keepers_load,
	.tick = keepers_tick,
	.next_us = keepers_next_us,
	.stop = keepers_stop,
	.done = keepers_done,
};

void keep_wind_down(struct engine *e)
{
	keepers_of(e)->winding_down = true;
}
