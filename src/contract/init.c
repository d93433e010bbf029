/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In two rounds: the first writes every guess as a contract and checks it; the second writes the
 * file with what the check said. So the guesses need no rules of their own about indexes.
 */
#include "contract/init.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What a column's name says, best first. A pattern matches the whole name; a star at its begin or
 * end stands for anything. */
struct hint {
	const char *pattern;
	const char *keep; /* NULL: the column holds the deadline itself */
	const char *why;
	bool appended; /* set when the row is made, and not changed: it grows with a serial key */
};

static const struct hint HINTS[] = {
	{ "lease_expires_at*", NULL, "the name says it is the end of a lease", false },
	{ "*expires_at*", NULL, "the name says it is a deadline", false },
	{ "*expiresat*", NULL, "the name says it is a deadline", false },
	{ "expires*", NULL, "the name says it is a deadline", false },
	{ "*expiry*", NULL, "the name says it is a deadline", false },
	{ "*expiration*", NULL, "the name says it is a deadline", false },
	{ "*valid_until*", NULL, "the name says it is a deadline", false },
	{ "*delete_after*", NULL, "the name says it is a deadline", false },
	{ "*_deadline*", NULL, "the name says it is a deadline", false },
	{ "last_seen*", "7d", "rows that are not seen any more pile up", false },
	{ "updated_at*", "30d", "rows that are not updated any more pile up", false },
	{ "finished_at*", "30d", "finished work piles up", false },
	{ "completed_at*", "30d", "finished work piles up", false },
	{ "processed_at*", "30d", "finished work piles up", false },
	{ "received_at*", "30d", "what was received piles up", true },
	{ "sent_at*", "30d", "what was sent piles up", false },
	{ "occurred_at*", "30d", "records of what happened pile up", true },
	{ "created_at*", "30d", "records pile up", true },
	{ "inserted_at*", "30d", "records pile up", true },
	{ "timestamp*", "30d", "records pile up", true },
};

/* Tables whose rows are made by work, not by people: only these are proposed a window. */
static const char *const WORK[] = { "log",       "event",   "outbox",   "inbox",   "job",
				    "queue",     "session", "token",    "cache",   "attempt",
				    "history",   "deliver", "notif",    "lease",   "lock",
				    "heartbeat", "audit",   "request",  "dedupe",  "presence",
				    "task_run",  "metric",  "snapshot", "run",     "message",
				    "consumer",  "visit",   "trace",    "webhook", "upload" };

static bool hint_fits(const struct hint *h, const char *name)
{
	const char *p = h->pattern;
	size_t n = strlen(p);
	bool open_begin = p[0] == '*', open_end = p[n - 1] == '*';
	char core[64];

	assert(n < sizeof(core));
	snprintf(core, sizeof(core), "%.*s", (int)(n - open_begin - open_end), p + open_begin);
	const char *at = strcasestr(name, core);
	if (!at || (!open_begin && at != name))
		return false;
	return open_end || at[strlen(core)] == '\0';
}

static bool is_work(const char *table)
{
	for (size_t i = 0; i < ARRAY_LEN(WORK); i++)
		if (strcasestr(table, WORK[i]))
			return true;
	return false;
}

static bool holds_time(const struct table_column *c, enum foreign_engine engine)
{
	switch (c->class) {
	case COLUMN_INT:
	case COLUMN_TEXT:
	case COLUMN_TIMESTAMPTZ:
	case COLUMN_TIMESTAMP:
	case COLUMN_DATE:
		return true;
	case COLUMN_OTHER:
		return engine == FOREIGN_SQLITE;
	case COLUMN_REAL:
	case COLUMN_UUID:
	case COLUMN_BOOL:
		break;
	}
	return false;
}

struct guess {
	struct relation *relation;
	const struct table_column *column; /* NULL = there is nothing to propose */
	const struct hint *hint;
	const struct index *key;

	/* What the first check of it taught. */
	const char *time; /* the unit of its numbers; NULL = as the check finds it */
	bool grows;       /* no index leads to the time, but the key may grow with it */
};

