/* SPDX-License-Identifier: Apache-2.0 */
/* The terms of a contract: what one reading of its file says, as bounds and schedulers of the
 * engine. */
#include <assert.h>
#include <string.h>

#include "contract/keep_state.h"

void terms_release(struct keep_terms *t)
{
	assert(t->refs > 0);
	if (--t->refs > 0)
		return;
	for (size_t i = 0; i < t->contract->bounds_count; i++) {
		free(t->bounds[i].due_when);
		free(t->bounds[i].safety_rule);
	}
	for (size_t i = 0; i < t->contract->schedulers_count; i++) {
		free(t->failed[i]);
		free(t->pruned[i]);
	}
	free(t->failed);
	free(t->pruned);
	free(t->bounds);
	free(t->defs);
	contract_free(t->contract);
	free(t);
}

static struct keep_bound *bound_of(const struct bound_spec *spec)
{
	return (struct keep_bound *)(uintptr_t)CONTAINER_OF(spec, struct keep_bound, spec);
}

static void release_spec(const struct bound_spec *spec)
{
	struct keep_bound *b = bound_of(spec);

	assert(b->row);
	b->row = NULL;
	terms_release(b->terms);
}

/* A key of several columns has one form, whatever spaces it was written with. */
static int name_key(const struct bound_spec *spec, const char *key, struct buf *out,
		    struct problem *p)
{
	struct rule rule = { .bound = bound_of(spec)->bound };

	return pass_key_parse(&rule, key, out, p);
}

static int64_t slice_of(const struct bound_spec *spec)
{
	const struct keep_worker *w = bound_of(spec)->worker;

	return w ? w->slice : 0;
}

static const char *slice_wakes(const struct bound_spec *spec)
{
	return spec->scheduler;
}

static int slices_of(struct tx *tx, const struct bound_spec *spec, struct bound_slices *ret)
{
	ret->count = 0;
	return tx->engine->cluster.on ? slices_under_way(tx, spec->name, ret) : LAPSE_OK;
}

static void write_state(const struct bound_spec *spec, struct buf *out)
{
	const struct keep_bound *b = bound_of(spec);

	json_put_bool(out, "waits_for_approval", b->waiting);
	json_put_text(out, "problem", b->problem[0] ? b->problem : NULL);
}

static void left_over(const struct bound_spec *spec, struct bound_kept *ret)
{
	const struct pass_tally *left = &bound_of(spec)->left;

	*ret = (struct bound_kept){ .held = left->held,
				    .protected_ = left->protected_,
				    .unreadable = left->unreadable,
				    .locked = left->skipped };
}

static bool waits_for_approval(const struct bound_spec *spec)
{
	return bound_of(spec)->waiting;
}

static int64_t allowed_pace(const struct bound_spec *spec)
{
	return bound_of(spec)->bound->pace.rows_per_second;
}

void keep_bound_write(const struct keep_bound *b, struct buf *out)
{
	assert(b->left.held >= 0 && b->left.protected_ >= 0 && b->left.unreadable >= 0);
	write_state(&b->spec, out);
	json_key(out, "undeletable");
	json_begin(out, '{');
	json_put_int(out, "unreadable", b->left.unreadable);
	json_put_int(out, "held", b->left.held);
	json_put_int(out, "protected", b->left.protected_);
	json_put_int(out, "locked", b->left.skipped);
	json_end(out, '}');
}

static const struct bound_elsewhere ELSEWHERE = { .name_key = name_key,
						  .slice = slice_of,
						  .waits_for = slice_wakes,
						  .slices = slices_of,
						  .write = write_state,
						  .kept = left_over,
						  .waits = waits_for_approval,
						  .allowed = allowed_pace };

static char *describe_due(const struct contract_bound *b)
{
	struct buf out = { 0 };

	buf_printf(&out, "%s %s now%s", b->time_column, b->inclusive ? "<=" : "<",
		   b->is_age ? " - window" : "");
	return buf_take(&out);
}

