/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/pass.h"

#include <assert.h>
#include <string.h>

#include "base/json.h"

#define PASS_SAMPLE_MAX 20
#define PASS_MAGIC 0x70617373u

struct pass {
	uint32_t magic;
	struct pass_config config;
	lapse_ms cutoff;
	enum scan_mode mode; /* SCAN_DUE first, then SCAN_EXCESS where there is an `at_most` */
	size_t leaf;

	/* Where it is: the group, and the last row seen of it. Each pair of arenas takes turns,
	 * because the new position is read with the help of the old. */
	bool has_group, group_done, has_after;
	struct datum group[CONTRACT_COLUMNS_MAX];
	struct datum after[CONTRACT_COLUMNS_MAX + 1];
	struct arena group_memory[2], after_memory[2];
	int group_turn, after_turn;

	int64_t limit;      /* of the slice: it removes no more, however many pages it reads */
	int64_t next_limit; /* of the next one */
	int64_t page_limit; /* that of the page at hand */
	int64_t idle;       /* rows in a row that are not due, of a walk by key */
	int locks;          /* slices in a row without a lock */
	bool over;

	struct statement st;
	struct rows page, locked;
	struct pass_tally tally;
	struct buf sample; /* keys of the last page, of a dry pass */
};

/* The rows of a page that go. */
struct chosen {
	size_t *rows; /* numbers of rows of the page */
	size_t count;
	lapse_ms oldest, newest;
};

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

void pass_key_text(const struct rule *r, const struct datum *key, struct buf *out)
{
	size_t n = r->bound->key.count;

	if (n == 1) {
		datum_write(&key[0], out);
		return;
	}
	json_begin(out, '[');
	for (size_t i = 0; i < n; i++) {
		struct buf CLEANUP(buf_done) text = { 0 };
		datum_write(&key[i], &text);
		json_text(out, buf_text(&text));
	}
	json_end(out, ']');
}

static bool key_element(const json_t *j, struct buf *out)
{
	if (json_is_integer(j))
		buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
	else if (json_is_string(j))
		buf_puts(out, json_string_value(j));
	else
		return false;
	return true;
}

int pass_key_parse(const struct rule *r, const char *text, struct buf *out, struct problem *p)
{
	json_t *CLEANUP(json_freep) array = NULL;
	size_t columns = r->bound->key.count;

	if (columns == 1) {
		buf_puts(out, text);
		return LAPSE_OK;
	}
	if (json_parse_array(text, strlen(text), &array, p) < 0 ||
	    json_array_size(array) != columns)
		return problem_set(p, LAPSE_EINVAL, "key",
				   "the key must be a JSON array of %zu values", columns);
	json_begin(out, '[');
	for (size_t i = 0; i < columns; i++) {
		struct buf CLEANUP(buf_done) element = { 0 };
		if (!key_element(json_array_get(array, i), &element))
			return problem_set(p, LAPSE_EINVAL, "key",
					   "a key is made of texts and whole numbers");
		json_text(out, buf_text(&element));
	}
	json_end(out, ']');
	return LAPSE_OK;
}

static const struct datum *page_key(const struct rows *rows, size_t row)
{
	return rows_at(rows, row, SCAN_KEY);
}

static struct scan pass_scan(const struct pass *p)
{
	return (struct scan){ .rule = p->config.rule,
			      .leaf = &p->config.rule->relation->leaves[p->leaf],
			      .mode = p->mode,
			      .cutoff = p->cutoff,
			      .group = p->has_group ? p->group : NULL,
			      .after = p->has_after ? p->after : NULL,
			      .limit = p->limit };
}

static bool walks_groups(const struct pass *p)
{
	struct scan s = pass_scan(p);

	return scan_groups(&s)->count > 0;
}

