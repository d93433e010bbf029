/* SPDX-License-Identifier: Apache-2.0 */
/* What a scan's rows say, and the arrays that go back to PostgreSQL. */
#include <assert.h>
#include <string.h>

#include "contract/statement.h"

/* Numbers come as numbers from SQLite and as texts from PostgreSQL. */
static bool number_time(const struct rule *r, const struct datum *d, lapse_ms *ret)
{
	int64_t unit = r->unit == TIME_S ? 1000 : 1, whole;
	double value = d->real;

	if (d->kind == DATUM_INT || (d->kind == DATUM_TEXT && r->time == RULE_TIME_INT)) {
		whole = d->kind == DATUM_INT ? d->number : strtoll(d->text, NULL, 10);
		if (__builtin_mul_overflow(whole, unit, ret))
			*ret = whole < 0 ? INT64_MIN : LAPSE_NEVER;
		return true;
	}
	if (d->kind == DATUM_TEXT && r->dialect == DIALECT_POSTGRES)
		value = strtod(d->text, NULL);
	else if (d->kind != DATUM_REAL)
		return false;
	value *= (double)unit;
	if (!(value > -9e18 && value < 9e18))
		return false;
	*ret = (lapse_ms)value;
	return true;
}

bool scan_time(const struct rule *rule, const struct rows *rows, size_t row, lapse_ms *ret)
{
	const struct datum *d = rows_at(rows, row, SCAN_TIME);

	if (d->kind == DATUM_NULL)
		return false;
	switch (rule->time) {
	case RULE_TIME_INT:
	case RULE_TIME_DECIMAL:
		return number_time(rule, d, ret);
	case RULE_TIME_STAMP:
		if (rows_at(rows, row, SCAN_MS)->kind == DATUM_NULL)
			return false;
		*ret = rows_int(rows, row, SCAN_MS);
		return true;
	case RULE_TIME_JUDGED:
		return d->kind == DATUM_TEXT && strlen(d->text) == d->size &&
		       rule_parse_time(rule, d->text, ret);
	}
	return false;
}

void array_begin(struct buf *out)
{
	buf_clear(out);
	buf_putc(out, '{');
}

void array_add(struct buf *out, const char *text)
{
	assert(out->len > 0);
	buf_puts(out, out->data[out->len - 1] == '{' ? "\"" : ",\"");
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			buf_putc(out, '\\');
		buf_putc(out, *text);
	}
	buf_putc(out, '"');
}

void array_end(struct buf *out)
{
	buf_putc(out, '}');
}
