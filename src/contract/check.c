/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/check.h"

#include <assert.h>

#include "contract/lease.h"
#include "contract/replica.h"
#include "contract/statement.h"

int contract_connect(const struct contract *c, struct foreign **ret, struct buf *error)
{
	struct foreign_config config = { .engine = c->engine,
					 .target = c->database,
					 .statement_ms = FOREIGN_STATEMENT_MS,
					 .lock_ms = FOREIGN_LOCK_MS,
					 .transaction_ms = FOREIGN_TRANSACTION_MS };

	return foreign_open(&config, ret, error);
}

void checked_done(struct checked *c)
{
	for (size_t i = 0; i < c->count; i++)
		rule_free(c->rules[i]);
	free(c->rules);
	c->rules = NULL;
	c->count = 0;
	findings_done(&c->findings);
}

#define SAMPLE_ROWS 1000
#define ORDER_SLACK_MS 60000 /* writers that commit late */

/* Reads a page in key order from one end and tells its earliest and latest time. */
static int sample_times(struct foreign *f, const struct rule *r, const struct datum *after,
			struct rows *rows, lapse_ms *ret_first, lapse_ms *ret_last, int *ret_steps)
{
	struct statement CLEANUP(statement_done) st;
	struct scan s = {
		.rule = r, .leaf = &r->relation->leaves[0], .after = after, .limit = SAMPLE_ROWS
	};
	lapse_ms at, last = INT64_MIN;

	assert(r->relation->leaves_count > 0);
	statement_init(&st, r->dialect);
	statement_scan(&st, &s);
	int err = statement_read(&st, f, rows);
	*ret_first = LAPSE_NEVER;
	*ret_steps = 0;
	for (size_t i = 0; err == LAPSE_OK && i < rows->count; i++) {
		if (!scan_time(r, rows, i, &at))
			continue;
		*ret_first = at < *ret_first ? at : *ret_first;
		*ret_steps += at < time_sub(last, ORDER_SLACK_MS);
		last = at > last ? at : last;
	}
	*ret_last = last;
	return err;
}

/* A key that is walked must grow with the time: looks at the first rows, and at some from the
 * middle of an integer key. */
static int check_order(struct foreign *f, const struct rule *r, struct findings *out)
{
	struct rows CLEANUP(rows_done) rows;
	const struct table_column *key = relation_column(r->relation, r->bound->key.names[0]);
	lapse_ms first, last, later_first = LAPSE_NEVER, later_last;
	int steps = 0, later_steps = 0;

	assert(r->walk == RULE_BY_KEY && key);
	rows_init(&rows);
	int err = sample_times(f, r, NULL, &rows, &first, &last, &steps);
	if (err < 0)
		return err;
	if (rows.count == SAMPLE_ROWS && key->class == COLUMN_INT) {
		int64_t last_key = rows_int(&rows, rows.count - 1, SCAN_KEY);
		struct datum middle =
			datum_int(time_add(last_key, last_key)); /* it does not overflow */
		err = sample_times(f, r, &middle, &rows, &later_first, &later_last, &later_steps);
	}
	if (err == LAPSE_OK &&
	    (steps || later_steps || later_first < time_sub(last, ORDER_SLACK_MS)))
		finding_add(out, FINDING_ERROR, r->bound, node_get(r->bound->at, "grows_with_key"),
			    NULL,
			    "the key '%s' does not grow with '%s': older rows have larger keys",
			    r->bound->key.names[0], r->bound->time_column);
	return err;
}

#define UNTIMED_CAP 1000
#define UNTIMED_LIMIT_MS 2000

/* Rows without a time never go; it is worth knowing how many there are. */
static int tell_of_untimed(struct foreign *f, const struct rule *r, struct findings *out)
{
	struct statement CLEANUP(statement_done) st;
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	statement_init(&st, r->dialect);
	if (relation_column(r->relation, r->bound->time_column)->not_null &&
	    r->time != RULE_TIME_JUDGED)
		return LAPSE_OK;
	statement_count_untimed(&st, r, UNTIMED_CAP);
	foreign_limit(f, UNTIMED_LIMIT_MS);
	int err = statement_read(&st, f, &rows);
	foreign_limit(f, FOREIGN_STATEMENT_MS);
	if (err == LAPSE_ETIMEOUT)
		return LAPSE_OK;
	if (err == LAPSE_OK && rows_int(&rows, 0, 0) > 0)
		finding_add(out, FINDING_NOTE, r->bound, r->bound->time_at, NULL,
			    "%s%lld rows have no '%s' and are undeletable",
			    rows_int(&rows, 0, 0) == UNTIMED_CAP ? "at least " : "",
			    (long long)rows_int(&rows, 0, 0), r->bound->time_column);
	return err;
}

