/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/matrix.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/settings.h"
#include "engine/engine.h"

/* The array */

static void bound_free(struct bound *b)
{
	if (!b)
		return;
	assert(b->magic == BOUND_MAGIC);
	bound_sql_done(&b->sql);
	if (b->spec->release)
		b->spec->release(b->spec);
	b->magic = 0;
	free(b);
}

/* The setting that the spec names, or its own number. */
static const int64_t *resolve_window(const struct engine *e, const struct bound_spec *spec)
{
	return spec->window ? settings_int(e->settings, spec->window) : &spec->window_ms;
}

static int check_place(const struct engine *e, const struct bound_spec *spec,
		       const struct bound *old, struct problem *p)
{
	const struct bound *other = matrix_find(e, spec->name);

	if (other && other != old)
		return problem_set(p, LAPSE_ECONFLICT, "name", "there is a bound %.60s already",
				   spec->name);
	if (!schedule_find(e, spec->scheduler))
		return problem_set(p, LAPSE_EINVAL, "scheduler",
				   "the bound %.60s: there is no scheduler %.60s", spec->name,
				   spec->scheduler);
	if (!resolve_window(e, spec))
		return problem_set(p, LAPSE_EINVAL, "window",
				   "the bound %.60s: there is no setting %.60s", spec->name,
				   spec->window);
	return LAPSE_OK;
}

static int bound_new(const struct engine *e, const struct bound_spec *spec, struct bound **ret,
		     struct problem *p)
{
	struct bound_sql sql = { 0 };
	int r = spec->contract ? LAPSE_OK : bound_compile(spec, e->store->dialect, &sql, p);

	if (r < 0)
		return r;
	struct bound *b = mem_zalloc(1, sizeof(*b));
	*b = (struct bound){ .magic = BOUND_MAGIC,
			     .spec = spec,
			     .sql = sql,
			     .window = resolve_window(e, spec),
			     .last_success = LAPSE_NEVER,
			     .scheduler = schedule_find(e, spec->scheduler) };
	assert(b->window && b->scheduler);
	*ret = b;
	return LAPSE_OK;
}

int matrix_add(struct engine *e, const struct bound_spec *spec, struct bound **ret,
	       struct problem *p)
{
	struct matrix *m = &e->matrix;
	struct bound *b = NULL;
	int r = check_place(e, spec, NULL, p);

	if (r == LAPSE_OK)
		r = bound_new(e, spec, &b, p);
	if (r < 0)
		return r;
	assert(b);
	if (m->count == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 32;
		m->bounds = mem_realloc(m->bounds, m->cap * sizeof(struct bound *));
	}
	m->bounds[m->count++] = b;
	schedule_bounds_changed(e);
	if (ret)
		*ret = b;
	return LAPSE_OK;
}

static size_t index_of(const struct matrix *m, const struct bound *b)
{
	size_t i = 0;

	while (i < m->count && m->bounds[i] != b)
		i++;
	assert(i < m->count);
	return i;
}

static void forget_statements(struct store *s, struct db *reader, const struct bound_sql *sql)
{
	const struct db_stmt *all[] = { &sql->due,     &sql->own_due,   &sql->prune, &sql->newest,
					&sql->find,    &sql->lock,      &sql->held,  &sql->look,
					&sql->look_by, &sql->referenced };

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i]->sql)
			store_forget(s, reader, all[i]->sql);
}

void matrix_bury(struct engine *e)
{
	struct matrix *m = &e->matrix;
	bool idle = m->removed && m->counting == 0;
	struct db *reader = idle ? store_try_reader(e->store) : NULL;

	if (!reader)
		return;
	while (m->removed) {
		assert(m->counting == 0);
		struct bound *b = m->removed;
		m->removed = b->next;
		forget_statements(e->store, reader, &b->sql);
		bound_free(b);
	}
	store_give_reader(e->store, reader);
}