static void describe_filter(struct buf *out, const struct contract_filter *f)
{
	buf_printf(out, "%s%s is %s", out->len ? "; " : "Only where ", f->column,
		   f->negated ? "not " : "");
	for (size_t i = 0; i < f->count; i++)
		buf_printf(out, "%s%s", i ? " or " : "",
			   f->values[i].text ? f->values[i].text : "null");
}

static char *describe_safety(const struct contract_bound *b)
{
	struct buf out = { 0 };

	for (size_t i = 0; i < b->only_count; i++)
		describe_filter(&out, &b->only[i]);
	for (size_t i = 0; i < b->unless_count; i++)
		buf_printf(&out, "%snot while %s refers to it", out.len ? "; " : "",
			   b->unless[i].table);
	if (b->keep_newest.count)
		buf_printf(&out, "%snever the newest %lld", out.len ? "; " : "",
			   (long long)b->keep_newest.count);
	if (out.len == 0)
		buf_puts(&out, "Only rows that are due.");
	return buf_take(&out);
}

static void fill_bound(struct keep_terms *t, size_t i)
{
	struct keep_bound *b = &t->bounds[i];
	const struct contract_bound *c = &t->contract->bounds[i];
	const struct contract_scheduler *s = t->contract->schedulers;

	while (strcmp(s->name, c->scheduler) != 0)
		s++;
	b->terms = t;
	b->bound = c;
	b->hash = (int64_t)(contract_bound_hash(t->contract, c) | 1); /* 0 = never swept */
	b->due_when = describe_due(c);
	b->safety_rule = describe_safety(c);
	b->spec = (struct bound_spec){ .name = c->name,
				       .scheduler = s->full_name,
				       .contract = t->contract->name,
				       .bounded_by = c->time_column,
				       .due_when = b->due_when,
				       .safety_rule = b->safety_rule,
				       .action = "delete row",
				       .paths = PATH_SWEEP,
				       .table = c->table,
				       .time = c->time_column,
				       .window_ms = c->keep,
				       .holdable = true,
				       .elsewhere = &ELSEWHERE,
				       .release = release_spec };
}

static char *event_name_of(const char *scheduler, const char *what)
{
	struct buf out = { 0 };

	buf_printf(&out, "%s.%s", scheduler, what);
	return buf_take(&out);
}

struct keep_terms *terms_new(struct contract *c)
{
	struct keep_terms *t = mem_zalloc(1, sizeof(*t));

	assert(c->bounds_count > 0 && c->schedulers_count > 0); /* contract_read() has seen to it */
	t->contract = c;
	t->refs = 1;
	t->bounds = mem_zalloc(c->bounds_count, sizeof(*t->bounds));
	t->defs = mem_zalloc(c->schedulers_count, sizeof(*t->defs));
	t->failed = mem_zalloc(c->schedulers_count, sizeof(*t->failed));
	t->pruned = mem_zalloc(c->schedulers_count, sizeof(*t->pruned));
	for (size_t i = 0; i < c->schedulers_count; i++) {
		t->failed[i] = event_name_of(c->schedulers[i].name, "lifecycle_tick_failed");
		t->pruned[i] = event_name_of(c->schedulers[i].name, "lifecycle_pruned");
		t->defs[i] = (struct scheduler_def){ .name = c->schedulers[i].full_name,
						     .interval_ms = c->schedulers[i].every,
						     .failed = t->failed[i] };
	}
	for (size_t i = 0; i < c->bounds_count; i++)
		fill_bound(t, i);
	return t;
}
void terms_carry_totals(const struct keep_terms *from, struct keep_terms *to)
{
	assert(from != to);
	for (size_t i = 0; i < to->contract->bounds_count; i++)
		for (size_t j = 0; j < from->contract->bounds_count; j++)
			if (strcmp(to->bounds[i].spec.name, from->bounds[j].spec.name) == 0)
				to->bounds[i].left.removed =
					from->bounds[j].row ? from->bounds[j].row->pruned : 0;
}
