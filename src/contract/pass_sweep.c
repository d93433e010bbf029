/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How rows go without a page, for a plain rule (rule_is_plain()): it needs nothing but the row
 * itself, so no row has to travel.
 *
 * PostgreSQL judges a row that changed meanwhile again before it deletes it. So one statement
 * chooses rows and deletes them. It waits SWEEP_LOCK_MS for a row that a writer has locked; then
 * everything is undone, and the next pages lock first and skip what is locked. While the pass gives
 * way, one transaction has several such statements with a rest after each: beginning and ending it
 * takes as long as deleting hundreds of rows.
 *
 * SQLite has one lock for the whole file, so only the deletion itself is inside it. Where a range
 * of as many rows as wanted ends is looked up before, and one statement deletes the range, which
 * holds the lock for two thirds as long as deleting by key does.
 */
#include <assert.h>

#include "contract/pass_state.h"

#define SWEEP_LOCK_MS 20    /* less than a slice: who waits for us is not held up longer */
#define SWEEP_OPEN_US 20000 /* one transaction with several statements, at most */
#define WARY_PAGES_MIN 8    /* after a lock that was not granted */
#define WARY_PAGES_MAX 512  /* after many of them */

bool pass_sweeps_at_once(const struct pass *p)
{
	struct scan s = pass_scan(p);

	return !p->config.dry && !p->finishing && p->wary == 0 && statement_can_sweep(&s) &&
	       pass_is_plain(p, &s);
}

/* The next pages go row by row: the more often that was needed, the more of them. */
static void become_wary(struct pass *p)
{
	int pages = p->wary_next < WARY_PAGES_MIN ? WARY_PAGES_MIN : p->wary_next;

	p->wary = pages;
	p->wary_next = pages * 2 < WARY_PAGES_MAX ? pages * 2 : WARY_PAGES_MAX;
}

static lapse_ms swept_time(const struct rule *r, const struct rows *rows, size_t column)
{
	int64_t unit = r->time == RULE_TIME_INT && r->unit == TIME_S ? 1000 : 1, at;

	if (__builtin_mul_overflow(rows_int(rows, 0, column), unit, &at))
		at = rows_int(rows, 0, column) < 0 ? INT64_MIN : LAPSE_NEVER;
	return at;
}

static int begin_sweep(struct pass *p)
{
	int err = foreign_begin_removal(p->config.f, SWEEP_LOCK_MS, pass_is_lazy(p));

	p->cut_from = clock_mono(&CLOCK_SYSTEM);
	if (err == LAPSE_OK && p->config.fence)
		err = p->config.fence(p->config.arg, p->config.f);
	return err;
}

static int end_sweep(struct pass *p, int err, const struct chosen *gone, int64_t *ret_removed)
{
	if (err < 0) {
		foreign_rollback(p->config.f);
		return err;
	}
	err = pass_commit(p);
	if (err == LAPSE_OK || err == LAPSE_EUNKNOWN)
		*ret_removed = (int64_t)gone->count;
	if (err == LAPSE_OK) {
		p->wary_next /= 2;
		pass_count_removed(p, gone, (int64_t)gone->count, 0);
	}
	return err;
}

/* One statement on PostgreSQL. Fewer rows than asked for: the end is near, or some stayed. Then
 * pages tell. */
static int sweep_some(struct pass *p, struct chosen *gone)
{
	struct scan s = pass_scan(p);

	statement_reset(&p->st);
	statement_sweep(&p->st, &s);
	int err = statement_run(&p->st, p->config.f, &p->page);
	if (err < 0)
		return err;
	assert(p->page.count == 1);
	int64_t removed = rows_int(&p->page, 0, SWEPT_REMOVED);
	lapse_ms oldest = swept_time(s.rule, &p->page, SWEPT_OLDEST);
	lapse_ms newest = swept_time(s.rule, &p->page, SWEPT_NEWEST);
	assert(removed >= 0 && removed <= p->page_limit);
	p->finishing = removed < p->page_limit;
	if (removed == 0)
		return LAPSE_OK;
	gone->count += (size_t)removed;
	gone->oldest = oldest < gone->oldest ? oldest : gone->oldest;
	gone->newest = newest > gone->newest ? newest : gone->newest;
	pass_remember_position(p, rows_at(&p->page, 0, SWEPT_LAST), NULL);
	return LAPSE_OK;
}

