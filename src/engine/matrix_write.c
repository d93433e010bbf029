/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix for people and machines: as JSON and as metrics. */
#include "engine/matrix.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/engine.h"

static struct due_count matrix_own(const struct engine *e, const struct due_count *counted,
				   const char *owner)
{
	const struct bound_memory *m = counted->bound->spec->memory;
	struct due_count own = *counted;

	if (m && m->own_live)
		own.own_live = m->own_live(e, owner);
	if (own.bound->spec->own_live_more)
		own.own_live += own.bound->spec->own_live_more(e, owner);
	return own;
}

/* How long ago the row's deadline was. */
static lapse_ms overdue(const struct due_count *due, lapse_ms now)
{
	assert(due->rows > 0);
	return time_sub(time_sub(now, bound_window(due->bound)), due->oldest);
}

static void put_int_or_null(struct buf *out, const char *key, int64_t value, bool known)
{
	json_key(out, key);
	if (known)
		json_int(out, value);
	else
		json_text(out, NULL);
}

static void write_outlook(const struct engine *e, const struct due_count *due, struct buf *out)
{
	struct bound_outlook o = matrix_outlook(e, due);

	json_put_int(out, "undeletable_rows", o.undeletable);
	json_key(out, "undeletable");
	json_begin(out, '{');
	json_put_int(out, "unreadable", due->kept.unreadable);
	json_put_int(out, "held", due->kept.held);
	json_put_int(out, "protected", due->kept.protected_);
	json_put_int(out, "locked", due->kept.locked);
	json_end(out, '}');
	json_put_time(out, "last_success_at", o.last_success);
	put_int_or_null(out, "rows_per_second", o.rows_per_second, o.rows_per_second > 0);
	put_int_or_null(out, "clears_in_ms", o.clears_in, o.clears_in != LAPSE_NEVER);
}

static void write_bound_paths(unsigned paths, struct buf *out)
{
	static const char *const names[] = { "lazy", "deadline", "sweep", "forced" };

	json_key(out, "paths");
	json_begin(out, '[');
	for (unsigned i = 0; i < ARRAY_LEN(names); i++)
		if (paths & 1u << i)
			json_text(out, names[i]);
	json_end(out, ']');
}

/* Negative = it is not told. */
static void write_count(struct buf *out, const char *key, int64_t n)
{
	put_int_or_null(out, key, n, n >= 0);
}

static void write_sweeps(const struct engine *e, const struct bound *b, const char *owner,
			 lapse_ms now, struct buf *out)
{
	const struct scheduler *s = b->scheduler;

	json_put_int(out, "interval_ms", *s->interval_ms);
	json_put_time(out, "next_sweep_at", schedule_next_at(e, s, now));
	json_put_time(out, "last_sweep_at", s->last_ended_at);
	json_put_time(out, "last_sweep", s->last_ended_at); /* its old name, until 0.2 */
	write_count(out, "last_sweep_rows", owner ? -1 : b->swept);
	json_put_int(out, "last_sweep_ms", s->last_took / 1000);
	write_count(out, "pruned_total", owner ? -1 : b->pruned);
}

static void write_row(const struct engine *e, const struct due_count *due, const char *owner,
		      lapse_ms now, struct buf *out)
{
	const struct bound *b = due->bound;
	const struct bound_spec *s = b->spec;

	json_begin(out, '{');
	json_put_text(out, "table", s->name);
	json_put_text(out, "scheduler", s->scheduler);
	json_put_text(out, "bounded_by", s->bounded_by);
	json_put_text(out, "due_when", s->due_when);
	put_int_or_null(out, "window_ms", bound_window(b), bound_has_window(s));
	write_bound_paths(s->paths, out);
	json_put_text(out, "safety_rule", s->safety_rule);
	json_put_text(out, "action", s->action);
	write_count(out, "live_rows", owner ? due->own_live : b->live);
	write_count(out, "due_rows", due->rows);
	put_int_or_null(out, "oldest_due_age_ms", due->rows > 0 ? overdue(due, now) : 0,
			due->rows > 0);
	write_sweeps(e, b, owner, now, out);
	if (!owner)
		write_outlook(e, due, out);
	if (s->elsewhere)
		json_put_text(out, "contract", s->contract);
	if (s->elsewhere && !owner)
		s->elsewhere->write(s, out);
	json_end(out, '}');
}

void matrix_write_json(const struct engine *e, const struct due_counts *c, struct buf *out)
{
	json_begin(out, '{');
	json_key(out, "data");
	json_begin(out, '[');
	for (size_t i = 0; i < c->n; i++) {
		struct due_count own = c->owner ? matrix_own(e, &c->rows[i], c->owner)
						: matrix_due(e, &c->rows[i], c->now);
		if (!own.bound->removed)
			write_row(e, &own, c->owner, c->now, out);
	}
	json_end(out, ']');
	json_end(out, '}');
}

