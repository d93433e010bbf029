/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: status, matrix, sweep, backup. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/scrape.h"
#include "cli/show.h"

#define LONG_WORK_MS 3600000 /* a sweep of millions of rows, a copy of a large database */

static void print_health(const struct cli *cli, const struct answer *ready)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	const json_t *reason;
	size_t i;
	bool good = ready->status == 200;

	buf_printf(&out, "lapsed at %s is ", cli->client.url);
	text_styled(cli, &out, good ? STYLE_GREEN : STYLE_RED, good ? "ready" : "not ready");
	json_array_foreach (json_object_get(ready->json, "reasons"), i, reason) {
		buf_puts(&out, "\n  ");
		show_value(cli, reason, CELL_TEXT, &out);
	}
	puts(buf_text(&out));
}

/* -1 where the daemon does not say. */
static enum outcome count_dead_letters(struct cli *cli, int64_t *ret)
{
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_call(cli,
				     &(struct request){ .method = "GET",
							.path = "/metrics",
							.accept = "text/plain",
							.any_status = true },
				     &answer);
	double n = r == OUTCOME_OK ? scrape_sum(buf_text(&answer.text), "lapse_dead_letters") : NAN;
	*ret = isfinite(n) ? (int64_t)n : -1;
	return r;
}

static void print_dead_letters(const struct cli *cli, int64_t n)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct buf CLEANUP(buf_done) out = { 0 };

	if (n <= 0)
		return;
	text_count(&text, n);
	buf_puts(&text, n == 1 ? " dead letter waits" : " dead letters wait");
	buf_puts(&text, " for somebody: lapse dead-letters ls");
	text_styled(cli, &out, STYLE_YELLOW, buf_text(&text));
	puts(buf_text(&out));
}

static void print_status_json(const struct cli *cli, const struct answer *health,
			      const struct answer *ready, const struct answer *matrix, int64_t dead)
{
	json_t *CLEANUP(json_freep) all = json_object();

	json_object_set_new(all, "url", json_string(cli->client.url));
	json_object_set(all, "health", health->json);
	json_object_set(all, "ready", ready->json);
	json_object_set(all, "matrix", json_object_get(matrix->json, "data"));
	json_object_set_new(all, "dead_letters", dead < 0 ? json_null() : json_integer(dead));
	char *CLEANUP(mem_freep) text = json_dumps(all, JSON_COMPACT);
	puts(text ? text : "{}");
}

static const struct column STATUS_COLUMNS[] = {
	{ "TABLE", "table", CELL_TEXT },
	{ "LIVE", "live_rows", CELL_COUNT },
	{ "DUE", "due_rows", CELL_DUE },
	{ "OLDEST DUE", "oldest_due_age_ms", CELL_SPAN },
	{ "LAST SWEEP", "last_sweep", CELL_AGE },
	{ "PRUNED", "pruned_total", CELL_COUNT },
	{ 0 },
};

enum outcome cmd_status(struct cli *cli)
{
	struct answer CLEANUP(answer_done) health = { 0 };
	struct answer CLEANUP(answer_done) ready = { 0 };
	struct answer CLEANUP(answer_done) matrix = { 0 };
	bool json = args_has(&cli->args, OPT_JSON);
	int64_t dead = -1;

	enum outcome r =
		client_call(cli, &(struct request){ .method = "GET", .path = "/healthz" }, &health);
	if (r == OUTCOME_OK)
		r = client_call(
			cli,
			&(struct request){ .method = "GET", .path = "/readyz", .any_status = true },
			&ready);
	if (r != OUTCOME_OK)
		return r;
	if (!json)
		print_health(cli, &ready);
	r = client_call(cli, &(struct request){ .method = "GET", .path = "/v1/matrix" }, &matrix);
	if (r == OUTCOME_OK)
		r = count_dead_letters(cli, &dead);
	if (r != OUTCOME_OK)
		return r;
	if (json)
		print_status_json(cli, &health, &ready, &matrix, dead);
	else
		print_dead_letters(cli, dead);
	if (!json)
		show_rows(cli, json_object_get(matrix.json, "data"), STATUS_COLUMNS, "no tables");
	return ready.status == 200 ? OUTCOME_OK : OUTCOME_UNAVAILABLE;
}

enum outcome cmd_matrix(struct cli *cli)
{
	static const struct column columns[] = {
		{ "TABLE", "table", CELL_TEXT },
		{ "SCHEDULER", "scheduler", CELL_TEXT },
		{ "WINDOW", "window_ms", CELL_SPAN },
		{ "LIVE", "live_rows", CELL_COUNT },
		{ "DUE", "due_rows", CELL_DUE },
		{ "OLDEST DUE", "oldest_due_age_ms", CELL_SPAN },
		{ "LAST SWEEP", "last_sweep", CELL_AGE },
		{ "PRUNED", "pruned_total", CELL_COUNT },
		{ "PATHS", "paths", CELL_TEXTS },
		{ "ACTION", "action", CELL_TEXT },
		{ "DUE WHEN", "due_when", CELL_TEXT },
		{ "SAFETY RULE", "safety_rule", CELL_TEXT },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_call(
		cli, &(struct request){ .method = "GET", .path = "/v1/matrix" }, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		show_rows(cli, json_object_get(answer.json, "data"), columns, "no tables");
	return r;
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
	struct request CLEANUP(request_done) request = { .method = "POST",
							 .path = "/v1/sweep/%",
							 .segments = { cli->args.operands[0] },
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