static int tell_of_unit(const struct rule *r, struct findings *out)
{
	if (r->bound->unit == TIME_BY_TYPE)
		finding_add(out, FINDING_NOTE, r->bound, r->bound->time_at, NULL,
			    "'%s' is read as time: %s", r->bound->time_column,
			    contract_time_name(r->unit));
	return LAPSE_OK;
}

static int check_bound(struct foreign *f, const struct contract_bound *b, struct findings *out,
		       struct rule **ret)
{
	size_t errors = out->counts[FINDING_ERROR];
	int err = rule_resolve(f, b, out, ret);

	if (err < 0 || !*ret)
		return err;
	tell_of_unit(*ret, out);
	if ((*ret)->walk == RULE_BY_KEY)
		err = check_order(f, *ret, out);
	if (err == LAPSE_OK && (*ret)->walk != RULE_BY_KEY)
		err = tell_of_untimed(f, *ret, out);
	if (out->counts[FINDING_ERROR] > errors) {
		rule_free(*ret);
		*ret = NULL;
	}
	return err;
}

/* What is about the database as a whole: its clock, and how replicas agree on who sweeps. */
static int check_database(struct foreign *f, const struct contract *c, lapse_ms now,
			  struct findings *out)
{
	struct replica_lag replicas;
	lapse_ms theirs;
	bool leases;
	int err = foreign_now(f, &theirs);

	if (err < 0)
		return err;
	if (theirs - now > CLOCKS_APART_MS || now - theirs > CLOCKS_APART_MS)
		finding_add(
			out, FINDING_ERROR, NULL, c->database_at, NULL,
			"the clock of the database and of this machine are %lld s apart; nothing "
			"is removed while they are more than %d s apart",
			(long long)((theirs > now ? theirs - now : now - theirs) / 1000),
			CLOCKS_APART_MS / 1000);
	err = replica_lag_read(f, &replicas);
	if (err == LAPSE_OK && replicas.standbys > 0 && !replicas.visible)
		finding_add(out, FINDING_WARNING, NULL, c->database_at,
			    "GRANT pg_read_all_stats TO CURRENT_USER;",
			    "the connection may not see how far standbys are behind, so "
			    "'replica_lag_max' has no effect");
	if (err == LAPSE_OK)
		err = lease_table_exists(f, &leases);
	if (err == LAPSE_OK && !leases && c->engine == FOREIGN_POSTGRES)
		finding_add(out, FINDING_NOTE, NULL, c->database_at,
			    "lapse contract apply FILE --create-lease-table",
			    "with several daemons the table lapse_leases makes them take turns per "
			    "scheduler; without it they take turns per slice");
	return err;
}

/* Filled in place: findings hold pointers into themselves. */
int contract_check(struct foreign *f, const struct contract *c, lapse_ms now, struct checked *ret)
{
	assert(!f->in_transaction && c->bounds_count > 0);
	ret->rules = mem_zalloc(c->bounds_count, sizeof(*ret->rules));
	ret->count = c->bounds_count;
	findings_init(&ret->findings);
	int err = check_database(f, c, now, &ret->findings);
	for (size_t i = 0; err == LAPSE_OK && i < c->bounds_count; i++)
		err = check_bound(f, &c->bounds[i], &ret->findings, &ret->rules[i]);
	if (err < 0)
		checked_done(ret);
	return err;
}

void rule_describe(const struct rule *r, struct buf *out)
{
	switch (r->walk) {
	case RULE_BY_TIME:
		buf_printf(out, "by index %s", r->index);
		return;
	case RULE_BY_GROUPS:
		buf_printf(out, "by index %s, one walk per", r->index);
		for (size_t i = 0; i < r->groups.count; i++)
			buf_printf(out, "%s %s", i ? "," : "", r->groups.names[i]);
		return;
	case RULE_BY_KEY:
		buf_puts(out, "by key");
		return;
	}
	assert(0 && "no such walk");
}
