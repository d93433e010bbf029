/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lapse status: how the daemon is, and what is wrong in one line each, with the command that helps.
 * Everything comes from /readyz, /v1/clock, /v1/matrix and /metrics; what a daemon does not say is
 * left out.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/replicas.h"
#include "cli/show/show.h"
#include "cli/top/scrape.h"

#define BEHIND_MS 600000                  /* a row due for longer has been forgotten by its sweep */
#define DISK_LOW_BYTES (INT64_C(1) << 30) /* sweeps, logs and uploads need room */

/* What the daemon answered, and what follows from it. */
struct status {
	struct cli *cli;
	struct answer health, ready, clock, matrix, metrics;
	struct answer replicas; /* nothing outside a cluster */
	json_t *problems;       /* [{what, help}] */
};

static void status_done(struct status *s)
{
	answer_done(&s->health);
	answer_done(&s->ready);
	answer_done(&s->clock);
	answer_done(&s->matrix);
	answer_done(&s->metrics);
	answer_done(&s->replicas);
	json_decref(s->problems);
}

static enum outcome status_ask(struct status *s, const char *path, const char *accept,
			       struct answer *ret)
{
	struct request request = { .method = "GET",
				   .path = path,
				   .accept = accept,
				   /* 503 is an answer; figures may be for others only. */
				   .any_status = strcmp(path, "/readyz") == 0 ||
						 strcmp(path, "/metrics") == 0 };

	return client_call(s->cli, &request, ret);
}

/* Of /metrics; not a number when the daemon does not have it. */
static double status_figure(const struct status *s, const char *family)
{
	return scrape_sum(buf_text(&s->metrics.text), family);
}

static json_t *status_count(const struct status *s, const char *family)
{
	double n = status_figure(s, family);

	return isfinite(n) ? json_integer((json_int_t)n) : json_null();
}

/* The version in lapse_build_info{version="…"}; null when it is not there. */
static json_t *status_version(const struct status *s)
{
	static const char label[] = "lapse_build_info{version=\"";
	const char *found = strstr(buf_text(&s->metrics.text), label);

	if (!found)
		return json_null();
	found += strlen(label);
	return json_stringn(found, strcspn(found, "\"\n"));
}

static json_t *status_uptime(const struct status *s)
{
	double start = status_figure(s, "process_start_time_seconds");

	if (!isfinite(start))
		return json_null();
	lapse_ms up = time_sub(s->cli->now, (lapse_ms)(start * 1000));
	return json_integer((json_int_t)(up - up % 1000));
}

static void problem_add(struct status *s, const char *what, const char *help)
{
	json_t *problem = json_object();

	assert(what);
	json_object_set_new(problem, "what", json_string(what));
	json_object_set_new(problem, "help", help ? json_string(help) : json_null());
	json_array_append_new(s->problems, problem);
}

/* What helps against a reason of /readyz, by a word in it. */
static const char *help_for_reason(struct cli *cli, const char *reason)
{
	const char *of = strstr(reason, "sweeps of ");

	if (of) {
		of += strlen("sweeps of ");
		return arena_printf(&cli->arena, "lapse sweep %.*s", (int)strcspn(of, " "), of);
	}
	if (strstr(reason, "clock"))
		return "lapse clock";
	return strstr(reason, "store") ? "lapse doctor" : NULL;
}

static void find_reasons(struct status *s)
{
	const json_t *reason;
	size_t i;

	json_array_foreach (json_object_get(s->ready.json, "reasons"), i, reason)
		if (json_is_string(reason))
			problem_add(s, json_string_value(reason),
				    help_for_reason(s->cli, json_string_value(reason)));
}

/* A count of /metrics that should be 0. */
static void find_count(struct status *s, const char *family, const char *one, const char *many,
		       const char *help)
{
	double n = status_figure(s, family);
	struct buf CLEANUP(buf_done) what = { 0 };

	if (!(n > 0))
		return;
	text_count(&what, (int64_t)n);
	buf_printf(&what, " %s", n > 1 ? many : one);
	problem_add(s, buf_text(&what), help);
}