static void forget_position(struct pass *p)
{
	p->has_after = false;
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

/* The next page goes on after the last row of this one. */
static void remember_position(struct pass *p)
{
	const struct rule *r = p->config.rule;
	size_t last = p->page.count - 1, n = 0;
	struct arena *memory = &p->after_memory[p->after_turn ^= 1];

	assert(p->page.count > 0);
	arena_reset(memory);
	if (r->walk != RULE_BY_KEY || p->mode == SCAN_EXCESS)
		p->after[n++] = datum_copy(memory, rows_at(&p->page, last, SCAN_TIME));
	for (size_t i = 0; i < r->bound->key.count; i++)
		p->after[n++] = datum_copy(memory, rows_at(&p->page, last, SCAN_KEY + i));
	p->has_after = true;
}

static bool is_row_held(const struct pass *p, const struct rows *rows, size_t row)
{
	struct buf CLEANUP(buf_done) key = { 0 };

	if (!p->config.held)
		return false;
	pass_key_text(p->config.rule, page_key(rows, row), &key);
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
	if (is_row_held(p, &p->page, row)) {
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
		    is_row_held(p, &p->locked, i))
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

/* Nothing has to be looked at between the lock and the deletion. */
static bool goes_at_once(const struct pass *p, const struct scan *s)
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

static void pass_count_removed(struct pass *p, const struct chosen *c, int64_t removed,
			       int64_t together)
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

/* The short transaction of a slice. */
static int remove_chosen(struct pass *p, const struct chosen *c, int64_t *ret_removed)
{
	struct foreign *f = p->config.f;
	struct scan s = pass_scan(p);
	int64_t removed = 0, together = 0;
	int err = foreign_begin(f, true);

	if (err == LAPSE_OK && p->config.fence)
		err = p->config.fence(p->config.arg, f);
	if (err == LAPSE_OK && f->engine == FOREIGN_POSTGRES && goes_at_once(p, &s))
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
	err = foreign_commit(f);
	if (err == LAPSE_OK || err == LAPSE_EUNKNOWN)
		*ret_removed = removed;
	if (err < 0)
		return err;
	pass_count_removed(p, c, removed, together);
	return LAPSE_OK;
}

/* Where the pass is after a page. */
static void advance(struct pass *p)
{
	bool by_key = p->config.rule->walk == RULE_BY_KEY && p->mode == SCAN_DUE;

	assert((int64_t)p->page.count <= p->page_limit);
	if ((int64_t)p->page.count == p->page_limit && !(by_key && p->idle >= PASS_WALK_STOP)) {
		remember_position(p);
	} else if (p->has_group) {
		p->group_done = true;
		forget_position(p);
	} else {
		next_leaf(p);
	}
}

/* Reads the next page. *ret_any = false: the walk only moved on to another leaf, or is over. */
static int read_page(struct pass *p, bool *ret_any)
{
	*ret_any = false;
	if (walks_groups(p) && (!p->has_group || p->group_done)) {
		int err = next_group(p);
		if (err < 0 || !p->has_group)
			return err;
	}
	struct scan s = pass_scan(p);
	p->page_limit = p->limit;
	statement_reset(&p->st);
	statement_scan(&p->st, &s);
	*ret_any = true;
	return statement_read(&p->st, p->config.f, &p->page);
}

/* Up to twice as many rows, or down to half of them. A page that was not full says nothing about
 * how long more rows take. */
static void adapt(struct pass *p, lapse_us took)
{
	lapse_us wanted = p->config.rule->bound->pace.slice_ms * 1000;
	int64_t limit = p->limit;

	assert(took >= 0 && wanted > 0);
	if (took > wanted)
		limit = took > 2 * wanted ? limit / 2 : limit * wanted / took;
	else if ((int64_t)p->page.count == p->page_limit)
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
		pass_key_text(p->config.rule, page_key(&p->page, c->rows[i]), &key);
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

/* One page: read, chosen, removed. On failure the pass is where it was. */
static int pass_page(struct pass *p, int64_t *ret_removed, bool *ret_any)
{
	const struct pass_tally before = p->tally;
	const int64_t idle = p->idle;
	struct chosen c;
	int err = read_page(p, ret_any);

	if (err < 0 || !*ret_any)
		return err;
	choose_removals(p, &c);
	const lapse_us start =
		clock_mono(&CLOCK_SYSTEM); /* reading locks nothing: it does not count */
	if (p->config.dry)
		note_chosen(p, &c, ret_removed);
	else if (c.count > 0)
		err = remove_chosen(p, &c, ret_removed);
	free(c.rows);
	if (err < 0) {
		p->tally = before;
		p->idle = idle;
		return err;
	}
	adapt(p, clock_mono(&CLOCK_SYSTEM) - start);
	advance(p);
	return LAPSE_OK;
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
