/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the rows of a page go, in one short transaction.
 *
 * SQLite: by key; the transaction is the only one that writes. PostgreSQL: the rows are locked, and
 * a second statement with a newer snapshot deletes those that the whole rule still allows.
 * contract/pass_sweep.c has the shorter way for rules that need nothing but the row itself.
 */
#include <assert.h>

#include "contract/pass_state.h"

static void put_chosen_places(const struct pass *p, const struct chosen *c, struct buf *out)
{
	array_begin(out);
	for (size_t i = 0; i < c->count; i++)
		array_add(out, rows_text(&p->page, c->rows[i], SCAN_PLACE));
	array_end(out);
}

/* PostgreSQL: locks the chosen rows that still match; their places and texts become arrays. A place
 * can have been reused, so due and held are judged again by what is there now. */
static int lock_rows(struct pass *p, const struct scan *s, const struct chosen *c,
		     struct buf *places, struct buf *times, int64_t *ret_count)
{
	struct buf CLEANUP(buf_done) wanted = { 0 };
	lapse_ms at;

	assert(c->count > 0 && p->config.f->in_transaction);
	put_chosen_places(p, c, &wanted);
	statement_reset(&p->st);
	statement_lock(&p->st, s, buf_text(&wanted));
	int err = statement_run(&p->st, p->config.f, &p->locked);
	if (err < 0)
		return err;
	array_begin(places);
	array_begin(times);
	*ret_count = 0;
	for (size_t i = 0; i < p->locked.count; i++) {
		if (!scan_time(s->rule, &p->locked, i, &at) ||
		    (s->mode == SCAN_DUE && !rule_is_due(s->rule, at, p->cutoff)) ||
		    pass_row_is_held(p, &p->locked, i))
			continue;
		array_add(places, rows_text(&p->locked, i, SCAN_PLACE));
		array_add(times, rows_text(&p->locked, i, SCAN_TIME));
		++*ret_count;
	}
	array_end(places);
	array_end(times);
	return LAPSE_OK;
}

/* Rows of other tables go first. If a row of ours stays all the same, because what protects it came
 * between two statements, everything is undone: LAPSE_ERETRY. */
static int remove_places(struct pass *p, const struct scan *s, const struct chosen *c,
			 int64_t *ret_removed, int64_t *ret_together)
{
	struct buf CLEANUP(buf_done) places = { 0 };
	struct buf CLEANUP(buf_done) times = { 0 };
	const struct contract_bound *b = s->rule->bound;
	bool judged = s->rule->time == RULE_TIME_JUDGED && s->mode == SCAN_DUE;
	struct foreign *f = p->config.f;
	int64_t count = 0;
	int err = lock_rows(p, s, c, &places, &times, &count);

	if (err < 0 || count == 0)
		return err;
	for (size_t i = 0; err == LAPSE_OK && i < b->together_count; i++) {
		statement_reset(&p->st);
		statement_together_places(&p->st, s, &b->together[i], buf_text(&places));
		err = statement_run(&p->st, f, &p->locked);
		*ret_together += p->locked.changed;
	}
	if (err < 0)
		return err;
	statement_reset(&p->st);
	statement_remove_places(&p->st, s, buf_text(&places), judged ? buf_text(&times) : NULL);
	err = statement_run(&p->st, f, &p->locked);
	if (err < 0)
		return err;
	*ret_removed = p->locked.changed;
	assert(*ret_removed <= count);
	return b->together_count && *ret_removed < count ? LAPSE_ERETRY : LAPSE_OK;
}

bool pass_is_plain(const struct pass *p, const struct scan *s)
{
	return s->mode == SCAN_DUE && rule_is_plain(s->rule) &&
	       !(p->config.held && p->config.held(p->config.arg, NULL));
}

static int remove_plain(struct pass *p, const struct scan *s, const struct chosen *c,
			int64_t *ret_removed)
{
	struct buf CLEANUP(buf_done) places = { 0 };

	assert(p->config.f->in_transaction && c->count > 0);
	put_chosen_places(p, c, &places);
	statement_reset(&p->st);
	statement_remove_plain(&p->st, s, buf_text(&places));
	int err = statement_run(&p->st, p->config.f, &p->locked);
	if (err == LAPSE_OK)
		*ret_removed = p->locked.changed;
	return err;
}