static void guess_column(struct guess *g, enum foreign_engine engine)
{
	for (size_t i = 0; i < ARRAY_LEN(HINTS); i++)
		for (size_t j = 0; j < g->relation->columns_count; j++) {
			const struct table_column *c = &g->relation->columns[j];
			if (!hint_fits(&HINTS[i], c->name) || !holds_time(c, engine) ||
			    (HINTS[i].keep && !is_work(g->relation->table)))
				continue;
			g->column = c;
			g->hint = &HINTS[i];
			return;
		}
}

/* The primary key, else the first unique index whose columns cannot be NULL. */
static void guess_key(struct guess *g)
{
	const struct relation *r = g->relation;

	for (size_t i = 0; i < r->indexes_count; i++) {
		const struct index *x = &r->indexes[i];
		bool usable = x->unique && !x->partial && x->count <= CONTRACT_COLUMNS_MAX;
		for (size_t j = 0; usable && j < x->count; j++)
			usable = x->columns[j] &&
				 (x->primary || relation_column(r, x->columns[j])->not_null);
		if (usable && (!g->key || x->primary))
			g->key = x;
	}
}

static bool is_plain(const char *text)
{
	static const char *const words[] = { "null", "true", "false", "yes", "no",
					     "on",   "off",  "y",     "n" };

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strcasecmp(text, words[i]) == 0)
			return false;
	if (!isalpha((unsigned char)text[0]) && text[0] != '_')
		return false;
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && *text != '_')
			return false;
	return true;
}

/* A name as YAML: in double quotes where it could be read as anything else. */
static void put_name(struct buf *out, const char *name)
{
	if (is_plain(name)) {
		buf_puts(out, name);
		return;
	}
	buf_putc(out, '"');
	for (; *name; name++)
		if (*name == '"' || *name == '\\')
			buf_printf(out, "\\%c", *name);
		else if (iscntrl((unsigned char)*name))
			buf_printf(out, "\\x%02x", (unsigned char)*name);
		else
			buf_putc(out, *name);
	buf_putc(out, '"');
}

static void put_name_list(struct buf *out, const char *const *names, size_t count)
{
	buf_putc(out, '[');
	for (size_t i = 0; i < count; i++) {
		buf_puts(out, i ? ", " : "");
		put_name(out, names[i]);
	}
	buf_putc(out, ']');
}

static void put_on(struct buf *out, const struct guess *g, const struct foreign_key *k)
{
	buf_puts(out, "on: { ");
	for (size_t i = 0; i < k->count; i++) {
		const char *ours = k->parent_columns[i] ? k->parent_columns[i] : g->key->columns[i];
		buf_puts(out, i ? ", " : "");
		put_name(out, k->child_columns[i]);
		buf_puts(out, ": ");
		put_name(out, ours);
	}
	buf_puts(out, " }");
}

static bool is_proposable(const struct guess *g, const struct foreign_key *k)
{
	size_t named = 0;

	for (size_t i = 0; i < k->count; i++)
		named += k->parent_columns[i] || i < g->key->count;
	return named == k->count && k->count <= CONTRACT_COLUMNS_MAX;
}

/* Foreign keys of one action, as entries of a list. */
static void put_foreign_keys(struct buf *out, const struct guess *g, enum key_action action,
			     const char *field, const char *table)
{
	bool first = true;

	for (size_t i = 0; i < g->relation->referrers_count && i < CONTRACT_REFERENCES_MAX; i++) {
		const struct foreign_key *k = &g->relation->referrers[i];
		if (k->action != action || !is_proposable(g, k))
			continue;
		if (first)
			buf_printf(out, "    %s:\n", field);
		first = false;
		buf_printf(out, "      - { %s: ", table);
		put_name(out, k->child);
		if (strcmp(k->child_schema, g->relation->schema) != 0) {
			buf_puts(out, ", schema: ");
			put_name(out, k->child_schema);
		}
		buf_puts(out, ", ");
		put_on(out, g, k);
		buf_puts(out, " }\n");
	}
}

