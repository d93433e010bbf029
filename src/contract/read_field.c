/* SPDX-License-Identifier: Apache-2.0 */
/* What the fields of a contract are made of: names, numbers, durations, columns. */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "contract/read.h"

const struct field *reader_field(const struct field *fields, const char *name)
{
	for (; fields->name; fields++)
		if (strcmp(fields->name, name) == 0)
			return fields;
	return NULL;
}

static int refuse_unknown(struct reader *r, const struct node *key, const char *what,
			  const struct field *fields)
{
	const char *names[FIELDS_MAX + 1] = { 0 };
	size_t n = 0;

	for (; fields->name; fields++) {
		assert(n < FIELDS_MAX);
		names[n++] = fields->name;
	}
	const char *near = suggest(key->text, names);
	if (near)
		return refuse(r, key, "unknown field '%s' in %s; did you mean '%s'?", key->text,
			      what, near);
	return refuse(r, key, "unknown field '%s' in %s", key->text, what);
}

/* Decodes a mapping by its table; `what` is how messages call it: "a bound". */
int decode_map(struct reader *r, const struct node *map, const char *what,
	       const struct field *fields, void *out)
{
	assert(fields && out);
	if (map->kind != NODE_MAP)
		return refuse(r, map, "%s must be a mapping", what);
	for (const struct node *n = map->first; n; n = n->next) {
		const struct field *f = reader_field(fields, n->key->text);
		if (!f)
			return refuse_unknown(r, n->key, what, fields);
		int err = f->decode(r, n, (char *)out + f->offset);
		if (err < 0)
			return err;
	}
	for (; fields->name; fields++)
		if (fields->required && !node_get(map, fields->name))
			return refuse(r, map, "%s needs the field '%s'", what, fields->name);
	return LAPSE_OK;
}

int decode_node(struct reader *r, const struct node *n, void *member)
{
	(void)r;
	*(const struct node **)member = n;
	return LAPSE_OK;
}

/* A scalar that is there, and not null. */
int need_text(struct reader *r, const struct node *n)
{
	const char *name = n->key ? n->key->text : "it";

	if (n->kind != NODE_SCALAR)
		return refuse(r, n, "'%s' must be a single value", name);
	if (node_is_null(n) || n->text[0] == '\0')
		return refuse(r, n, "'%s' is empty", name);
	return LAPSE_OK;
}

/* A name of the database: whatever SQL allows in quotes. */
int decode_identifier(struct reader *r, const struct node *n, void *member)
{
	if (n->kind != NODE_SCALAR || n->text[0] == '\0' || (node_is_null(n) && n->text[0] == '~'))
		return refuse(r, n, "a name of the database is expected here");
	if (strlen(n->text) > CONTRACT_IDENTIFIER_MAX)
		return refuse(r, n, "a name of the database has at most %d bytes",
			      CONTRACT_IDENTIFIER_MAX);
	*(const char **)member = n->text;
	return LAPSE_OK;
}

/* A name outside the database: a-z 0-9 _ -, and dots where `dots`. */
int decode_label(struct reader *r, const struct node *n, bool dots, const char **ret)
{
	int err = need_text(r, n);

	if (err < 0)
		return err;
	if (strlen(n->text) > (dots ? CONTRACT_IDENTIFIER_MAX : CONTRACT_NAME_MAX))
		return refuse(r, n, "the name '%s' is too long: %d bytes at most", n->text,
			      dots ? CONTRACT_IDENTIFIER_MAX : CONTRACT_NAME_MAX);
	for (const char *p = n->text; *p; p++)
		if (!(islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '_' ||
		      *p == '-' || (dots && *p == '.')))
			return refuse(r, n, "the name '%s' may only have a-z 0-9 _ -%s", n->text,
				      dots ? " ." : "");
	*ret = n->text;
	return LAPSE_OK;
}

int decode_name(struct reader *r, const struct node *n, void *member)
{
	return decode_label(r, n, false, member);
}

int decode_bound_name(struct reader *r, const struct node *n, void *member)
{
	return decode_label(r, n, true, member);
}

