/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/report.h"

#include <assert.h>
#include <string.h>

#include "base/json.h"

const char *report_engine(const struct contract *c)
{
	return c->engine == FOREIGN_SQLITE ? "sqlite" : "postgresql";
}

static void report_bound(const struct contract_bound *b, const struct rule *r, struct buf *out)
{
	struct buf CLEANUP(buf_done) walk = { 0 };

	json_begin(out, '{');
	json_put_text(out, "bound", b->name);
	json_put_text(out, "table", b->table);
	json_put_text(out, "scheduler", b->scheduler);
	json_put_text(out, "state", r ? "ok" : "refused");
	json_put_text(out, "time", r ? contract_time_name(r->unit) : NULL);
	if (r)
		rule_describe(r, &walk);
	json_put_text(out, "walk", r ? buf_text(&walk) : NULL);
	json_end(out, '}');
}

static void report_finding(const struct finding *f, struct buf *out)
{
	json_begin(out, '{');
	json_put_text(out, "level", finding_level_name(f->level));
	json_put_text(out, "bound", f->bound[0] ? f->bound : NULL);
	json_put_int(out, "line", f->line);
	json_put_int(out, "column", f->column);
	json_put_text(out, "message", f->text);
	json_put_text(out, "fix", f->fix);
	json_end(out, '}');
}

void report_check(const struct contract *c, const struct checked *checked, struct buf *out)
{
	assert(checked->count == c->bounds_count);
	json_begin(out, '{');
	json_put_text(out, "contract", c->name);
	json_put_text(out, "database", report_engine(c));
	json_key(out, "bounds");
	json_begin(out, '[');
	for (size_t i = 0; i < c->bounds_count; i++)
		report_bound(&c->bounds[i], checked->rules[i], out);
	json_end(out, ']');
	json_key(out, "findings");
	json_begin(out, '[');
	for (const struct finding *f = checked->findings.first; f; f = f->next)
		report_finding(f, out);
	json_end(out, ']');
	json_end(out, '}');
}

static void put_lines(struct buf *out, const char *key, const char *lines)
{
	json_key(out, key);
	json_begin(out, '[');
	while (*lines) {
		struct buf CLEANUP(buf_done) line = { 0 };
		const char *end = strchr(lines, '\n');
		buf_add(&line, lines, (size_t)(end - lines));
		json_text(out, buf_text(&line));
		lines = end + 1;
	}
	json_end(out, ']');
}

static void put_known(struct buf *out, const char *key, int64_t n)
{
	if (n >= 0)
		json_put_int(out, key, n);
	else
		json_put_raw(out, key, "null");
}

static void report_row(const struct plan_row *row, struct buf *out)
{
	bool any = row->tally.removed > 0;

	json_begin(out, '{');
	json_put_text(out, "bound", row->bound->name);
	json_put_text(out, "error", row->error);
	json_put_int(out, "rows", row->tally.removed);
	json_put_bool(out, "exact", row->exact);
	put_known(out, "table_rows", row->table_rows);
	put_known(out, "share_percent", row->share_percent);
	put_known(out, "bytes", row->bytes);
	json_put_time(out, "oldest", any ? row->tally.oldest : LAPSE_NEVER);
	json_put_time(out, "newest", any ? row->tally.newest : LAPSE_NEVER);
	put_lines(out, "sample", buf_text(&row->sample));
	json_put_int(out, "protected", row->tally.protected_);
	json_put_int(out, "unreadable", row->tally.unreadable);
	put_known(out, "dependents", row->dependents);
	put_known(out, "duration_ms", row->duration_ms);
	json_put_bool(out, "asks", row->asks);
	json_end(out, '}');
}

void report_plan(const struct contract *c, const struct plan *plan, struct buf *out)
{
	json_begin(out, '{');
	json_put_text(out, "contract", c->name);
	json_key(out, "data");
	json_begin(out, '[');
	for (size_t i = 0; i < plan->count; i++)
		report_row(&plan->rows[i], out);
	json_end(out, ']');
	json_end(out, '}');
}