static void find_late_tables(struct status *s)
{
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(s->matrix.json, "data"), i, row) {
		int64_t age = json_integer_value(json_object_get(row, "oldest_due_age_ms"));
		const char *table = json_string_value(json_object_get(row, "table"));
		const char *scheduler = json_string_value(json_object_get(row, "scheduler"));
		struct buf CLEANUP(buf_done) what = { 0 };
		if (age < BEHIND_MS || !table || !scheduler)
			continue;
		buf_printf(&what, "%s is behind: its oldest row has been due for ", table);
		text_span(&what, age);
		problem_add(s, buf_text(&what),
			    arena_printf(&s->cli->arena, "lapse sweep %s", scheduler));
	}
}

static void find_problems(struct status *s)
{
	double free = status_figure(s, "lapse_disk_free_bytes");
	struct buf CLEANUP(buf_done) what = { 0 };

	find_reasons(s);
	find_count(s, "lapse_dead_letters", "dead letter waits for a decision",
		   "dead letters wait for a decision", "lapse dead-letter");
	find_count(s, "lapse_breakers_open", "breaker is open: most agents of an owner fell silent",
		   "breakers are open: most agents of these owners fell silent",
		   "lapse events --type breaker");
	find_late_tables(s);
	if (isfinite(free) && free < (double)DISK_LOW_BYTES) {
		text_bytes(&what, (int64_t)free);
		buf_puts(&what, " are left on the disk of the data directory");
		problem_add(s, buf_text(&what), "lapse doctor");
	}
}

static json_t *status_object(struct status *s)
{
	json_t *all = json_object();

	json_object_set_new(all, "url", json_string(s->cli->client.url));
	json_object_set_new(all, "version", status_version(s));
	json_object_set_new(all, "uptime_ms", status_uptime(s));
	json_object_set(all, "health", s->health.json);
	json_object_set(all, "ready", s->ready.json);
	json_object_set(all, "clock", s->clock.json);
	json_object_set_new(all, "agents", status_count(s, "lapse_agents_tracked"));
	json_object_set_new(all, "breakers_open", status_count(s, "lapse_breakers_open"));
	json_object_set_new(all, "unread", status_count(s, "lapse_messages_unread"));
	json_object_set_new(all, "dead_letters", status_count(s, "lapse_dead_letters"));
	json_object_set_new(all, "database_bytes", status_count(s, "lapse_database_bytes"));
	json_object_set_new(all, "log_bytes", status_count(s, "lapse_wal_bytes"));
	json_object_set_new(all, "disk_free_bytes", status_count(s, "lapse_disk_free_bytes"));
	if (isfinite(status_figure(s, "lapse_replicas")))
		json_object_set_new(all, "replicas", status_count(s, "lapse_replicas"));
	if (json_object_get(s->replicas.json, "data"))
		json_object_set(all, "cluster", json_object_get(s->replicas.json, "data"));
	json_object_set(all, "problems", s->problems);
	json_object_set(all, "matrix", json_object_get(s->matrix.json, "data"));
	return all;
}

/* "lapsed 0.1.0 at http://… is ready" would break scripts that look for the words before; the
 * version is a fact. */
static void print_health(const struct cli *cli, bool is_ready)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	buf_printf(&out, "lapsed at %s is ", cli->client.url);
	text_styled(cli, &out, is_ready ? STYLE_GREEN : STYLE_RED,
		    is_ready ? "ready" : "not ready");
	puts(buf_text(&out));
}

static void print_problems(const struct status *s)
{
	const json_t *problem;
	size_t i;

	json_array_foreach (s->problems, i, problem) {
		struct buf CLEANUP(buf_done) text = { 0 };
		struct buf CLEANUP(buf_done) out = { 0 };
		const char *help = json_string_value(json_object_get(problem, "help"));
		show_value(s->cli, json_object_get(problem, "what"), CELL_TEXT, &text);
		if (help) {
			buf_puts(&text, ": ");
			text_escape(&text, help, strlen(help));
		}
		text_styled(s->cli, &out, STYLE_YELLOW, buf_text(&text));
		printf("  %s\n", buf_text(&out));
	}
}

