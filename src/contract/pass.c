/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/pass.h"

#include <assert.h>
#include <string.h>

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
	p->limit = PASS_ROWS_FIRST;
	p->tally.oldest = LAPSE_NEVER;
	p->tally.newest = INT64_MIN;
	if (config->dry)
		p->limit = PASS_ROWS_MAX;
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
			      .limit = p->limit };
}

static bool walks_groups(const struct pass *p)
{
	struct scan s = pass_scan(p);

	return scan_groups(&s)->count > 0;
}

static void forget_position(struct pass *p)
{
	p->has_after = p->finishing = false;
	p->idle = 0;
}

/* The leaf is done: the next one, then the next mode. */
static void next_leaf(struct pass *p)
{
	assert(p->leaf < p->config.rule->relation->leaves_count);
	forget_position(p);
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
	forget_position(p);
	return LAPSE_OK;
}

/* The next page goes on after the row of this time and key; without a key, from this time on. */
static void remember_position(struct pass *p, const struct datum *time, const struct datum *key)
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
		remember_position(p, rows_at(&p->page, rows - 1, SCAN_TIME),
				  rows_at(&p->page, rows - 1, SCAN_KEY));
		p->finishing = false;
	} else if (p->has_group) {
		p->group_done = true;
		forget_position(p);
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
	p->page_limit = p->limit;
	return err;
}

/* Up to twice as many rows, or down to half of them. A page that was not full says nothing about
 * how long more rows take. */
static void adapt(struct pass *p, int64_t rows, lapse_us took)
{
	lapse_us wanted = p->config.rule->bound->pace.slice_ms * 1000;
	int64_t limit = p->limit;

	assert(took >= 0 && wanted > 0);
	if (took > wanted)
		limit = took > 2 * wanted ? limit / 2 : limit * wanted / took;
	else if (rows == p->page_limit)
		limit = took * 2 < wanted ? limit * 2 : limit * wanted / (took + 1);
	p->next_limit = limit < PASS_ROWS_LEAST ? PASS_ROWS_LEAST
			: limit > PASS_ROWS_MAX ? PASS_ROWS_MAX
						: limit;
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
	const lapse_us start =
		clock_mono(&CLOCK_SYSTEM); /* reading locks nothing: it does not count */
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
	adapt(p, (int64_t)p->page.count, clock_mono(&CLOCK_SYSTEM) - start);
	advance(p);
	return LAPSE_OK;
}

/* The same without a page. Fewer rows than asked for: the end is near, or some stayed. Then pages
 * tell. */
static int rows_at_once(struct pass *p, int64_t *ret_removed)
{
	const lapse_us start = clock_mono(&CLOCK_SYSTEM);
	const struct datum *last;
	int err = pass_sweep_at_once(p, ret_removed, &last);

	if (err < 0)
		return err;
	adapt(p, *ret_removed, clock_mono(&CLOCK_SYSTEM) - start);
	if (*ret_removed > 0)
		remember_position(p, last, NULL);
	p->finishing = *ret_removed < p->page_limit;
	return LAPSE_OK;
}

/* A row that is locked takes the page back to the slower way, which skips it. */
static int pass_page(struct pass *p, int64_t *ret_removed, bool *ret_any)
{
	int err = pass_find_group(p, ret_any);

	if (err < 0 || !*ret_any)
		return err;
	if (pass_sweeps_at_once(p)) {
		err = rows_at_once(p, ret_removed);
		if (err != LAPSE_ERETRY)
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
	p->next_limit = p->limit > 1 ? p->limit / 2 : 1;
	if (++p->locks >= PASS_LOCKS_MAX)
		return LAPSE_ERETRY;
	*ret_more = true;
	return LAPSE_OK;
}

/* Pages that remove nothing are cheap: several of them make a slice. */
static int pass_pages(struct pass *p, int64_t *ret_removed, bool *ret_more)
{
	const lapse_us stop =
		time_add(clock_mono(&CLOCK_SYSTEM), p->config.rule->bound->pace.slice_ms * 1000);
	bool any;

	do {
		int err = pass_page(p, ret_removed, &any);
		if (err < 0)
			return after_failure(p, err, ret_more);
		p->locks = 0;
	} while (!p->over && *ret_removed == 0 && clock_mono(&CLOCK_SYSTEM) < stop);
	*ret_more = !p->over;
	return LAPSE_OK;
}

int pass_slice(struct pass *p, int64_t *ret_removed, bool *ret_more)
{
	assert(p->magic == PASS_MAGIC && !p->over);
	*ret_removed = 0;
	*ret_more = false;
	p->tally.slices++;
	p->next_limit = p->limit;
	int err = pass_pages(p, ret_removed, ret_more);
	assert(*ret_removed >= 0 && *ret_removed <= p->limit);
	p->limit = p->next_limit;
	return err;
}