static void put_aside(struct engine *e, struct bound *b)
{
	assert(!b->removed);
	assert(!b->spec->memory); /* a room's memory ends with the engine, not before */
	b->removed = true;
	b->next = e->matrix.removed;
	e->matrix.removed = b;
	schedule_bounds_changed(e);
	matrix_bury(e);
}

void matrix_remove(struct engine *e, struct bound *b)
{
	struct matrix *m = &e->matrix;
	size_t i = index_of(m, b);

	assert(b->magic == BOUND_MAGIC && !b->removed);
	schedule_forget(e, b);
	m->count--;
	memmove(&m->bounds[i], &m->bounds[i + 1], (m->count - i) * sizeof(m->bounds[0]));
	put_aside(e, b);
}

int matrix_replace(struct engine *e, struct bound *old, const struct bound_spec *spec,
		   struct bound **ret, struct problem *p)
{
	size_t i = index_of(&e->matrix, old);
	struct bound *b = NULL;
	int r = check_place(e, spec, old, p);

	assert(old->magic == BOUND_MAGIC && !old->removed);
	if (r == LAPSE_OK)
		r = bound_new(e, spec, &b, p);
	if (r < 0)
		return r;
	assert(b);
	schedule_forget(e, old);
	b->live = old->live;
	b->pruned = old->pruned;
	b->last_success = old->last_success;
	b->pace_rows = old->pace_rows;
	b->pace_us = old->pace_us;
	e->matrix.bounds[i] = b;
	put_aside(e, old);
	if (ret)
		*ret = b;
	return LAPSE_OK;
}

void matrix_done(struct engine *e)
{
	struct matrix *m = &e->matrix;

	for (size_t i = 0; i < m->count; i++)
		bound_free(m->bounds[i]);
	while (m->removed) {
		struct bound *b = m->removed;
		m->removed = b->next;
		bound_free(b);
	}
	free(m->bounds);
	*m = (struct matrix){ 0 };
}

struct bound *matrix_find(const struct engine *e, const char *name)
{
	for (size_t i = 0; i < e->matrix.count; i++)
		if (strcmp(e->matrix.bounds[i]->spec->name, name) == 0)
			return e->matrix.bounds[i];
	return NULL;
}

struct bound *matrix_of(const struct engine *e, const struct bound_spec *spec)
{
	for (size_t i = 0; i < e->matrix.count; i++)
		if (e->matrix.bounds[i]->spec == spec)
			return e->matrix.bounds[i];
	assert(0 && "the bound is in the matrix");
	return NULL;
}

/* What the store knows of a bound */

static const struct db_stmt COUNT_ADD = {
	"INSERT INTO counts (tbl, live) VALUES ($1, 0) ON CONFLICT (tbl) DO NOTHING"
};
static const struct db_stmt COUNT_GET = { "SELECT live FROM counts WHERE tbl = $1" };

static int add_count(struct db *db, const char *name)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &COUNT_ADD);

	db_bind_text(&q, 1, name);
	return db_post(&q, DB_ANY);
}

static int load_count(struct db *db, const char *name, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &COUNT_GET);

	assert(*name);
	db_bind_text(&q, 1, name);
	int r = db_step(&q);
	if (r > 0)
		*ret = db_int(&q, 0);
	return r < 0 ? r : LAPSE_OK;
}

static int load_newest(struct engine *e, const struct bound *b)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &b->sql.newest);
	int r = db_step(&q);

	assert(b->sql.newest.sql);
	if (r > 0 && db_int(&q, 0) > e->ids.last)
		e->ids.last = db_int(&q, 0);
	return r < 0 ? r : LAPSE_OK;
}

int matrix_load(struct engine *e, struct bound *b)
{
	assert(bound_is_ours(b));
	int r = add_count(e->db, b->spec->name);

	if (r == LAPSE_OK)
		r = load_count(e->db, b->spec->name, &b->live);
	if (r == LAPSE_OK && b->spec->key_is_id)
		r = load_newest(e, b);
	return r;
}