static void put_bound(struct buf *out, const struct guess *g, enum foreign_engine engine)
{
	const struct relation *r = g->relation;
	const char *home = engine == FOREIGN_POSTGRES ? "public" : "main";

	buf_puts(out, "  - table: ");
	put_name(out, r->table);
	if (strcmp(r->schema, home) != 0) {
		buf_puts(out, "\n    schema: ");
		put_name(out, r->schema);
		buf_puts(out, "\n    name: ");
		buf_printf(out, "bound%zu", out->len); /* the table's own name may be taken */
	}
	buf_puts(out, "\n    scheduler: tables\n    key: ");
	put_name_list(out, g->key->columns, g->key->count);
	buf_printf(out, "\n    %s", g->hint->keep ? "age: { of: " : "expires: ");
	put_name(out, g->column->name);
	if (g->hint->keep)
		buf_printf(out, ", keep: %s }", g->hint->keep);
	buf_puts(out, "\n");
	if (g->time)
		buf_printf(out, "    time: %s\n", g->time);
	if (g->grows)
		buf_puts(out, "    grows_with_key: true\n");
	put_foreign_keys(out, g, ACTION_BLOCKS, "unless_referenced", "by");
	put_foreign_keys(out, g, ACTION_CASCADES, "together_with", "table");
}

/* With a password in it, a URI does not belong into a file. */
static void put_head(struct buf *out, const char *database)
{
	const char *user = strstr(database, "://"), *at = user ? strchr(user, '@') : NULL;
	const char *colon = user ? strchr(user + 3, ':') : NULL;
	bool secret = at && colon && colon < at;

	buf_puts(out, "contract: 1\nname: app\ndatabase: ");
	if (secret || strstr(database, "password="))
		buf_puts(out,
			 "${APP_DATABASE_URL}   # it has a password, which does not belong here\n");
	else {
		put_name(out, database);
		buf_puts(out, "\n");
	}
	buf_puts(out, "schedulers:\n  tables: { every: 5m }\n\nbounds:\n");
}

static _Thread_local const char *init_database;

static const char *init_environment(const char *name)
{
	(void)name;
	return init_database;
}

/* A number column without a unit in its name and without rows: milliseconds are the guess. */
static const char *guess_time(const struct guess *g)
{
	size_t n = strlen(g->column->name);

	if (g->column->class != COLUMN_INT ||
	    (n > 3 && strcmp(g->column->name + n - 3, "_ms") == 0))
		return NULL;
	return "ms";
}

/* The findings of one guess, checked as a contract of its own. */
static int check_guess(struct foreign *f, const struct guess *g, const char *database, lapse_ms now,
		       struct checked *ret, struct contract **ret_contract)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct buf CLEANUP(buf_done) error = { 0 };

	put_head(&text, database);
	put_bound(&text, g, f->engine);
	init_database = database;
	int err = contract_parse("guess", buf_text(&text), text.len, init_environment, ret_contract,
				 &error);
	if (err < 0)
		return foreign_fail(f, err, buf_text(&error));
	err = contract_check(f, *ret_contract, now, ret);
	if (err < 0) {
		contract_free(*ret_contract);
		*ret_contract = NULL;
	}
	return err;
}

/* Whether the only bound of a checked guess can be kept. */
static bool guess_is_usable(const struct checked *checked)
{
	assert(checked->rules);
	return checked->rules[0] != NULL;
}

static void comment_out(struct buf *out, const char *text)
{
	while (*text) {
		const char *end = strchr(text, '\n');
		buf_puts(out, "  # ");
		buf_add(out, text + 2, (size_t)(end - text) - 1);
		text = end + 1;
	}
}

static void put_findings(struct buf *out, const struct checked *checked)
{
	for (const struct finding *i = checked->findings.first; i; i = i->next) {
		if (!i->bound[0] || i->level == FINDING_NOTE)
			continue;
		buf_printf(out, "  # %s: %s\n", finding_level_name(i->level), i->text);
		if (i->fix)
			buf_printf(out, "  #   %s\n", i->fix);
	}
}

/* Checks a guess, and a second form of it if the first cannot be used. */
static int check_again(struct foreign *f, struct guess *g, const char *database, lapse_ms now,
		       struct checked *checked, struct contract **c)
{
	checked_done(checked);
	contract_free(*c);
	*c = NULL;
	return check_guess(f, g, database, now, checked, c);
}

/* Rows that are only appended lie in the order of a serial key, so they need no index. */
static bool may_grow(const struct guess *g)
{
	return g->hint->appended && g->key->count == 1 &&
	       relation_column(g->relation, g->key->columns[0])->class == COLUMN_INT;
}

