/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/why.h"

#include <assert.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/eventlog.h"
#include "engine/housekeeping.h"

/* Rules */

static const char *const STATES[] = {
	[WHY_LIVE] = "live",
	[WHY_DUE] = "due",
	[WHY_HELD] = "held",
	[WHY_PROTECTED] = "protected",
	[WHY_REFERENCED] = "referenced",
	[WHY_KEPT] = "kept",
};

const char *why_state_name(enum why_state state)
{
	assert(state < ARRAY_LEN(STATES));
	return STATES[state];
}

enum why_state why_judge(const struct why_facts *f, lapse_ms now, lapse_ms *ret_goes_at)
{
	lapse_ms deadline = f->time == LAPSE_NEVER ? LAPSE_NEVER : time_add(f->time, f->window);
	bool due = f->op == DUE_AT ? deadline <= now : deadline < now;

	*ret_goes_at = LAPSE_NEVER;
	if (!f->allowed)
		return WHY_PROTECTED;
	if (deadline == LAPSE_NEVER)
		return WHY_KEPT;
	if (f->held_until > now) {
		*ret_goes_at = f->held_until > deadline ? f->held_until : deadline;
		return WHY_HELD;
	}
	if (f->referenced)
		return WHY_REFERENCED;
	*ret_goes_at = deadline;
	return due ? WHY_DUE : WHY_LIVE;
}

/* Members whose texts describe an event and name nothing. */
static bool why_is_description(const char *name, size_t n)
{
	static const char *const members[] = { "type",  "reason", "table",    "kind",
					       "error", "state",  "scheduler" };

	for (size_t i = 0; i < ARRAY_LEN(members); i++)
		if (strlen(members[i]) == n && memcmp(members[i], name, n) == 0)
			return true;
	return false;
}

/* The member that the text at `at` is the value of is a description. */
static bool why_describes(const char *data, const char *at)
{
	if (at - data < 3 || at[-1] != ':' || at[-2] != '"')
		return false;
	const char *end = at - 2, *start = end;
	while (start > data && start[-1] != '"')
		start--;
	return why_is_description(start, (size_t)(end - start));
}

bool why_mentions(const char *data, const char *quoted)
{
	size_t n = strlen(quoted);

	assert(n >= 2 && quoted[0] == '"' && quoted[n - 1] == '"');
	for (const char *at = data; (at = strstr(at, quoted)); at++)
		if (at[n] != ':' && (at == data || at[-1] != '\\') && !why_describes(data, at))
			return true;
	return false;
}

/* Rows */

enum { COLUMN_ID, COLUMN_TIME, COLUMN_ALLOWED, COLUMN_FREE, COLUMN_REF, COLUMN_NAMES };

static size_t why_columns_count(const char *const *columns)
{
	size_t n = 0;

	while (columns && columns[n])
		n++;
	return n;
}

/* The key as clients know it: its id, its one name, or an array of its names. */
static const char *why_key(struct why *w, const struct bound_spec *s, const struct db_query *q)
{
	struct buf CLEANUP(buf_done) names = { 0 };
	char id[BOUND_KEY_TEXT_MAX];
	size_t n = why_columns_count(s->named_by);

	if (n == 1)
		return arena_strdup(w->arena, db_text(q, COLUMN_NAMES));
	if (n == 0) {
		(s->format_key ? s->format_key : id_format)(db_int(q, COLUMN_ID), id);
		return arena_strdup(w->arena, id);
	}
	json_begin(&names, '[');
	for (size_t i = 0; i < n; i++)
		json_text(&names, db_text(q, COLUMN_NAMES + (int)i));
	json_end(&names, ']');
	return arena_strdup(w->arena, buf_text(&names));
}

static const struct db_stmt HOLD_OF = {
	"SELECT reason, until, placed_at FROM holds WHERE tbl = $1 AND ref = $2 AND until > $3 "
	"ORDER BY until DESC LIMIT 1"
};

