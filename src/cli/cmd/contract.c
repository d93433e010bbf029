/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts without a daemon: init, check and plan connect to the user's database themselves. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"
#include "contract/init.h"
#include "contract/report.h"

/* getenv() with the type that contracts want. */
static const char *contract_environment(const char *name)
{
	return getenv(name);
}

/* A contract and its database, open. */
struct opened {
	struct contract *contract;
	struct foreign *f;
	struct checked checked;
	bool is_checked;
};

static void opened_done(struct opened *o)
{
	if (o->is_checked)
		checked_done(&o->checked);
	foreign_close(o->f);
	contract_free(o->contract);
}

static enum outcome open_contract(struct cli *cli, struct opened *o)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	const char *file = args_operand(&cli->args, 0);

	if (contract_read(file, contract_environment, &o->contract, &error) < 0 ||
	    contract_connect(o->contract, &o->f, &error) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", buf_text(&error));
	if (contract_check(o->f, o->contract, cli->now, &o->checked) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s: %s", file, foreign_error(o->f));
	o->is_checked = true;
	return OUTCOME_OK;
}

static void print_finding(const struct cli *cli, const char *file, const struct finding *f)
{
	static const char *const styles[] = { STYLE_DIM, STYLE_YELLOW, STYLE_RED };
	struct buf CLEANUP(buf_done) line = { 0 };
	struct buf CLEANUP(buf_done) safe = { 0 };

	buf_printf(&line, "%s:%d:%d: ", file, f->line, f->column);
	text_escape(&safe, buf_text(&line), line.len);
	text_styled(cli, &safe, styles[f->level], finding_level_name(f->level));
	buf_clear(&line);
	buf_printf(&line, ": %s%s%s", f->bound, f->bound[0] ? ": " : "", f->text);
	text_escape(&safe, buf_text(&line), line.len);
	if (f->fix) {
		buf_puts(&safe, "\n    ");
		text_escape(&safe, f->fix, strlen(f->fix));
	}
	puts(buf_text(&safe));
}

static void print_check(const struct cli *cli, const struct opened *o)
{
	const struct findings *f = &o->checked.findings;
	size_t kept = 0;

	for (const struct finding *i = f->first; i; i = i->next)
		print_finding(cli, args_operand(&cli->args, 0), i);
	for (size_t i = 0; i < o->checked.count; i++)
		kept += o->checked.rules[i] != NULL;
	printf("%s: %zu of %zu bounds can be kept; errors: %zu, warnings: %zu, notes: %zu\n",
	       o->contract->name, kept, o->checked.count, f->counts[FINDING_ERROR],
	       f->counts[FINDING_WARNING], f->counts[FINDING_NOTE]);
}

/* What was made as text, for --json. */
static bool show_made_text(const struct cli *cli, const struct buf *text)
{
	json_t *CLEANUP(json_freep) json = json_loads(buf_text(text), 0, NULL);

	return show_made_json(cli, json);
}

enum outcome cmd_contract_check(struct cli *cli)
{
	struct opened CLEANUP(opened_done) o = { 0 };
	struct buf CLEANUP(buf_done) report = { 0 };
	enum outcome r = open_contract(cli, &o);

	if (r != OUTCOME_OK)
		return r;
	report_check(o.contract, &o.checked, &report);
	if (!show_made_text(cli, &report))
		print_check(cli, &o);
	const size_t *counts = o.checked.findings.counts;
	return counts[FINDING_ERROR] + counts[FINDING_WARNING] ? OUTCOME_REFUSED : OUTCOME_OK;
}

enum outcome cmd_contract_plan(struct cli *cli)
{
	static const struct column columns[] = {
		{ "BOUND", "bound", CELL_TEXT },
		{ "ROWS", "rows", CELL_DUE },
		{ "EXACT", "exact", CELL_FLAG },
		{ "OF", "table_rows", CELL_COUNT },
		{ "%", "share_percent", CELL_COUNT },
		{ "BYTES", "bytes", CELL_BYTES },
		{ "OLDEST", "oldest", CELL_AGE },
		{ "NEWEST", "newest", CELL_AGE },
		{ "TAKES", "duration_ms", CELL_SPAN },
		{ "ASKS", "asks", CELL_FLAG },
		{ "DEPENDENTS", "dependents", CELL_COUNT },
		{ "PROTECTED", "protected", CELL_COUNT },
		{ "SAMPLE", "sample", CELL_TEXTS },
		{ "ERROR", "error", CELL_TEXT },
		{ 0 },
	};
	struct opened CLEANUP(opened_done) o = { 0 };
	struct buf CLEANUP(buf_done) report = { 0 };
	struct plan plan = { 0 };
	enum outcome r = open_contract(cli, &o);

	if (r != OUTCOME_OK)
		return r;
	if (contract_plan(o.f, o.contract, &o.checked, cli->now, &plan) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", foreign_error(o.f));
	report_plan(o.contract, &plan, &report);
	plan_done(&plan);
	json_t *CLEANUP(json_freep) json = json_loads(buf_text(&report), 0, NULL);
	if (!show_made_json(cli, json))
		r = show_rows(cli, json_object_get(json, "data"), columns, "no bounds");
	return r == OUTCOME_OK && o.checked.findings.counts[FINDING_ERROR] ? OUTCOME_REFUSED : r;
}

/* `sqlite:PATH`, `postgresql://…`, or the path of a file that is there. */
static const char *database_of(struct cli *cli)
{
	const char *text = args_operand(&cli->args, 0), *target;
	enum foreign_engine engine;

	if (contract_database(text, &engine, &target) == LAPSE_OK)
		return text;
	if (access(text, F_OK) == 0)
		return arena_printf(&cli->arena, "sqlite:%s", text);
	return NULL;
}

enum outcome cmd_contract_init(struct cli *cli)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	struct buf CLEANUP(buf_done) out = { 0 };
	struct foreign *CLEANUP(foreign_closep) f = NULL;
	struct contract c = { 0 };
	const char *database = database_of(cli);

	if (!database)
		return cli_usage(cli, "DATABASE must be sqlite:/path/to/file or postgresql://…");
	contract_database(database, &c.engine, &c.database);
	if (contract_connect(&c, &f, &error) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", buf_text(&error));
	if (contract_init(f, database, cli->now, &out) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", foreign_error(f));
	fputs(buf_text(&out), stdout);
	return OUTCOME_OK;
}