int decode_flag(struct reader *r, const struct node *n, void *member)
{
	bool yes = n->kind == NODE_SCALAR && n->plain && strcmp(n->text, "true") == 0;
	bool no = n->kind == NODE_SCALAR && n->plain && strcmp(n->text, "false") == 0;

	if (!yes && !no)
		return refuse(r, n, "'%s' must be true or false", n->key->text);
	*(bool *)member = yes;
	return LAPSE_OK;
}

static bool parse_whole(const char *text, int64_t *ret)
{
	char *end;

	errno = 0;
	int64_t n = strtoll(text, &end, 10);
	if (errno || end == text || *end || isspace((unsigned char)text[0]) || text[0] == '+')
		return false;
	*ret = n;
	return true;
}

int decode_range(struct reader *r, const struct node *n, int64_t min, int64_t max, int64_t *ret)
{
	int64_t value;

	assert(min <= max);
	if (n->kind != NODE_SCALAR || !parse_whole(n->text, &value) || value < min || value > max)
		return refuse(r, n, "'%s' must be a whole number from %lld to %lld", n->key->text,
			      (long long)min, (long long)max);
	*ret = value;
	return LAPSE_OK;
}

bool contract_duration(const char *text, lapse_ms *ret)
{
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = { { "", 1 },      { "ms", 1 },      { "s", 1000 },
		      { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
	size_t digits = strspn(text, "0123456789");
	char number[20];
	int64_t n, ms;

	if (digits == 0 || digits >= sizeof(number))
		return false;
	memcpy(number, text, digits);
	number[digits] = '\0';
	if (!parse_whole(number, &n))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(text + digits, units[i].name) == 0) {
			if (__builtin_mul_overflow(n, units[i].ms, &ms) || ms <= 0 ||
			    ms > CONTRACT_DURATION_MAX)
				return false;
			*ret = ms;
			return true;
		}
	return false;
}

int decode_duration(struct reader *r, const struct node *n, void *member)
{
	if (n->kind != NODE_SCALAR || !contract_duration(n->text, member))
		return refuse(r, n,
			      "'%s' must be a duration such as 90s, 5m, 24h or 7d, above zero and "
			      "at most 36500d",
			      n->key->text);
	return LAPSE_OK;
}

int decode_slice(struct reader *r, const struct node *n, void *member)
{
	return decode_range(r, n, 1, 10000, member);
}

int decode_rate(struct reader *r, const struct node *n, void *member)
{
	return decode_range(r, n, 0, 10000000, member);
}

int decode_rows(struct reader *r, const struct node *n, void *member)
{
	return decode_range(r, n, 0, INT64_C(1000000000000), member);
}

int decode_percent(struct reader *r, const struct node *n, void *member)
{
	char number[8];
	size_t len = n->kind == NODE_SCALAR ? strlen(n->text) : 0;
	int64_t value;

	if (len < 2 || len >= sizeof(number) || n->text[len - 1] != '%')
		return refuse(r, n, "'%s' must be a percentage such as 50%%", n->key->text);
	memcpy(number, n->text, len - 1);
	number[len - 1] = '\0';
	if (!parse_whole(number, &value) || value < 0 || value > 100)
		return refuse(r, n, "'%s' must be from 0%% to 100%%", n->key->text);
	*(int64_t *)member = value;
	return LAPSE_OK;
}

static int check_twin(struct reader *r, const struct contract_columns *columns,
		      const struct node *at)
{
	for (size_t i = 0; i < columns->count; i++)
		if (strcmp(columns->names[i], at->text) == 0)
			return refuse(r, at, "the column '%s' is named twice", at->text);
	return LAPSE_OK;
}

int decode_columns(struct reader *r, const struct node *n, void *member)
{
	struct contract_columns *columns = member;

	columns->at = n;
	if (n->kind == NODE_SCALAR) {
		columns->count = 1;
		return decode_identifier(r, n, &columns->names[0]);
	}
	if (n->kind != NODE_LIST || n->count == 0 || n->count > CONTRACT_COLUMNS_MAX)
		return refuse(r, n, "'%s' must be a list of 1 to %d columns", n->key->text,
			      CONTRACT_COLUMNS_MAX);
	for (const struct node *i = n->first; i; i = i->next) {
		int err = decode_identifier(r, i, &columns->names[columns->count]);
		if (err == LAPSE_OK)
			err = check_twin(r, columns, i);
		if (err < 0)
			return err;
		columns->count++;
	}
	return LAPSE_OK;
}
