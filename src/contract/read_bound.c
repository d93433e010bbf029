/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of a bound. What no single field can say is checked once the mapping is decoded
 * (check_bound_fields()).
 */
#include <assert.h>
#include <string.h>

#include "contract/read.h"

static const char *const TIME_NAMES[] = { NULL,          "ms",  "s", "iso8601", "sqlite_datetime",
					  "timestamptz", "text" };

const char *contract_time_name(enum contract_time t)
{
	assert((size_t)t < ARRAY_LEN(TIME_NAMES));
	return TIME_NAMES[t];
}

static int decode_time(struct reader *r, const struct node *n, void *member)
{
	const char *names[ARRAY_LEN(TIME_NAMES)] = { 0 };

	memcpy(names, TIME_NAMES + 1, sizeof(names) - sizeof(names[0]));
	int err = need_text(r, n);
	if (err < 0)
		return err;
	for (size_t i = 1; i < ARRAY_LEN(TIME_NAMES); i++)
		if (strcmp(TIME_NAMES[i], n->text) == 0) {
			*(enum contract_time *)member = (enum contract_time)i;
			return LAPSE_OK;
		}
	const char *near = suggest(n->text, names);
	return refuse(r, n,
		      "'time' must be ms, s, iso8601, sqlite_datetime, timestamptz or text%s%s%s",
		      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int decode_at(struct reader *r, const struct node *n, void *member)
{
	if (n->kind != NODE_SCALAR || (strcmp(n->text, "<") != 0 && strcmp(n->text, "<=") != 0))
		return refuse(r, n, "'at' must be \"<\" or \"<=\"");
	*(const char **)member = n->text;
	return LAPSE_OK;
}

/* age: { of: column, keep: duration } */
struct age {
	const char *of;
	lapse_ms keep;
};

static const struct field AGE_FIELDS[] = {
	{ "of", decode_identifier, offsetof(struct age, of), true },
	{ "keep", decode_duration, offsetof(struct age, keep), true },
	{ 0 },
};

/* only: { column: value | [values] | null | { not: value } } */
static int decode_value(struct reader *r, const struct node *n, struct contract_value *ret)
{
	if (n->kind != NODE_SCALAR)
		return refuse(r, n,
			      "a value of 'only' must be a text, a number, true, false or "
			      "null");
	ret->text = node_is_null(n) ? NULL : n->text;
	ret->kind = !ret->text ? GIVEN_NULL : n->plain ? GIVEN_WORD : GIVEN_TEXT;
	return LAPSE_OK;
}

static int decode_values(struct reader *r, const struct node *list, struct contract_filter *f)
{
	assert(list->kind == NODE_LIST && f->count == 0);
	if (list->count == 0 || list->count > CONTRACT_VALUES_MAX)
		return refuse(r, list, "a list of values has 1 to %d of them", CONTRACT_VALUES_MAX);
	for (const struct node *n = list->first; n; n = n->next) {
		int err = decode_value(r, n, &f->values[f->count]);
		if (err < 0)
			return err;
		if (f->values[f->count].kind == GIVEN_NULL)
			return refuse(r, n,
				      "null cannot be one of several values; write a bound "
				      "of its own for it");
		f->count++;
	}
	return LAPSE_OK;
}

struct negation {
	const struct node *value;
};

static const struct field NOT_FIELDS[] = {
	{ "not", decode_node, offsetof(struct negation, value), true },
	{ 0 },
};

static int decode_filter(struct reader *r, const struct node *n, struct contract_filter *f)
{
	struct negation negation = { 0 };

	f->at = n->key;
	f->count = 1;
	if (n->kind == NODE_SCALAR)
		return decode_value(r, n, &f->values[0]);
	if (n->kind == NODE_LIST) {
		f->count = 0;
		return decode_values(r, n, f);
	}
	int err = decode_map(r, n, "a condition", NOT_FIELDS, &negation);
	if (err < 0)
		return err;
	f->negated = true;
	return decode_value(r, negation.value, &f->values[0]);
}

static int decode_only(struct reader *r, const struct node *n, void *member)
{
	struct contract_bound *b = member;

	if (n->kind != NODE_MAP || n->count == 0 || n->count > CONTRACT_FILTERS_MAX)
		return refuse(r, n, "'only' must be a mapping of 1 to %d columns",
			      CONTRACT_FILTERS_MAX);
	for (const struct node *i = n->first; i; i = i->next) {
		struct contract_filter *f = &b->only[b->only_count++];
		int err = decode_identifier(r, i->key, &f->column);
		if (err == LAPSE_OK)
			err = decode_filter(r, i, f);
		if (err < 0)
			return err;
	}
	return LAPSE_OK;
}

/* on: { their column: our column } */
static int decode_on(struct reader *r, const struct node *n, void *member)
{
	struct contract_reference *ref = member;

	if (n->kind != NODE_MAP || n->count == 0 || n->count > CONTRACT_COLUMNS_MAX)
		return refuse(r, n, "'on' must be a mapping of 1 to %d columns: theirs, then ours",
			      CONTRACT_COLUMNS_MAX);
	ref->theirs.at = ref->ours.at = n;
	for (const struct node *i = n->first; i; i = i->next) {
		int err = decode_identifier(r, i->key, &ref->theirs.names[ref->theirs.count++]);
		if (err == LAPSE_OK)
			err = decode_identifier(r, i, &ref->ours.names[ref->ours.count++]);
		if (err < 0)
			return err;
	}
	return LAPSE_OK;
}

static const struct field UNLESS_FIELDS[] = {
	{ "by", decode_identifier, offsetof(struct contract_reference, table), true },
	{ "schema", decode_identifier, offsetof(struct contract_reference, schema), false },
	{ "on", decode_on, 0, true },
	{ 0 },
};

static const struct field TOGETHER_FIELDS[] = {
	{ "table", decode_identifier, offsetof(struct contract_reference, table), true },
	{ "schema", decode_identifier, offsetof(struct contract_reference, schema), false },
	{ "on", decode_on, 0, true },
	{ 0 },
};

/* One mapping, or a list of them. */
static int decode_references(struct reader *r, const struct node *n, const struct field *fields,
			     struct contract_reference *out, size_t *count)
{
	const struct node *first = n->kind == NODE_LIST ? n->first : n;
	size_t several = n->kind == NODE_LIST ? n->count : 1;

	if (several == 0 || several > CONTRACT_REFERENCES_MAX)
		return refuse(r, n, "'%s' takes 1 to %d tables", n->key->text,
			      CONTRACT_REFERENCES_MAX);
	for (; several > 0; several--, first = first->next) {
		struct contract_reference *ref = &out[(*count)++];
		ref->at = first;
		int err = decode_map(r, first, n->key->text, fields, ref);
		if (err < 0)
			return err;
	}
	return LAPSE_OK;
}

static int decode_unless(struct reader *r, const struct node *n, void *member)
{
	struct contract_bound *b = member;

	return decode_references(r, n, UNLESS_FIELDS, b->unless, &b->unless_count);
}

static int decode_together(struct reader *r, const struct node *n, void *member)
{
	struct contract_bound *b = member;

	return decode_references(r, n, TOGETHER_FIELDS, b->together, &b->together_count);
}

static int decode_count(struct reader *r, const struct node *n, void *member)
{
	return decode_range(r, n, 1, INT64_C(1000000000), member);
}

static const struct field QUOTA_FIELDS[] = {
	{ "count", decode_count, offsetof(struct contract_quota, count), true },
	{ "per", decode_columns, offsetof(struct contract_quota, per), false },
	{ 0 },
};

static int decode_quota(struct reader *r, const struct node *n, void *member)
{
	struct contract_quota *q = member;

	q->at = n;
	return decode_map(r, n, n->key->text, QUOTA_FIELDS, q);
}

#define PACE_FIELDS(type, member)                                                                  \
	{ "slice_ms", decode_slice, offsetof(type, member slice_ms), false },                      \
		{ "rows_per_second", decode_rate, offsetof(type, member rows_per_second), false }, \
		{ "ask_above", decode_percent, offsetof(type, member ask_above_percent), false },  \
		{ "ask_min_rows", decode_rows, offsetof(type, member ask_min_rows), false },       \
	{                                                                                          \
		"replica_lag_max", decode_duration, offsetof(type, member replica_lag_max_ms),     \
			false                                                                      \
	}

const struct contract_pace PACE_DEFAULT = { .slice_ms = 50,
					    .rows_per_second = 5000,
					    .ask_above_percent = 50,
					    .ask_min_rows = 1000,
					    .replica_lag_max_ms = 10000 };

const struct field DEFAULTS_FIELDS[] = {
	PACE_FIELDS(struct contract_pace, ),
	{ 0 },
};

/* What the fields of a bound are before they are checked against each other. */
struct draft {
	struct contract_bound bound;
	const char *name;
	const struct node *age, *expires;
	const char *at;
};

static const struct field BOUND_FIELDS[] = {
	{ "name", decode_bound_name, offsetof(struct draft, name), false },
	{ "table", decode_identifier, offsetof(struct draft, bound.table), true },
	{ "schema", decode_identifier, offsetof(struct draft, bound.schema), false },
	{ "scheduler", decode_name, offsetof(struct draft, bound.scheduler), true },
	{ "key", decode_columns, offsetof(struct draft, bound.key), true },
	{ "expires", decode_node, offsetof(struct draft, expires), false },
	{ "age", decode_node, offsetof(struct draft, age), false },
	{ "at", decode_at, offsetof(struct draft, at), false },
	{ "time", decode_time, offsetof(struct draft, bound.unit), false },
	{ "only", decode_only, offsetof(struct draft, bound), false },
	{ "unless_referenced", decode_unless, offsetof(struct draft, bound), false },
	{ "together_with", decode_together, offsetof(struct draft, bound), false },
	{ "grows_with_key", decode_flag, offsetof(struct draft, bound.grows_with_key), false },
	{ "keep_newest", decode_quota, offsetof(struct draft, bound.keep_newest), false },
	{ "at_most", decode_quota, offsetof(struct draft, bound.at_most), false },
	PACE_FIELDS(struct draft, bound.pace.),
	{ 0 },
};

/* Exactly one of `expires` and `age` says where the time is. */
static int decode_due(struct reader *r, struct draft *d)
{
	struct contract_bound *b = &d->bound;
	struct age age = { 0 };

	if (!d->expires == !d->age)
		return refuse(r, b->at, "a bound needs either 'expires' or 'age'");
	b->is_age = d->age != NULL;
	b->time_at = d->age ? d->age : d->expires;
	b->inclusive = d->at ? strcmp(d->at, "<=") == 0 : !b->is_age;
	if (d->expires)
		return decode_identifier(r, d->expires, &b->time_column);
	int err = decode_map(r, d->age, "'age'", AGE_FIELDS, &age);
	if (err < 0)
		return err;
	b->time_column = age.of;
	b->keep = age.keep;
	return LAPSE_OK;
}

static bool has_scheduler(const struct contract *c, const char *name)
{
	for (size_t i = 0; i < c->schedulers_count; i++)
		if (strcmp(c->schedulers[i].name, name) == 0)
			return true;
	return false;
}

static int refuse_scheduler(struct reader *r, const struct contract_bound *b)
{
	const char *names[CONTRACT_SCHEDULERS_MAX + 1] = { 0 };
	const struct node *at = node_get(b->at, "scheduler");

	for (size_t i = 0; i < r->c->schedulers_count; i++)
		names[i] = r->c->schedulers[i].name;
	const char *near = suggest(b->scheduler, names);
	if (near)
		return refuse(r, at, "there is no scheduler '%s'; did you mean '%s'?", b->scheduler,
			      near);
	return refuse(r, at, "there is no scheduler '%s' in 'schedulers'", b->scheduler);
}

static bool orders_by_text(enum contract_time t)
{
	return t == TIME_MIXED_TEXT || t == TIME_ISO8601;
}

/* What the fields of a bound mean together. */
static int check_bound_fields(struct reader *r, const struct contract_bound *b)
{
	bool quota = b->keep_newest.count || b->at_most.count;

	if (!has_scheduler(r->c, b->scheduler))
		return refuse_scheduler(r, b);
	if (b->grows_with_key && !b->is_age)
		return refuse(r, node_get(b->at, "grows_with_key"),
			      "'grows_with_key' goes with 'age', not with 'expires'");
	if (b->grows_with_key && b->key.count != 1)
		return refuse(r, node_get(b->at, "grows_with_key"),
			      "'grows_with_key' needs a key of one column");
	if (quota && orders_by_text(b->unit))
		return refuse(
			r, node_get(b->at, "time"),
			"'keep_newest' and 'at_most' need times that sort as they are: not %s",
			contract_time_name(b->unit));
	if (b->at_most.count && b->keep_newest.count > b->at_most.count)
		return refuse(r, b->keep_newest.at,
			      "'keep_newest' keeps %lld rows, more than the %lld of 'at_most'",
			      (long long)b->keep_newest.count, (long long)b->at_most.count);
	return LAPSE_OK;
}

/* A reference without a schema is in the schema of its bound. */
static void fill_schemas(struct contract_bound *b, enum foreign_engine engine)
{
	assert(b->table && b->scheduler && b->time_column);
	if (!b->schema)
		b->schema = engine == FOREIGN_POSTGRES ? "public" : "main";
	for (size_t i = 0; i < b->unless_count; i++)
		if (!b->unless[i].schema)
			b->unless[i].schema = b->schema;
	for (size_t i = 0; i < b->together_count; i++)
		if (!b->together[i].schema)
			b->together[i].schema = b->schema;
}

static int refuse_twin_bound(struct reader *r, const struct node *at, const char *name)
{
	for (size_t i = 0; i < r->c->bounds_count; i++)
		if (strcmp(r->c->bounds[i].name, name) == 0)
			return refuse(r, at,
				      "two bounds are called '%s': give one of them another 'name'",
				      strchr(name, ':') + 1);
	return LAPSE_OK;
}

static int decode_bound(struct reader *r, const struct node *n, const struct contract_pace *pace)
{
	struct contract *c = r->c;
	struct draft *CLEANUP(mem_freep) d = mem_zalloc(1, sizeof(*d));

	assert(c->bounds && c->bounds_count < CONTRACT_BOUNDS_MAX);
	d->bound.at = n;
	d->bound.pace = *pace;
	int err = decode_map(r, n, "a bound", BOUND_FIELDS, d);
	if (err == LAPSE_OK)
		err = decode_due(r, d);
	if (err == LAPSE_OK)
		err = check_bound_fields(r, &d->bound);
	if (err < 0)
		return err;
	fill_schemas(&d->bound, c->engine);
	d->bound.name = arena_printf(&c->document.arena, "%s:%s", c->name,
				     d->name ? d->name : d->bound.table);
	err = refuse_twin_bound(r, n, d->bound.name);
	if (err == LAPSE_OK)
		c->bounds[c->bounds_count++] = d->bound;
	return err;
}

int decode_bounds(struct reader *r, const struct node *n, const struct contract_pace *pace)
{
	if (n->kind != NODE_LIST || n->count == 0 || n->count > CONTRACT_BOUNDS_MAX)
		return refuse(r, n, "'bounds' must be a list of 1 to %d bounds",
			      CONTRACT_BOUNDS_MAX);
	r->c->bounds = mem_zalloc(n->count, sizeof(*r->c->bounds));
	for (const struct node *i = n->first; i; i = i->next) {
		int err = decode_bound(r, i, pace);
		if (err < 0)
			return err;
	}
	return LAPSE_OK;
}