static int why_find_hold(struct why *w, struct db *db, struct why_thing *t, int64_t ref)
{
	const struct bound_spec *s = t->bound->spec;
	struct db_query CLEANUP(db_finish) q = db_query(db, &HOLD_OF);

	db_bind_text(&q, 1, s->held_as ? s->held_as : s->name);
	db_bind_int(&q, 2, ref);
	db_bind_int(&q, 3, w->now);
	int r = db_step(&q);
	if (r <= 0)
		return r;
	t->hold = (struct hold){ .reason = arena_strdup(w->arena, db_text(&q, 0)),
				 .until = db_int(&q, 1),
				 .placed_at = db_int(&q, 2) };
	t->facts.held_until = t->hold.until;
	return LAPSE_OK;
}

static void why_read_thing(struct why *w, const struct bound *b, const struct db_query *q,
			   struct why_thing *ret)
{
	const struct bound_spec *s = b->spec;
	size_t names = why_columns_count(s->named_by), shown = why_columns_count(s->shown);

	*ret = (struct why_thing){ .bound = b, .id = db_int(q, COLUMN_ID) };
	ret->key = why_key(w, s, q);
	ret->facts = (struct why_facts){
		.time = db_is_null(q, COLUMN_TIME) ? LAPSE_NEVER : db_int(q, COLUMN_TIME),
		.window = bound_window(b),
		.op = s->op,
		.allowed = db_int(q, COLUMN_ALLOWED) == 1,
		.referenced = db_int(q, COLUMN_FREE) == 0,
	};
	ret->shown = arena_alloc(w->arena, (shown + 1) * sizeof(*ret->shown));
	for (size_t i = 0; i < shown; i++) {
		const char *text = db_text(q, COLUMN_NAMES + (int)(names + i));
		ret->shown[i] = arena_strdup(w->arena, text ? text : "");
	}
}

/* Two bounds may have rows of one table: the one that lets the row go speaks for it, and otherwise
 * the later one. */
static void why_add_thing(struct why *w, const struct why_thing *t)
{
	const char *table = bound_table(t->bound->spec);

	for (size_t i = 0; i < w->things_count; i++) {
		struct why_thing *other = &w->things[i];
		if (other->id != t->id || strcmp(bound_table(other->bound->spec), table) != 0)
			continue;
		if (t->facts.allowed || !other->facts.allowed)
			*other = *t;
		return;
	}
	if (w->things_count < WHY_THINGS_MAX)
		w->things[w->things_count++] = *t;
}

/* Binds the names of the row; false = the query cannot be a name of this bound's rows. */
static bool why_bind_names(struct why *w, struct db_query *q, const struct bound_spec *s)
{
	size_t n = why_columns_count(s->named_by);
	json_t *CLEANUP(json_freep) parts = NULL;
	int64_t id;

	if (n == 0) {
		if (!(s->parse_key ? s->parse_key : id_parse)(w->query, &id))
			return false;
		db_bind_int(q, 2, id);
		return true;
	}
	if (n == 1) {
		db_bind_text(q, 2, w->query);
		return true;
	}
	parts = json_loads(w->query, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_array(parts) || json_array_size(parts) != n)
		return false;
	for (size_t i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(parts, i));
		if (!text)
			return false;
		db_bind_text(q, (int)i + 2, arena_strdup(w->arena, text));
	}
	return true;
}

static int why_read_things(struct why *w, struct db *db, const struct bound *b, struct db_query *q)
{
	struct why_thing t;
	int r;

	while ((r = db_step(q)) > 0) {
		why_read_thing(w, b, q, &t);
		r = why_find_hold(w, db, &t, db_int(q, COLUMN_REF));
		if (r < 0)
			return r;
		why_add_thing(w, &t);
	}
	return r;
}

static int why_look_at_bound(struct why *w, struct db *db, const struct bound *b)
{
	int r = LAPSE_OK;

	if (b->spec == &EVENT_BOUND)
		return LAPSE_OK; /* an event tells of things and is none */
	if (b->sql.look.sql) {
		struct db_query CLEANUP(db_finish) q = db_query(db, &b->sql.look);
		db_bind_text(&q, 1, w->owner);
		if (why_bind_names(w, &q, b->spec))
			r = why_read_things(w, db, b, &q);
	}
	if (r == LAPSE_OK && b->sql.look_by.sql) {
		struct db_query CLEANUP(db_finish) q = db_query(db, &b->sql.look_by);
		db_bind_text(&q, 1, w->owner);
		db_bind_text(&q, 2, w->query);
		r = why_read_things(w, db, b, &q);
	}
	return r;
}

