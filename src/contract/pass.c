/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/pass.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "contract/pass_state.h"

#define PASS_SAMPLE_MAX 20
#define PASS_MAGIC 0x70617373u

struct pass *pass_new(const struct pass_config *config)
{
	struct pass *p = mem_zalloc(1, sizeof(*p));

	assert(config->f->magic == FOREIGN_MAGIC && config->rule->relation->leaves_count > 0);
	p->magic = PASS_MAGIC;
	p->config = *config;
	p->cutoff = rule_cutoff(config->rule, config->now);
	p->limit = p->cut = PASS_ROWS_FIRST;
	p->yield = (struct yield){ .engine = config->f->engine,
				   .slice_us = config->rule->bound->pace.slice_ms * 1000,
				   .met_at = INT64_MIN };
	p->tally.oldest = LAPSE_NEVER;
	p->tally.newest = INT64_MIN;
	if (config->dry)
		p->limit = p->cut = YIELD_ROWS_MAX;
	statement_init(&p->st, config->rule->dialect);
	rows_init(&p->page);
	rows_init(&p->locked);
	for (int i = 0; i < 2; i++) {
		arena_init(&p->group_memory[i]);
		arena_init(&p->after_memory[i]);
	}
	return p;
}

void pass_free(struct pass *p)
{
	if (!p)
		return;
	assert(p->magic == PASS_MAGIC);
	p->magic = 0;
	statement_done(&p->st);
	buf_done(&p->sample);
	rows_done(&p->page);
	rows_done(&p->locked);
	for (int i = 0; i < 2; i++) {
		arena_done(&p->group_memory[i]);
		arena_done(&p->after_memory[i]);
	}
	free(p);
}

void pass_freep(struct pass **p)
{
	pass_free(*p);
}

int64_t pass_limit(const struct pass *p)
{
	return p->limit;
}

const struct pass_tally *pass_tally(const struct pass *p)
{
	return &p->tally;
}

struct scan pass_scan(const struct pass *p)
{
	return (struct scan){ .rule = p->config.rule,
			      .leaf = &p->config.rule->relation->leaves[p->leaf],
			      .mode = p->mode,
			      .cutoff = p->cutoff,
			      .group = p->has_group ? p->group : NULL,
			      .after = p->has_after ? p->after : NULL,
			      .only_time = p->only_time,
			      .limit = p->page_limit };
}

static bool walks_groups(const struct pass *p)
{
	struct scan s = pass_scan(p);

	return scan_groups(&s)->count > 0;
}

void pass_forget_position(struct pass *p)
{
	p->has_after = p->finishing = false;
	p->idle = 0;
}

/* The leaf is done: the next one, then the next mode. */
static void next_leaf(struct pass *p)
{
	assert(p->leaf < p->config.rule->relation->leaves_count);
	pass_forget_position(p);
	p->has_group = p->group_done = false;
	if (++p->leaf < p->config.rule->relation->leaves_count)
		return;
	p->leaf = 0;
	if (p->mode == SCAN_DUE && p->config.rule->bound->at_most.count)
		p->mode = SCAN_EXCESS;
	else
		p->over = true;
}

/* Moves to the next group of this leaf; the leaf is done when there is none. */
static int next_group(struct pass *p)
{
	struct scan s = pass_scan(p);
	struct arena *memory = &p->group_memory[p->group_turn ^= 1];

	assert(walks_groups(p) && !p->over);
	statement_reset(&p->st);
	statement_next_group(&p->st, &s);
	int err = statement_read(&p->st, p->config.f, &p->locked);
	if (err < 0)
		return err;
	if (p->locked.count == 0) {
		next_leaf(p);
		return LAPSE_OK;
	}
	arena_reset(memory);
	for (size_t i = 0; i < p->locked.columns; i++)
		p->group[i] = datum_copy(memory, rows_at(&p->locked, 0, i));
	p->has_group = true;
	p->group_done = false;
	pass_forget_position(p);
	return LAPSE_OK;
}

void pass_remember_position(struct pass *p, const struct datum *time, const struct datum *key)
{
	const struct rule *r = p->config.rule;
	struct arena *memory = &p->after_memory[p->after_turn ^= 1];
	size_t n = 0;

	arena_reset(memory);
	if (r->walk != RULE_BY_KEY || p->mode == SCAN_EXCESS)
		p->after[n++] = datum_copy(memory, time);
	for (size_t i = 0; key && i < r->bound->key.count; i++)
		p->after[n++] = datum_copy(memory, &key[i]);
	p->has_after = true;
	p->only_time = !key;
}