/* SQLite: in the one transaction that writes. Rows of other tables go before the rows they belong
 * to. */
static int remove_some(struct pass *p, const struct scan *s, const struct page_rows *rows,
		       int64_t *ret_removed, int64_t *ret_together)
{
	const struct contract_bound *b = s->rule->bound;
	int err = LAPSE_OK;

	for (size_t i = 0; err == LAPSE_OK && i < b->together_count; i++) {
		statement_reset(&p->st);
		statement_together_rows(&p->st, s, &b->together[i], rows);
		err = statement_run(&p->st, p->config.f, &p->locked);
		*ret_together += p->locked.changed;
	}
	if (err < 0)
		return err;
	statement_reset(&p->st);
	statement_remove_rows(&p->st, s, rows);
	err = statement_run(&p->st, p->config.f, &p->locked);
	if (err < 0)
		return err;
	assert(p->locked.changed <= (int64_t)rows->count);
	*ret_removed += p->locked.changed;
	return b->together_count && p->locked.changed < (int64_t)rows->count ? LAPSE_ERETRY
									     : LAPSE_OK;
}

static int remove_keys(struct pass *p, const struct scan *s, const struct chosen *c,
		       int64_t *ret_removed, int64_t *ret_together)
{
	size_t most = page_rows_max(s->rule);
	int err = LAPSE_OK;

	for (size_t i = 0; err == LAPSE_OK && i < c->count; i += most) {
		struct page_rows rows = { .page = &p->page,
					  .rows = &c->rows[i],
					  .count = c->count - i < most ? c->count - i : most };
		err = remove_some(p, s, &rows, ret_removed, ret_together);
	}
	return err;
}

void pass_count_removed(struct pass *p, const struct chosen *c, int64_t removed, int64_t together)
{
	struct pass_tally *t = &p->tally;

	assert(removed >= 0 && removed <= (int64_t)c->count && together >= 0);
	t->removed += removed;
	t->together += together;
	t->skipped += (int64_t)c->count - removed;
	if (removed > 0 && c->oldest < t->oldest)
		t->oldest = c->oldest;
	if (removed > 0 && c->newest > t->newest)
		t->newest = c->newest;
}

int pass_commit(struct pass *p)
{
	if (!p->config.late || !p->config.late(p->config.arg))
		return foreign_commit(p->config.f);
	foreign_rollback(p->config.f);
	return LAPSE_EPRECONDITION;
}

/* The short transaction of a slice. */
int pass_remove_chosen(struct pass *p, const struct chosen *c, int64_t *ret_removed)
{
	struct foreign *f = p->config.f;
	struct scan s = pass_scan(p);
	int64_t removed = 0, together = 0;
	int err = foreign_begin_removal(f, 0, pass_is_lazy(p));

	p->cut_from = clock_mono(&CLOCK_SYSTEM); /* what waits for us waits from here */
	if (err == LAPSE_OK && p->config.fence)
		err = p->config.fence(p->config.arg, f);
	if (err == LAPSE_OK && f->engine == FOREIGN_POSTGRES && pass_is_plain(p, &s))
		err = remove_plain(p, &s, c, &removed);
	else if (err == LAPSE_OK && f->engine == FOREIGN_POSTGRES)
		err = remove_places(p, &s, c, &removed, &together);
	else if (err == LAPSE_OK)
		err = remove_keys(p, &s, c, &removed, &together);
	if (err < 0) {
		foreign_rollback(f);
		return err;
	}
	assert(removed <= (int64_t)c->count);
	err = pass_commit(p);
	if (err == LAPSE_OK || err == LAPSE_EUNKNOWN)
		*ret_removed = removed;
	if (err < 0)
		return err;
	pass_count_removed(p, c, removed, together);
	return LAPSE_OK;
}
