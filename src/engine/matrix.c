/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/matrix.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/settings.h"
#include "engine/engine.h"

/* Counting stops here: an operator needs to know "many", not how many exactly. */
#define DUE_CAP 1000000

lapse_ms bound_window(const struct bound *b, const struct settings *s)
{
	if (b->window == WINDOW_NONE)
		return 0;
	return *(const int64_t *)((const char *)s + b->window);
}

int matrix_find(const struct engine *engine, const char *table)
{
	for (size_t i = 0; i < engine->bounds_count; i++)
		if (strcmp(engine->bounds[i]->table, table) == 0)
			return (int)i;
	return -1;
}

static int count_due(const struct engine *engine, const struct bound *b, struct db *db,
		     lapse_ms now, struct due_count *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &b->due);

	db_bind_int(&q, 1, time_sub(now, bound_window(b, engine->settings)));
	db_bind_int(&q, 2, DUE_CAP);
	int r = db_step(&q);
	if (r < 0)
		return r;
	ret->rows = db_int(&q, 0);
	ret->oldest = db_int(&q, 1);
	return LAPSE_OK;
}

int matrix_count_due(const struct engine *engine, struct db *db, lapse_ms now,
		     struct due_count ret[BOUNDS_MAX])
{
	for (size_t i = 0; i < engine->bounds_count; i++) {
		if (engine->bounds[i]->memory &&
		    engine->bounds[i]->memory->due) /* not ours to read here: see due_of() */
			continue;
		int r = count_due(engine, engine->bounds[i], db, now, &ret[i]);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

static void write_paths(unsigned paths, struct buf *out)
{
	static const char *const names[] = { "lazy", "deadline", "sweep", "forced" };

	json_key(out, "paths");
	json_begin(out, '[');
	for (unsigned i = 0; i < ARRAY_LEN(names); i++)
		if (paths & 1u << i)
			json_text(out, names[i]);
	json_end(out, ']');
}

/* As counted by a worker, or now, where only the loop may look. */
static struct due_count due_of(const struct engine *engine, size_t i, const struct due_count *due,
			       lapse_ms now)
{
	const struct bound *b = engine->bounds[i];
	struct due_count own = due[i];

	if (b->memory && b->memory->due)
		b->memory->due(engine, now, &own);
	return own;
}

/* How long ago the row's deadline was. */
static lapse_ms overdue(const struct engine *engine, const struct bound *b,
			const struct due_count *due, lapse_ms now)
{
	return time_sub(time_sub(now, bound_window(b, engine->settings)), due->oldest);
}

static void write_row(const struct engine *engine, size_t i, const struct due_count *due,
		      lapse_ms now, struct buf *out)
{
	const struct bound *b = engine->bounds[i];
	const struct bound_state *s = &engine->states[i];
	const struct scheduler *scheduler = schedule_find(engine, b->scheduler);

	json_begin(out, '{');
	json_put_text(out, "table", b->table);
	json_put_text(out, "scheduler", b->scheduler);
	json_put_text(out, "bounded_by", b->bounded_by);
	json_put_text(out, "due_when", b->due_when);
	json_key(out, "window_ms");
	if (b->window == WINDOW_NONE)
		json_text(out, NULL);
	else
		json_int(out, bound_window(b, engine->settings));
	write_paths(b->paths, out);
	json_put_text(out, "safety_rule", b->safety_rule);
	json_put_text(out, "action", b->action);
	json_put_int(out, "live_rows", s->live);
	json_put_int(out, "due_rows", due->rows);
	json_key(out, "oldest_due_age_ms");
	if (due->rows > 0)
		json_int(out, overdue(engine, b, due, now));
	else
		json_text(out, NULL);
	json_put_time(out, "last_sweep", scheduler->last_ended_at);
	json_put_int(out, "pruned_total", s->pruned);
	json_end(out, '}');
}

void matrix_write_json(const struct engine *engine, const struct due_count *due, lapse_ms now,
		       struct buf *out)
{
	json_begin(out, '{');
	json_key(out, "data");
	json_begin(out, '[');
	for (size_t i = 0; i < engine->bounds_count; i++) {
		struct due_count own = due_of(engine, i, due, now);
		write_row(engine, i, &own, now, out);
	}
	json_end(out, ']');
	json_end(out, '}');
}

/* One family, a sample for every bound. */
static void write_family(const struct engine *engine, const struct due_count *due, lapse_ms now,
			 enum metric family, struct buf *out)
{
	metrics_family(out, family);
	for (size_t i = 0; i < engine->bounds_count; i++) {
		const struct bound *b = engine->bounds[i];
		struct due_count own = due_of(engine, i, due, now);
		char labels[160];
		snprintf(labels, sizeof(labels), "table=\"%s\"", b->table);
		if (family == METRIC_LIVE_ROWS)
			metrics_sample(out, family, labels, engine->states[i].live);
		else if (family == METRIC_DUE_ROWS)
			metrics_sample(out, family, labels, own.rows);
		else if (family == METRIC_OLDEST_DUE)
			metrics_sample_real(
				out, family, labels,
				own.rows ? (double)overdue(engine, b, &own, now) / 1000.0 : 0.0);
		else {
			snprintf(labels, sizeof(labels), "scheduler=\"%s\",table=\"%s\"",
				 b->scheduler, b->table);
			metrics_sample(out, family, labels, engine->states[i].pruned);
		}
	}
}

void matrix_write_metrics(const struct engine *engine, const struct due_count *due, lapse_ms now,
			  struct buf *out)
{
	write_family(engine, due, now, METRIC_PRUNED, out);
	write_family(engine, due, now, METRIC_LIVE_ROWS, out);
	write_family(engine, due, now, METRIC_DUE_ROWS, out);
	write_family(engine, due, now, METRIC_OLDEST_DUE, out);
}