bool pass_row_is_held(const struct pass *p, const struct rows *rows, size_t row)
{
	struct buf CLEANUP(buf_done) key = { 0 };

	if (!p->config.held)
		return false;
	pass_key_text(p->config.rule, rows_at(rows, row, SCAN_KEY), &key);
	return p->config.held(p->config.arg, buf_text(&key));
}

/* Whether this row of the page goes; says why not in the tally. */
static bool choose_row(struct pass *p, size_t row, lapse_ms *ret_at)
{
	const struct rule *r = p->config.rule;
	bool due = p->mode == SCAN_EXCESS;

	*ret_at = LAPSE_NEVER;
	if (!scan_time(r, &p->page, row, ret_at)) {
		p->tally.unreadable++;
		return false;
	}
	bool timely = rule_is_due(r, *ret_at, p->cutoff);
	if (p->config.dry && p->mode == SCAN_EXCESS && timely)
		return false; /* a real pass would have removed it before */
	due = due || timely;
	p->idle = due ? 0 : p->idle + 1;
	if (!due)
		return false;
	if (!rows_true(&p->page, row, SCAN_ALLOWED)) {
		p->tally.protected_++;
		return false;
	}
	if (pass_row_is_held(p, &p->page, row)) {
		p->tally.held++;
		return false;
	}
	return true;
}

static void choose_removals(struct pass *p, struct chosen *ret)
{
	ret->count = 0;
	ret->oldest = LAPSE_NEVER;
	ret->newest = INT64_MIN;
	ret->rows = mem_zalloc(p->page.count + 1, sizeof(*ret->rows));
	for (size_t i = 0; i < p->page.count; i++) {
		lapse_ms at;
		if (!choose_row(p, i, &at))
			continue;
		ret->rows[ret->count++] = i;
		ret->oldest = at < ret->oldest ? at : ret->oldest;
		ret->newest = at > ret->newest ? at : ret->newest;
	}
}

/* Where the pass is after a page. */
static void advance(struct pass *p)
{
	bool by_key = p->config.rule->walk == RULE_BY_KEY && p->mode == SCAN_DUE;
	size_t rows = p->page.count;

	assert((int64_t)rows <= p->page_limit);
	if ((int64_t)rows == p->page_limit && !(by_key && p->idle >= PASS_WALK_STOP)) {
		pass_remember_position(p, rows_at(&p->page, rows - 1, SCAN_TIME),
				       rows_at(&p->page, rows - 1, SCAN_KEY));
		p->finishing = false;
	} else if (p->has_group) {
		p->group_done = true;
		pass_forget_position(p);
	} else {
		next_leaf(p);
	}
}

/* Finds the group that the next page is of. *ret_any = false: the walk only moved on to another
 * leaf, or is over. */
static int pass_find_group(struct pass *p, bool *ret_any)
{
	int err = LAPSE_OK;

	if (walks_groups(p) && (!p->has_group || p->group_done)) {
		err = next_group(p);
		*ret_any = err == LAPSE_OK && p->has_group;
	} else {
		*ret_any = true;
	}
	return err;
}

void pass_note_cut(struct pass *p, int64_t rows)
{
	const lapse_us now = clock_mono(&CLOCK_SYSTEM), took = now - p->cut_from;
	bool full = rows == p->page_limit && p->page_limit == p->cut;

	yield_note(&p->yield, p->config.f->met_writer, now);
	p->cut = yield_rows(p->cut, full, took, yield_cut_us(&p->yield, now));
	p->rest_us = rows > 0 ? yield_rest_us(&p->yield, took, now) : 0;
}

bool pass_is_lazy(struct pass *p)
{
	bool lazy = yield_is_giving_way(&p->yield, clock_mono(&CLOCK_SYSTEM));

	p->unsynced = p->unsynced || lazy;
	return lazy;
}

/* What the database has to do anyway is done in the rest. */
void pass_rest(struct pass *p)
{
	const lapse_us until = time_add(clock_mono(&CLOCK_SYSTEM), p->rest_us);

	if (!p->config.f->in_transaction)
		foreign_tidy(p->config.f);
	lapse_us left = p->rest_us > 0 ? until - clock_mono(&CLOCK_SYSTEM) : 0;
	p->rest_us = 0;
	if (left > 0)
		usleep((useconds_t)left);
}

/* A dry pass: as if all of them went. */
static void note_chosen(struct pass *p, const struct chosen *c, int64_t *ret_removed)
{
	buf_clear(&p->sample);
	for (size_t i = 0; i < c->count && i < PASS_SAMPLE_MAX; i++) {
		struct buf CLEANUP(buf_done) key = { 0 };
		pass_key_text(p->config.rule, rows_at(&p->page, c->rows[i], SCAN_KEY), &key);
		buf_printf(&p->sample, "%s\n", buf_text(&key));
	}
	pass_count_removed(p, c, (int64_t)c->count, 0);
	*ret_removed = (int64_t)c->count;
}

