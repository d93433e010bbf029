/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/plan.h"

#include <assert.h>

#define COUNT_LIMIT_MS 1000 /* longer than this a table is not counted, but estimated */

void plan_row_done(struct plan_row *row)
{
	buf_done(&row->sample);
	free(row->error);
	row->error = NULL;
}

void plan_done(struct plan *p)
{
	for (size_t i = 0; i < p->count; i++)
		plan_row_done(&p->rows[i]);
	free(p->rows);
	*p = (struct plan){ 0 };
}

static int count_rows(struct foreign *f, const struct rule *r, int64_t *ret)
{
	struct buf CLEANUP(buf_done) sql = { 0 };
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	buf_puts(&sql, "SELECT count(*) FROM ");
	sql_table(&sql, r->relation->schema, r->relation->table);
	foreign_limit(f, COUNT_LIMIT_MS);
	int err = foreign_read(f, buf_text(&sql), NULL, 0, &rows);
	foreign_limit(f, FOREIGN_STATEMENT_MS);
	if (err == LAPSE_OK)
		*ret = rows_int(&rows, 0, 0);
	return err;
}

/* A large table's estimate is good enough for a percentage; a small one is counted. */
#define ESTIMATE_FROM 100000

int plan_table_rows(struct foreign *f, const struct rule *r, int64_t *ret)
{
	*ret = r->relation->rows;
	if (*ret >= ESTIMATE_FROM)
		return LAPSE_OK;
	int err = count_rows(f, r, ret);
	return err == LAPSE_ETIMEOUT ? LAPSE_OK : err;
}

bool plan_asks(const struct contract_bound *b, int64_t due, int64_t table_rows)
{
	assert(due >= 0);
	if (due == 0 || due < b->pace.ask_min_rows || b->pace.ask_above_percent >= 100)
		return false;
	return table_rows < 0 ||
	       (double)due * 100 > (double)table_rows * (double)b->pace.ask_above_percent;
}

static void describe_size(struct plan_row *row, const struct rule *r)
{
	int64_t due = row->tally.removed, rate = r->bound->pace.rows_per_second;

	row->share_percent = row->bytes = -1;
	if (row->table_rows > 0) {
		double share = (double)due / (double)row->table_rows;
		share = share > 1 ? 1 : share;
		row->share_percent = (int64_t)(share * 100 + 0.5);
		if (r->relation->bytes >= 0)
			row->bytes = (int64_t)((double)r->relation->bytes * share);
	}
	row->duration_ms = rate > 0 ? due * 1000 / rate : -1;
}

/* All slices, until there is no more or the time is over. */
static int plan_count_due(struct pass *pass, lapse_us stop, struct plan_row *row)
{
	bool more = true;

	assert(row->sample.len == 0);
	while (more && clock_mono(&CLOCK_SYSTEM) < stop) {
		int64_t n;
		int err = pass_slice(pass, &n, &more);
		if (err < 0)
			return err;
		if (row->sample.len == 0)
			pass_sample(pass, PLAN_SAMPLE, &row->sample);
	}
	row->exact = !more;
	return LAPSE_OK;
}

#define DEPENDENTS_CAP 1000000

static int count_dependents(struct foreign *f, const struct rule *r, lapse_ms now,
			    struct plan_row *row)
{
	struct statement CLEANUP(statement_done) st;
	struct rows CLEANUP(rows_done) rows;
	int err = LAPSE_OK;

	rows_init(&rows);
	statement_init(&st, r->dialect);
	for (size_t i = 0; err == LAPSE_OK && i < r->bound->together_count; i++) {
		statement_reset(&st);
		statement_count_together(&st, r, rule_cutoff(r, now), &r->bound->together[i],
					 DEPENDENTS_CAP);
		foreign_limit(f, COUNT_LIMIT_MS);
		err = statement_read(&st, f, &rows);
		foreign_limit(f, FOREIGN_STATEMENT_MS);
		if (err == LAPSE_OK)
			row->dependents += rows_int(&rows, 0, 0);
	}
	if (err != LAPSE_ETIMEOUT)
		return err;
	row->dependents = -1;
	return LAPSE_OK;
}

int plan_bound(struct foreign *f, const struct rule *r, lapse_ms now, int64_t limit_ms,
	       struct plan_row *ret)
{
	struct pass_config config = { .f = f, .rule = r, .now = now, .dry = true };
	struct pass *CLEANUP(pass_freep) pass = pass_new(&config);
	lapse_us stop = time_add(clock_mono(&CLOCK_SYSTEM), limit_ms * 1000);

	assert(limit_ms > 0 && !f->in_transaction);
	*ret = (struct plan_row){ .bound = r->bound };
	int err = plan_count_due(pass, stop, ret);
	if (err == LAPSE_OK)
		err = plan_table_rows(f, r, &ret->table_rows);
	if (err == LAPSE_OK)
		err = count_dependents(f, r, now, ret);
	if (err < 0) {
		plan_row_done(ret);
		return err;
	}
	ret->tally = *pass_tally(pass);
	describe_size(ret, r);
	ret->asks = plan_asks(r->bound, ret->tally.removed, ret->table_rows);
	return LAPSE_OK;
}

int contract_plan(struct foreign *f, const struct contract *c, const struct checked *checked,
		  lapse_ms now, struct plan *ret)
{
	struct plan plan = { .rows = mem_zalloc(c->bounds_count, sizeof(*plan.rows)),
			     .count = c->bounds_count };

	assert(checked->count == c->bounds_count);
	for (size_t i = 0; i < c->bounds_count; i++) {
		struct plan_row *row = &plan.rows[i];
		int err = LAPSE_EINVAL;
		if (checked->rules[i])
			err = plan_bound(f, checked->rules[i], now, PLAN_LIMIT_MS, row);
		if (err == LAPSE_EUNAVAILABLE) {
			plan_done(&plan);
			return err;
		}
		row->bound = &c->bounds[i];
		if (err < 0)
			row->error = mem_strdup(checked->rules[i] ? foreign_error(f)
								  : "the bound does not check");
	}
	*ret = plan;
	return LAPSE_OK;
}