/* A guess that no form makes usable stays as it was, with what the check found. */
static int find_usable_form(struct foreign *f, struct guess *g, const char *database, lapse_ms now,
			    struct checked *checked, struct contract **c)
{
	int err = check_guess(f, g, database, now, checked, c);

	if (err == LAPSE_OK && !guess_is_usable(checked) && guess_time(g)) {
		g->time = guess_time(g);
		err = check_again(f, g, database, now, checked, c);
	}
	if (err < 0 || guess_is_usable(checked) || !may_grow(g))
		return err;
	g->grows = true;
	err = check_again(f, g, database, now, checked, c);
	if (err == LAPSE_OK && !guess_is_usable(checked)) {
		g->grows = false;
		err = check_again(f, g, database, now, checked, c);
	}
	return err;
}

static int write_guess(struct foreign *f, struct guess *g, const char *database, lapse_ms now,
		       struct buf *out, bool *ret_used)
{
	struct contract *CLEANUP(contract_freep) c = NULL;
	struct buf CLEANUP(buf_done) bound = { 0 };
	struct checked checked = { 0 };
	int err = find_usable_form(f, g, database, now, &checked, &c);

	if (err < 0)
		return err;
	*ret_used = guess_is_usable(&checked);
	buf_printf(out, "  # %s: %s of '%s': %s.\n", g->relation->table,
		   g->hint->keep ? "the age" : "the time", g->column->name, g->hint->why);
	if (g->grows)
		buf_printf(out,
			   "  # No index leads to '%s'. Rows are walked in the order of the key "
			   "'%s', because they are only\n  # appended and the key grows with the "
			   "time. If old rows can get new keys, make an index instead.\n",
			   g->column->name, g->key->columns[0]);
	put_findings(out, &checked);
	put_bound(&bound, g, f->engine);
	if (*ret_used)
		buf_add(out, bound.data, bound.len);
	else
		comment_out(out, buf_text(&bound));
	buf_puts(out, "\n");
	checked_done(&checked);
	return LAPSE_OK;
}

static int look_at_table(struct foreign *f, const char *schema, const char *table,
			 const char *database, lapse_ms now, struct buf *out, struct buf *without,
			 size_t *used)
{
	struct relation *CLEANUP(relation_freep) relation = NULL;
	int err = relation_read(f, schema, table, &relation);
	bool is_used = false;

	if (err < 0)
		return err;
	struct guess g = { .relation = relation };
	guess_column(&g, f->engine);
	guess_key(&g);
	if (!g.column || !g.key) {
		buf_printf(without, "# - %s: %s\n", table,
			   g.column ? "it has no primary key and no unique index"
				    : "no column says when a row may go");
		return LAPSE_OK;
	}
	err = write_guess(f, &g, database, now, out, &is_used);
	*used += is_used;
	return err;
}

int contract_init(struct foreign *f, const char *database, lapse_ms now, struct buf *out)
{
	struct buf CLEANUP(buf_done) without = { 0 };
	struct buf CLEANUP(buf_done) bounds = { 0 };
	struct rows CLEANUP(rows_done) tables;
	size_t used = 0;

	rows_init(&tables);
	int err = catalogue_tables(f, &tables);
	for (size_t i = 0; err == LAPSE_OK && i < tables.count; i++)
		err = look_at_table(f, rows_text(&tables, i, 0), rows_text(&tables, i, 1), database,
				    now, &bounds, &without, &used);
	if (err < 0)
		return err;
	buf_printf(
		out,
		"# A first contract, guessed from the names and types of %zu tables. Nothing is\n"
		"# removed until you apply it. Read every bound, set the windows you want, then:\n"
		"#   lapse contract check FILE\n#   lapse contract plan FILE\n",
		tables.count);
	put_head(out, database);
	buf_add(out, bounds.data ? bounds.data : "", bounds.len);
	if (used == 0)
		buf_puts(out,
			 "  # No bound can be used as it is: add one here before you apply it.\n");
	if (without.len > 0)
		buf_printf(out, "# Without a proposal:\n%s", buf_text(&without));
	return LAPSE_OK;
}