static void print_facts(const struct cli *cli, const json_t *all)
{
	static const struct column facts[] = {
		{ "version", "version", CELL_TEXT },
		{ "up", "uptime_ms", CELL_SPAN },
		{ "clock", "clock.state", CELL_STATE },
		{ "agents", "agents", CELL_COUNT },
		{ "breakers open", "breakers_open", CELL_DUE },
		{ "unread", "unread", CELL_COUNT },
		{ "dead letters", "dead_letters", CELL_DUE },
		{ "database", "database_bytes", CELL_BYTES },
		{ "log", "log_bytes", CELL_BYTES },
		{ "disk free", "disk_free_bytes", CELL_BYTES },
		{ 0 },
	};
	struct buf CLEANUP(buf_done) out = { 0 };

	show_facts(cli, all, facts, &out);
	if (json_object_get(all, "replicas"))
		buf_printf(&out, "replicas %lld, see: lapse replica\n\n",
			   (long long)json_integer_value(json_object_get(all, "replicas")));
	show_replicas(cli, json_object_get(all, "cluster"), &out);
	fputs(buf_text(&out), stdout);
}

/* Whether there is anything to tell about a table: rows, or what became of them. */
static bool is_in_use(const json_t *row)
{
	static const char *const keys[] = { "live_rows", "due_rows", "pruned_total" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (json_integer_value(json_object_get(row, keys[i])) != 0)
			return true;
	return false;
}

/* On a terminal only tables in use, with as many columns as fit; matrix has everything. */
static void print_tables_in_use(const struct status *s, const struct column *columns)
{
	json_t *CLEANUP(json_freep) rows = json_array();
	json_t *all = json_object_get(s->matrix.json, "data"), *row;
	struct buf CLEANUP(buf_done) out = { 0 };
	size_t i;

	json_array_foreach (all, i, row)
		if (is_in_use(row))
			json_array_append(rows, row);
	show_table(s->cli, rows, columns, FOLD_DROP, &out);
	size_t empty = json_array_size(all) - json_array_size(rows);
	if (empty > 0)
		buf_printf(&out, "%zu %s empty; lapse matrix lists them all\n", empty,
			   empty == 1 ? "table is" : "tables are");
	fputs(buf_text(&out), stdout);
}

static enum outcome print_status(struct status *s, const json_t *all)
{
	static const struct column columns[] = {
		{ "TABLE", "table", CELL_TEXT },
		{ "LIVE", "live_rows", CELL_COUNT },
		{ "DUE", "due_rows", CELL_DUE },
		{ "PRUNED", "pruned_total", CELL_COUNT },
		{ "LAST SWEEP", "last_sweep_at", CELL_AGE },
		{ "OLDEST DUE", "oldest_due_age_ms", CELL_SPAN },
		{ "SCHEDULER", "scheduler", CELL_TEXT },
		{ 0 },
	};
	const struct cli *cli = s->cli;

	print_health(cli, s->ready.status == 200);
	print_problems(s);
	print_facts(cli, all);
	putchar('\n');
	if (cli->columns == 0 || args_has(&cli->args, OPT_WIDE) ||
	    args_has(&cli->args, OPT_COLUMNS))
		return show_rows(cli, json_object_get(s->matrix.json, "data"), columns,
				 "no tables");
	print_tables_in_use(s, columns);
	return OUTCOME_OK;
}

/* Up and ready can be told without a token; the rest needs one. */
static enum outcome status_read(struct status *s)
{
	enum outcome r = status_ask(s, "/healthz", NULL, &s->health);

	if (r == OUTCOME_OK)
		r = status_ask(s, "/readyz", NULL, &s->ready);
	if (r != OUTCOME_OK)
		return r;
	r = status_ask(s, "/v1/matrix", NULL, &s->matrix);
	if (r == OUTCOME_OK)
		r = status_ask(s, "/v1/clock", NULL, &s->clock);
	if (r == OUTCOME_OK)
		r = status_ask(s, "/metrics", "text/plain", &s->metrics);
	if (r == OUTCOME_OK && isfinite(status_figure(s, "lapse_replicas")))
		r = status_ask(s, "/v1/replicas", NULL, &s->replicas);
	find_problems(s);
	if (r == OUTCOME_OK)
		return r;
	if (!show_wants_json(s->cli)) {
		print_health(s->cli, s->ready.status == 200);
		print_problems(s);
	}
	return r;
}

enum outcome cmd_status(struct cli *cli)
{
	struct status CLEANUP(status_done) s = { .cli = cli, .problems = json_array() };

	enum outcome r = status_read(&s);
	if (r != OUTCOME_OK)
		return r;
	json_t *CLEANUP(json_freep) all = status_object(&s);
	if (!show_made_json(cli, all))
		r = print_status(&s, all);
	if (r != OUTCOME_OK)
		return r;
	return s.ready.status == 200 ? OUTCOME_OK : OUTCOME_UNAVAILABLE;
}