void pass_sample(const struct pass *p, size_t max, struct buf *out)
{
	const char *text = buf_text(&p->sample);

	for (size_t i = 0; i < max && *text; i++) {
		const char *end = strchr(text, '\n');
		buf_add(out, text, (size_t)(end - text) + 1);
		text = end + 1;
	}
}

static int read_page(struct pass *p)
{
	struct scan s = pass_scan(p);

	statement_reset(&p->st);
	statement_scan(&p->st, &s);
	return statement_read(&p->st, p->config.f, &p->page);
}

/* One page: read, chosen, removed. On failure the pass is where it was. */
static int page_by_rows(struct pass *p, int64_t *ret_removed)
{
	const struct pass_tally before = p->tally;
	const int64_t idle = p->idle;
	struct chosen c;
	int err = read_page(p);

	if (err < 0)
		return err;
	choose_removals(p, &c);
	p->cut_from = clock_mono(&CLOCK_SYSTEM); /* reading locks nothing: it does not count */
	if (p->config.dry)
		note_chosen(p, &c, ret_removed);
	else if (c.count > 0)
		err = pass_remove_chosen(p, &c, ret_removed);
	free(c.rows);
	if (err < 0) {
		p->tally = before;
		p->idle = idle;
		return err;
	}
	pass_note_cut(p, (int64_t)p->page.count);
	advance(p);
	return LAPSE_OK;
}

/* A row that is locked takes the page back to the slower way, which skips it. */
static int pass_page(struct pass *p, int64_t *ret_removed, bool *ret_any)
{
	int err = pass_find_group(p, ret_any);

	if (err < 0 || !*ret_any)
		return err;
	if (pass_sweeps_at_once(p)) {
		bool swept;
		err = pass_sweep_at_once(p, ret_removed, &swept);
		if (err < 0 || swept)
			return err;
	} else if (p->wary > 0) {
		p->wary--;
	}
	return page_by_rows(p, ret_removed);
}

/* A lock that was not granted is tried again with the same page, a few times. */
static int after_failure(struct pass *p, int err, bool *ret_more)
{
	if (err != LAPSE_ERETRY)
		return err;
	p->tally.locks++;
	p->cut = p->cut > 1 ? p->cut / 2 : 1;
	if (++p->locks >= PASS_LOCKS_MAX)
		return LAPSE_ERETRY;
	*ret_more = true;
	return LAPSE_OK;
}

/* Pages that remove nothing are cheap: several of them make a slice. So do several cuts, with a
 * rest after each, while the pass gives way to others. */
static int pass_pages(struct pass *p, int64_t *ret_removed, bool *ret_more)
{
	const lapse_us stop = time_add(clock_mono(&CLOCK_SYSTEM), p->yield.slice_us);
	bool any, enough;

	do {
		int64_t removed = 0;
		p->room = p->limit - *ret_removed;
		p->page_limit = p->cut < p->room ? p->cut : p->room;
		int err = pass_page(p, &removed, &any);
		*ret_removed += removed;
		if (err < 0)
			return after_failure(p, err, ret_more);
		p->locks = 0;
		pass_rest(p);
		lapse_us now = clock_mono(&CLOCK_SYSTEM);
		enough = *ret_removed == p->limit || now >= stop ||
			 (*ret_removed > 0 && !yield_is_giving_way(&p->yield, now));
	} while (!p->over && !enough);
	*ret_more = !p->over;
	return LAPSE_OK;
}

/* While giving way, a slice has several cuts: each slice costs lapse's own store a sync. */
static int64_t next_limit(const struct pass *p)
{
	bool gives_way = yield_is_giving_way(&p->yield, clock_mono(&CLOCK_SYSTEM));
	int64_t limit = gives_way ? p->cut * YIELD_CUTS : p->cut;

	return limit < YIELD_ROWS_MAX ? limit : YIELD_ROWS_MAX;
}

/* What the pass removed is on disk before its end is told. */
int pass_slice(struct pass *p, int64_t *ret_removed, bool *ret_more)
{
	assert(p->magic == PASS_MAGIC && !p->over);
	*ret_removed = 0;
	*ret_more = false;
	p->tally.slices++;
	int err = pass_pages(p, ret_removed, ret_more);
	assert(*ret_removed >= 0 && *ret_removed <= p->limit);
	if (err == LAPSE_OK && p->over && p->unsynced)
		err = foreign_flush(p->config.f);
	p->limit = p->config.dry ? YIELD_ROWS_MAX : next_limit(p);
	return err;
}