/* PostgreSQL: statements with a rest after each, in one transaction. */
static int sweep_statements(struct pass *p, int64_t *ret_removed, bool *ret_swept)
{
	struct chosen gone = { .oldest = LAPSE_NEVER, .newest = INT64_MIN };
	const lapse_us open_us =
		p->yield.slice_us < SWEEP_OPEN_US ? p->yield.slice_us : SWEEP_OPEN_US;
	const lapse_us stop = time_add(clock_mono(&CLOCK_SYSTEM), open_us);
	int err = begin_sweep(p);

	*ret_swept = true;
	while (err == LAPSE_OK) {
		err = sweep_some(p, &gone);
		if (err == LAPSE_ERETRY)
			become_wary(p);
		if (err < 0)
			break;
		pass_note_cut(p, p->finishing ? 0 : p->page_limit);
		int64_t left = p->room - (int64_t)gone.count;
		const lapse_us now = clock_mono(&CLOCK_SYSTEM);
		if (p->finishing || left == 0 || p->rest_us == 0 || now + p->rest_us >= stop)
			break;
		pass_rest(p);
		p->page_limit = p->cut < left ? p->cut : left;
		p->cut_from = clock_mono(&CLOCK_SYSTEM);
	}
	if (err < 0 && gone.count > 0)
		pass_forget_position(p); /* it was reached by statements that are undone now */
	err = end_sweep(p, err, &gone, ret_removed);
	*ret_swept = err != LAPSE_ERETRY;
	return err == LAPSE_ERETRY ? LAPSE_OK : err;
}

/* SQLite: a range, if it ends somewhere, and if it still has no more rows than were counted. */
static int sweep_range(struct pass *p, int64_t *ret_removed, bool *ret_swept)
{
	struct scan s = pass_scan(p);
	struct chosen gone = { 0 };

	statement_reset(&p->st);
	statement_edge(&p->st, &s);
	int err = statement_read(&p->st, p->config.f, &p->page);
	if (err < 0)
		return err;
	p->finishing = p->page.count == 0;
	*ret_swept = !p->finishing && rows_at(&p->page, 0, EDGE_NEWEST)->kind != DATUM_NULL;
	if (!*ret_swept)
		return LAPSE_OK;
	gone.oldest = swept_time(s.rule, &p->page, EDGE_OLDEST);
	gone.newest = swept_time(s.rule, &p->page, EDGE_NEWEST);
	err = begin_sweep(p);
	if (err == LAPSE_OK) {
		statement_reset(&p->st);
		statement_sweep_below(&p->st, &s, rows_at(&p->page, 0, EDGE_TIME));
		err = statement_run(&p->st, p->config.f, &p->locked);
	}
	if (err == LAPSE_OK && p->locked.changed > p->page_limit) {
		foreign_rollback(p->config.f);
		*ret_swept = false;
		return LAPSE_OK;
	}
	gone.count = err == LAPSE_OK ? (size_t)p->locked.changed : 0;
	err = end_sweep(p, err, &gone, ret_removed);
	if (err < 0)
		return err;
	pass_note_cut(p, p->page_limit);
	pass_remember_position(p, rows_at(&p->page, 0, EDGE_TIME), NULL);
	return LAPSE_OK;
}

int pass_sweep_at_once(struct pass *p, int64_t *ret_removed, bool *ret_swept)
{
	assert(pass_sweeps_at_once(p));
	return p->config.f->engine == FOREIGN_POSTGRES ? sweep_statements(p, ret_removed, ret_swept)
						       : sweep_range(p, ret_removed, ret_swept);
}