static int why_look_at_rows(struct why *w, struct db *db)
{
	for (size_t i = 0; i < w->bounds->n; i++) {
		int r = why_look_at_bound(w, db, w->bounds->rows[i].bound);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

/* Events */

#define STRETCH_ROWS 20000 /* a few milliseconds, for which others wait for the reader */

/* Removals of batches name no row. These are the ones that were met last on the way back, from
 * which the one that took the thing is told. */
#define BATCHES_KEPT 256

struct event_walk {
	struct why *why;
	const char *needles[WHY_THINGS_MAX + 1]; /* as JSON writes them */
	size_t needles_count;
	struct why_event batches[BATCHES_KEPT];
	size_t batches_met;
	int64_t looked, before;
};

static const char *why_quote(struct arena *arena, const char *text)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	json_text(&out, text);
	return arena_strdup(arena, buf_text(&out));
}

static void gather_needles(struct event_walk *walk)
{
	const struct why *w = walk->why;

	walk->needles[walk->needles_count++] = why_quote(w->arena, w->query);
	for (size_t i = 0; i < w->things_count; i++)
		if (strcmp(w->things[i].key, w->query) != 0)
			walk->needles[walk->needles_count++] =
				why_quote(w->arena, w->things[i].key);
	assert(walk->needles_count <= ARRAY_LEN(walk->needles));
}

static bool is_mentioned(const struct event_walk *walk, const char *data)
{
	for (size_t i = 0; i < walk->needles_count; i++)
		if (why_mentions(data, walk->needles[i]))
			return true;
	return false;
}

static struct why_event why_keep_event(const struct why *w, const struct event_row *row,
				       const char *data)
{
	return (struct why_event){ .seq = row->seq,
				   .at = row->at,
				   .kind = arena_strdup(w->arena, row->kind),
				   .data = arena_strdup(w->arena, data) };
}

static bool meet_event(void *arg, const struct event_row *row)
{
	struct event_walk *walk = arg;
	struct why *w = walk->why;

	w->events_from = row->at;
	walk->before = row->seq;
	walk->looked++;
	if (strcmp(row->owner, w->owner) != 0 && !(w->engine_too && !row->owner[0]))
		return true;
	const char *data = event_row_data(row);
	if (is_mentioned(walk, data))
		w->events[w->events_count++] = why_keep_event(w, row, data);
	else if (strstr(data, "\"oldest\":"))
		walk->batches[walk->batches_met++ % BATCHES_KEPT] = why_keep_event(w, row, data);
	return w->events_count < WHY_EVENTS_MAX;
}

static int why_look_at_stretch(struct event_walk *walk, struct db *db, int64_t floor,
			       bool *ret_more)
{
	const struct event_stretch s = { .after = floor - 1,
					 .upto = walk->before - 1,
					 .limit = STRETCH_ROWS,
					 .newest_first = true };
	int64_t end = walk->before;
	int r = eventlog_walk(walk->why->engine, db, &s, meet_event, walk, &end);

	*ret_more = end > floor;
	return r;
}

/* The reader is given back after each stretch: others wait for it, too. */
static int why_look_at_events(struct event_walk *walk)
{
	struct why *w = walk->why;
	int64_t floor = id_floor(time_sub(w->now, w->engine->settings->event_keep_ms));
	bool more = true;
	int r = LAPSE_OK;

	walk->before = INT64_MAX;
	while (r == LAPSE_OK && more && w->events_count < WHY_EVENTS_MAX &&
	       walk->looked < WHY_EVENTS_LOOKED) {
		struct db *db = store_take_reader(w->engine->store);
		r = why_look_at_stretch(walk, db, floor, &more);
		store_give_reader(w->engine->store, db);
	}
	w->more_events = more;
	return r;
}

static lapse_ms why_oldest_of(const char *data)
{
	json_t *CLEANUP(json_freep) json = json_loads(data, 0, NULL);
	const char *text = json_string_value(json_object_get(json, "oldest"));
	lapse_ms at;

	return text && time_parse(text, &at) ? at : LAPSE_NEVER;
}

static bool why_same_room(const char *a, const char *b)
{
	size_t n = strcspn(a, ".");

	return strcspn(b, ".") == n && memcmp(a, b, n) == 0;
}

/* The thing is gone and no event of a removal names it: the first batch of its room after it was
 * last seen, with a row as old as it, is the one. */
static void infer_removal(const struct event_walk *walk)
{
	struct why *w = walk->why;
	size_t kept = walk->batches_met < BATCHES_KEPT ? walk->batches_met : BATCHES_KEPT;

	if (w->things_count > 0 || w->events_count == 0)
		return;
	const struct why_event last = w->events[0], first = w->events[w->events_count - 1];
	for (size_t i = 0; i < kept; i++) {
		size_t at = (walk->batches_met - 1 - i) % BATCHES_KEPT; /* the oldest first */
		const struct why_event *b = &walk->batches[at];
		if (b->seq < last.seq || !why_same_room(b->kind, first.kind) ||
		    why_oldest_of(b->data) > first.at)
			continue;
		memmove(&w->events[1], &w->events[0], w->events_count * sizeof(w->events[0]));
		w->events[0] = *b;
		w->events[0].inferred = true;
		w->events_count++;
		return;
	}
}

/* The whole */

void why_begin(struct why *w, struct engine *e, struct arena *arena, const char *owner,
	       const char *query, bool engine_too)
{
	*w = (struct why){ .engine = e,
			   .arena = arena,
			   .owner = owner,
			   .query = query,
			   .engine_too = engine_too,
			   .now = clock_wall(e->clock),
			   .events_from = LAPSE_NEVER };
	w->bounds = matrix_count_begin(e, arena, NULL, w->now);
}

void why_look(struct why *w)
{
	struct event_walk *walk = mem_zalloc(1, sizeof(*walk));
	struct db *db = store_take_reader(w->engine->store);

	assert(w->bounds && w->things_count == 0 && w->events_count == 0);
	w->err = why_look_at_rows(w, db);
	store_give_reader(w->engine->store, db);
	walk->why = w;
	gather_needles(walk);
	if (w->err == LAPSE_OK)
		w->err = why_look_at_events(walk);
	if (w->err == LAPSE_OK)
		infer_removal(walk);
	free(walk);
}

void why_judge_all(struct why *w)
{
	assert(w->bounds && w->err == LAPSE_OK);
	for (size_t i = 0; i < w->things_count; i++) {
		struct why_thing *t = &w->things[i];
		const struct bound_memory *m = t->bound->spec->memory;
		if (m && m->time_of)
			m->time_of(w->engine, w->owner, t->key, &t->facts.time);
		t->state = why_judge(&t->facts, w->now, &t->goes_at);
	}
	for (size_t i = 0, n = w->events_count; i < n / 2; i++) {
		struct why_event newer = w->events[i];
		w->events[i] = w->events[n - 1 - i];
		w->events[n - 1 - i] = newer;
	}
}

void why_end(struct why *w)
{
	assert(w->bounds);
	w->bounds = NULL;
	matrix_count_end(w->engine);
}

void why_write_sentence(const struct why_thing *t, struct buf *out)
{
	const struct bound_spec *s = t->bound->spec;

	switch (t->state) {
	case WHY_LIVE:
		buf_printf(out, "It goes at its deadline: %s.", s->due_when);
		return;
	case WHY_DUE:
		buf_printf(out, "Its time has come (%s): the next sweep of %s removes it.",
			   s->due_when, s->scheduler);
		return;
	case WHY_HELD:
		buf_printf(out, "A hold keeps it: %s.", t->hold.reason);
		return;
	case WHY_PROTECTED:
		buf_printf(out, "It stays. %s", s->safety_rule);
		return;
	case WHY_REFERENCED:
		buf_printf(out, "Other rows still need it. %s", s->safety_rule);
		return;
	case WHY_KEPT:
		buf_printf(out, "It has no deadline. %s", s->safety_rule);
		return;
	}
	assert(0 && "a state has no sentence");
}