/* Names of a contract's bounds are free, so they are escaped. An absent label is an empty one. */
static void write_labels(const struct bound_spec *spec, struct buf *out)
{
	buf_puts(out, "table=\"");
	for (const char *p = spec->name; *p; p++)
		if (*p == '"' || *p == '\\')
			buf_printf(out, "\\%c", *p);
		else
			buf_putc(out, (char)(*p == '\n' ? ' ' : *p));
	buf_putc(out, '"');
	if (spec->contract)
		buf_printf(out, ",contract=\"%s\"", spec->contract);
}

static void write_sample(enum metric family, const struct due_count *due, lapse_ms now,
			 struct buf *out)
{
	const struct bound *b = due->bound;
	struct buf CLEANUP(buf_done) own = { 0 };
	char labels[600];

	write_labels(b->spec, &own);
	snprintf(labels, sizeof(labels), "%s", buf_text(&own));
	if (family == METRIC_LIVE_ROWS)
		metrics_sample(out, family, labels, b->live);
	else if (family == METRIC_DUE_ROWS)
		metrics_sample(out, family, labels, due->rows);
	else if (family == METRIC_OLDEST_DUE)
		metrics_sample_real(out, family, labels,
				    due->rows ? (double)overdue(due, now) / 1000.0 : 0.0);
	else {
		snprintf(labels, sizeof(labels), "scheduler=\"%.50s\",%s", b->spec->scheduler,
			 buf_text(&own));
		metrics_sample(out, family, labels, b->pruned);
	}
}

/* One family of what an operator asks next. Where nothing was swept so far, success and pace are 0;
 * an estimate that is not known has no sample. */
static void write_outlook_sample(const struct engine *e, enum metric family,
				 const struct due_count *due, struct buf *out)
{
	static const char *const reasons[] = { "held", "protected", "unreadable", "locked" };
	const int64_t kept[] = { due->kept.held, due->kept.protected_, due->kept.unreadable,
				 due->kept.locked };
	struct bound_outlook o = matrix_outlook(e, due);
	struct buf CLEANUP(buf_done) own = { 0 };
	char labels[640];

	write_labels(due->bound->spec, &own);
	snprintf(labels, sizeof(labels), "%s", buf_text(&own));
	if (family == METRIC_LAST_SUCCESS)
		metrics_sample_exact(
			out, family, labels,
			o.last_success == LAPSE_NEVER ? 0.0 : (double)o.last_success / 1000.0);
	else if (family == METRIC_PACE)
		metrics_sample(out, family, labels, o.rows_per_second);
	else if (family == METRIC_CLEARS && o.clears_in != LAPSE_NEVER)
		metrics_sample_real(out, family, labels, (double)o.clears_in / 1000.0);
	for (size_t i = 0; family == METRIC_UNDELETABLE && i < ARRAY_LEN(reasons); i++) {
		snprintf(labels, sizeof(labels), "%s,reason=\"%s\"", buf_text(&own), reasons[i]);
		metrics_sample(out, family, labels, kept[i]);
	}
}

static void write_outlooks(const struct engine *e, const struct due_counts *c, struct buf *out)
{
	static const enum metric families[] = { METRIC_UNDELETABLE, METRIC_LAST_SUCCESS,
						METRIC_PACE, METRIC_CLEARS };

	for (size_t f = 0; f < ARRAY_LEN(families); f++) {
		metrics_family(out, families[f]);
		for (size_t i = 0; i < c->n; i++) {
			struct due_count own = matrix_due(e, &c->rows[i], c->now);
			if (!own.bound->removed)
				write_outlook_sample(e, families[f], &own, out);
		}
	}
}

static void write_lags(const struct engine *e, struct buf *out)
{
	char labels[160];

	metrics_family(out, METRIC_TABLE_LAG);
	for (size_t i = 0; i < e->matrix.count; i++) {
		const struct bound *b = e->matrix.bounds[i];
		snprintf(labels, sizeof(labels), "table=\"%.120s\"", b->spec->name);
		metrics_sum(out, METRIC_TABLE_LAG, labels, (double)b->lag_sum * 1e-6, b->lag_count);
	}
}

void matrix_write_metrics(const struct engine *e, const struct due_counts *c, struct buf *out)
{
	static const enum metric families[] = { METRIC_PRUNED, METRIC_LIVE_ROWS, METRIC_DUE_ROWS,
						METRIC_OLDEST_DUE };

	for (size_t f = 0; f < ARRAY_LEN(families); f++) {
		metrics_family(out, families[f]);
		for (size_t i = 0; i < c->n; i++) {
			struct due_count own = matrix_due(e, &c->rows[i], c->now);
			if (!own.bound->removed)
				write_sample(families[f], &own, c->now, out);
		}
	}
	write_outlooks(e, c, out);
	write_lags(e, out);
}
