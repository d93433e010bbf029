/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: matrix, sweep, backup. */
#include <string.h>

#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define LONG_WORK_MS 3600000 /* a sweep of millions of rows, a copy of a large database */

/* row.why = what keeps rows that are due, and whom the bound waits for: "held 3, locked 1". */
static void matrix_say_why(json_t *row)
{
	struct buf CLEANUP(buf_done) why = { 0 };
	const char *reason;
	json_t *rows;

	json_object_foreach (json_object_get(row, "undeletable"), reason, rows)
		if (json_integer_value(rows) > 0) {
			buf_printf(&why, "%s%s ", why.len ? ", " : "", reason);
			text_count(&why, json_integer_value(rows));
		}
	if (json_is_true(json_object_get(row, "waits_for_approval")))
		buf_printf(&why, "%swaits for approval", why.len ? ", " : "");
	const char *problem = json_string_value(json_object_get(row, "problem"));
	if (problem)
		buf_printf(&why, "%s%s", why.len ? "; " : "", problem);
	if (why.len > 0)
		json_object_set_new(row, "why", json_stringn(buf_text(&why), why.len));
}

/* A table that fits the terminal; below it what each table with trouble has, line by line. */
static enum outcome matrix_print(const struct cli *cli, const json_t *rows,
				 const struct column *columns)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	const json_t *row;
	size_t i;

	if (cli->columns == 0 || args_has(&cli->args, OPT_WIDE) ||
	    args_has(&cli->args, OPT_COLUMNS))
		return show_rows(cli, rows, columns, "no tables");
	show_table(cli, rows, columns, FOLD_DROP, &out);
	json_array_foreach (rows, i, row) {
		struct buf CLEANUP(buf_done) line = { 0 };
		if (!json_object_get(row, "why"))
			continue;
		show_value(cli, json_object_get(row, "table"), CELL_TEXT, &line);
		buf_puts(&line, ": ");
		show_value(cli, json_object_get(row, "why"), CELL_TEXT, &line);
		text_wrap(&out, buf_text(&line), 0, (size_t)cli->columns, 2);
		buf_putc(&out, '\n');
	}
	fputs(out.len > 0 ? buf_text(&out) : "no tables\n", stdout);
	return OUTCOME_OK;
}

enum outcome cmd_matrix(struct cli *cli)
{
	/* What fits, from the left: what is wrong comes first, what never changes last. */
	static const struct column columns[] = {
		{ "TABLE", "table", CELL_TEXT },
		{ "DUE", "due_rows", CELL_DUE },
		{ "OLDEST DUE", "oldest_due_age_ms", CELL_SPAN },
		{ "CLEARS IN", "clears_in_ms", CELL_SPAN },
		{ "KEPT", "undeletable_rows", CELL_COUNT },
		{ "LAST SUCCESS", "last_success_at", CELL_AGE },
		{ "PRUNED", "pruned_total", CELL_COUNT },
		{ "LIVE", "live_rows", CELL_COUNT },
		{ "ROWS/S", "rows_per_second", CELL_COUNT },
		{ "SCHEDULER", "scheduler", CELL_TEXT },
		{ "WINDOW", "window_ms", CELL_SPAN },
		{ "LAST SWEEP", "last_sweep_at", CELL_AGE },
		{ "WHY", "why", CELL_LONG },
		{ "PATHS", "paths", CELL_TEXTS },
		{ "ACTION", "action", CELL_TEXT },
		{ "DUE WHEN", "due_when", CELL_TEXT },
		{ "SAFETY RULE", "safety_rule", CELL_TEXT },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	json_t *row;
	size_t i;

	enum outcome r = client_call(
		cli, &(struct request){ .method = "GET", .path = "/v1/matrix" }, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	json_array_foreach (json_object_get(answer.json, "data"), i, row)
		matrix_say_why(row);
	return matrix_print(cli, json_object_get(answer.json, "data"), columns);
}

/* What only a sweep with deletions outside has. */
static void put_deletions(const struct cli *cli, const json_t *sweep, struct buf *out)
{
	static const struct {
		const char *key, *name;
	} numbers[] = {
		{ "expired", "expired" },           { "retried", "retried" },
		{ "cleaned", "cleaned" },           { "failed", "failed" },
		{ "dead_letters", "dead letters" },
	};

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		const json_t *value = json_object_get(sweep, numbers[i].key);
		if (!value)
			continue;
		buf_printf(out, "\n  %s ", numbers[i].name);
		show_value(cli, value, CELL_COUNT, out);
	}
}

static void print_sweep(const struct cli *cli, const json_t *sweep)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	const char *table;
	json_t *rows;
	bool dry = json_is_true(json_object_get(sweep, "dry_run"));

	show_value(cli, json_object_get(sweep, "scheduler"), CELL_TEXT, &out);
	buf_puts(&out, dry ? ": would remove " : ": removed ");
	show_value(cli, json_object_get(sweep, "pruned"), CELL_COUNT, &out);
	buf_puts(&out,
		 json_integer_value(json_object_get(sweep, "pruned")) == 1 ? " row" : " rows");
	buf_puts(&out, " in ");
	show_value(cli, json_object_get(sweep, "duration_ms"), CELL_SPAN, &out);
	json_object_foreach (json_object_get(sweep, "tables"), table, rows) {
		buf_puts(&out, "\n  ");
		text_escape(&out, table, strlen(table));
		buf_puts(&out, " ");
		show_value(cli, rows, CELL_COUNT, &out);
	}
	put_deletions(cli, sweep, &out);
	puts(buf_text(&out));
}

enum outcome cmd_sweep(struct cli *cli)
{
	struct request CLEANUP(request_done)
		request = { .method = "POST",
			    .path = "/v1/sweep/%",
			    .segments = { args_operand(&cli->args, 0) },
			    .timeout_ms = LONG_WORK_MS };
	struct answer CLEANUP(answer_done) answer = { 0 };

	if (args_has(&cli->args, OPT_DRY_RUN))
		request_query(&request, "dry_run", "true");
	enum outcome r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_sweep(cli, answer.json);
	return r;
}

enum outcome cmd_backup(struct cli *cli)
{
	struct request request = {
		.method = "POST", .path = "/v1/backup", .creates = true, .timeout_ms = LONG_WORK_MS
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) out = { 0 };

	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "file"), CELL_TEXT, &out);
	buf_puts(&out, " (");
	show_value(cli, json_object_get(answer.json, "bytes"), CELL_BYTES, &out);
	buf_puts(&out, ")");
	puts(buf_text(&out));
	return OUTCOME_OK;
}
