/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts in force: what the daemon keeps, approvals, and one sweep now. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"
#include "contract/check.h"
#include "contract/keep.h"
#include "contract/lease.h"
#include "engine/engine.h"
#include "rooms.h"

#define SWEEP_WAIT_MS 3600000 /* a sweep of millions of rows */
#define REDRAW_US 100000
#define NAP_US 20000 /* the longest sleep: Ctrl-C is noticed after it */

enum outcome cmd_contract(struct cli *cli)
{
	static const struct column columns[] = {
		{ "BOUND", "bound", CELL_TEXT },
		{ "TABLE", "table", CELL_TEXT },
		{ "SCHEDULER", "scheduler", CELL_TEXT },
		{ "PRUNED", "pruned_total", CELL_COUNT },
		{ "WAITS", "waits_for_approval", CELL_FLAG },
		{ "PROBLEM", "problem", CELL_TEXT },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	json_t *CLEANUP(json_freep) rows = json_array();
	const json_t *contract;
	size_t i;

	enum outcome r = client_call(
		cli, &(struct request){ .method = "GET", .path = "/v1/contracts" }, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	json_array_foreach (json_object_get(answer.json, "data"), i, contract) {
		json_array_extend(rows, json_object_get(contract, "bounds"));
		if (json_is_string(json_object_get(contract, "refused")))
			fprintf(stderr,
				"%s: the last reload was refused, the old contract stays: %s\n",
				json_string_value(json_object_get(contract, "name")),
				json_string_value(json_object_get(contract, "refused")));
	}
	return show_rows(cli, rows, columns, "the daemon keeps no contract");
}

enum outcome cmd_approvals(struct cli *cli)
{
	static const struct column columns[] = {
		{ "BOUND", "bound", CELL_TEXT },      { "DUE", "due_rows", CELL_DUE },
		{ "OF", "table_rows", CELL_COUNT },   { "WAITS SINCE", "wanted_at", CELL_AGE },
		{ "APPROVED", "given_at", CELL_AGE }, { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_call(
		cli, &(struct request){ .method = "GET", .path = "/v1/approvals" }, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no sweep waits") : r;
}

enum outcome cmd_approve(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/approvals/%",
				   .segments = { cli->args.operands[0] } };

	enum outcome r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		printf("%s may go on\n", cli->args.operands[0]);
	return r;
}

/* apply, by the daemon that keeps the contract */

static enum outcome ask_daemon(struct cli *cli, const struct contract *c)
{
	enum outcome r = OUTCOME_OK;

	for (size_t i = 0; r == OUTCOME_OK && i < c->schedulers_count; i++) {
		struct answer CLEANUP(answer_done) answer = { 0 };
		struct request request = { .method = "POST",
					   .path = "/v1/sweep/%",
					   .segments = { c->schedulers[i].full_name },
					   .timeout_ms = SWEEP_WAIT_MS };
		r = client_call(cli, &request, &answer);
		if (r == OUTCOME_OK && !show_json(cli, &answer))
			printf("%s: %lld rows removed\n", c->schedulers[i].full_name,
			       (long long)json_integer_value(
				       json_object_get(answer.json, "pruned")));
	}
	return r;
}

/* apply, by ourselves */

static volatile sig_atomic_t apply_interrupted;

static void interrupt_apply(int number)
{
	(void)number;
	apply_interrupted = 1;
}

struct applying {
	struct cli *cli;
	struct settings settings;
	struct log log;
	struct engine engine;
	const struct room *rooms[ROOMS_COUNT + 1];
	struct sweep_request request;
	bool done;
	int err;
	lapse_us begun, drawn;
};

static void apply_swept(struct sweep_request *r, int err, const struct sweep *result)
{
	struct applying *a = CONTAINER_OF(r, struct applying, request);

	(void)result;
	a->done = true;
	a->err = err;
}

static void ignore_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static int apply_open(struct applying *a, struct problem *p)
{
	struct engine_config config = { .settings = &a->settings,
					.clock = &CLOCK_SYSTEM,
					.log = &a->log,
					.bounds = ROOM_BOUNDS,
					.schedulers = ROOM_SCHEDULERS,
					.cleanups = ROOM_CLEANUPS,
					.rooms = a->rooms };
	size_t n = 0;

	for (; ROOMS[n]; n++)
		a->rooms[n] = ROOMS[n];
	a->rooms[n] = &CONTRACT_ROOM;
	a->log = (struct log){ .clock = &CLOCK_SYSTEM, .fd = -1, .sink = ignore_line };
	settings_init(&a->settings);
	int r = settings_set(&a->settings, "data_dir", a->cli->args.text[OPT_DATA_DIR], p);
	db_process_init();
	if (r == LAPSE_OK)
		r = engine_open(&a->engine, &config, p);
	if (r == LAPSE_OK)
		a->engine.cleaner.stays_here = true; /* deletions outside wait for a daemon */
	else
		settings_done(&a->settings);
	return r;
}

/* One line that is drawn again: a bar where the number of rows is known. */
static void draw_progress(struct applying *a, const struct keeper *k, bool last)
{
	lapse_us now = clock_mono(a->cli->clock);
	struct buf CLEANUP(buf_done) line = { 0 };
	int64_t removed, expected;

	if (!isatty(STDERR_FILENO) || (!last && now - a->drawn < REDRAW_US))
		return;
	a->drawn = now;
	keep_progress(k, &removed, &expected);
	buf_puts(&line, "\r\033[K");
	if (last) {
		fputs(buf_text(&line), stderr);
		return;
	}
	if (expected > 0) {
		int filled = (int)(20 * removed / expected);
		buf_printf(&line, "[%.*s%*s] %3d%%  ", filled, "====================", 20 - filled,
			   "", (int)(100 * removed / expected));
	}
	text_count(&line, removed);
	buf_puts(&line, " rows removed, ");
	text_rate(&line, (double)removed * 1e6 / (double)(now - a->begun + 1));
	fprintf(stderr, "%s/s", buf_text(&line));
}

static int apply_scheduler(struct applying *a, const struct keeper *k, struct scheduler *s)
{
	struct engine *e = &a->engine;

	a->done = false;
	a->request = (struct sweep_request){ .done = apply_swept };
	list_init(&a->request.link);
	int r = schedule_request(e, s, &a->request);
	while (r == LAPSE_OK && !a->done) {
		engine_tick(e);
		if (apply_interrupted)
			keep_wind_down(e);
		draw_progress(a, k, false);
		lapse_us next = engine_next_us(e);
		if (!a->done && next > 0)
			usleep((useconds_t)(next < NAP_US ? next : NAP_US));
	}
	return r < 0 ? r : a->err;
}

static void print_applied(const json_t *result)
{
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(result, "data"), i, row) {
		struct buf CLEANUP(buf_done) line = { 0 };
		const char *name = json_string_value(json_object_get(row, "bound"));
		const char *problem = json_string_value(json_object_get(row, "problem"));
		json_int_t earlier = json_integer_value(json_object_get(row, "earlier_at_most"));
		text_escape(&line, name, strlen(name));
		buf_puts(&line, ": ");
		text_count(&line, json_integer_value(json_object_get(row, "removed")));
		buf_puts(&line, " rows removed");
		if (json_is_true(json_object_get(row, "waits_for_approval")))
			buf_puts(&line, "; it waits for approval: see `plan`, then run this again "
					"with --approve");
		if (problem) {
			buf_puts(&line, "; ");
			text_escape(&line, problem, strlen(problem));
		}
		if (earlier > 0)
			buf_printf(&line, "; a run that was interrupted removed at most %lld more",
				   (long long)earlier);
		puts(buf_text(&line));
	}
}

static int apply_schedulers(struct applying *a, const struct keeper *k)
{
	struct scheduler *s;
	int err = LAPSE_OK;

	for (size_t i = 0; (s = keep_scheduler(k, i)) && !apply_interrupted; i++) {
		int r = apply_scheduler(a, k, s);
		err = err < 0 ? err : r;
	}
	return err;
}

/* What waits for a person goes in a second round. */
static int apply_approved(struct applying *a, struct keeper *k)
{
	bool any = false;
	int err = keep_approve(k, &any);

	return err == LAPSE_OK && any ? apply_schedulers(a, k) : err;
}

static enum outcome apply_all(struct applying *a, const struct contract *c, struct keeper *k)
{
	struct buf CLEANUP(buf_done) text = { 0 };

	a->begun = clock_mono(a->cli->clock);
	signal(SIGINT, interrupt_apply);
	signal(SIGTERM, interrupt_apply);
	int err = apply_schedulers(a, k);
	if (err == LAPSE_OK && args_has(&a->cli->args, OPT_APPROVE) && !apply_interrupted)
		err = apply_approved(a, k);
	draw_progress(a, k, true);
	bool all = keep_write_result(k, &text) && err == LAPSE_OK;
	json_t *CLEANUP(json_freep) result = json_loads(buf_text(&text), 0, NULL);
	json_object_set_new(result, "interrupted", json_boolean(apply_interrupted));
	if (!show_made_json(a->cli, result))
		print_applied(result);
	if (apply_interrupted)
		return cli_fail(a->cli, OUTCOME_INTERRUPTED,
				"interrupted: what is told above is done, the rest is not");
	return all ? OUTCOME_OK
		   : cli_fail(a->cli, OUTCOME_REFUSED, "%s: not every bound was swept", c->name);
}

static enum outcome apply_here(struct cli *cli, const struct contract *c)
{
	struct applying *CLEANUP(mem_freep) a = mem_zalloc(1, sizeof(*a));
	struct buf CLEANUP(buf_done) error = { 0 };
	struct problem p = { 0 };

	a->cli = cli;
	int err = apply_open(a, &p);
	if (err == LAPSE_EBUSY)
		return ask_daemon(cli, c);
	if (err < 0)
		return cli_fail(cli, outcome_of_error(err), "%s", problem_text(&p, err));
	enum outcome r;
	if (keep_add(&a->engine, cli->args.operands[0], &error) < 0)
		r = cli_fail(cli, OUTCOME_USAGE, "%s", buf_text(&error));
	else
		r = apply_all(a, c, keep_find(&a->engine, c->name));
	engine_stop(&a->engine);
	engine_close(&a->engine);
	settings_done(&a->settings);
	return r;
}

static enum outcome make_lease_table(struct cli *cli, const struct contract *c)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	struct foreign *CLEANUP(foreign_closep) f = NULL;
	bool there = false;

	if (contract_connect(c, &f, &error) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", buf_text(&error));
	if (lease_table_exists(f, &there) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", foreign_error(f));
	if (there)
		return OUTCOME_OK;
	if (!cli_confirm(cli, "Make the table lapse_leases in the database of %s?", c->name))
		return cli_fail(cli, OUTCOME_REFUSED, "nothing was changed");
	if (lease_table_create(f) < 0)
		return cli_fail(cli, OUTCOME_REFUSED, "lapse_leases could not be made: %s",
				foreign_error(f));
	return OUTCOME_OK;
}

static const char *apply_environment(const char *name)
{
	return getenv(name);
}

enum outcome cmd_contract_apply(struct cli *cli)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	struct contract *CLEANUP(contract_freep) c = NULL;
	enum outcome r = OUTCOME_OK;

	if (contract_read(cli->args.operands[0], apply_environment, &c, &error) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", buf_text(&error));
	if (args_has(&cli->args, OPT_LEASE_TABLE))
		r = make_lease_table(cli, c);
	if (r != OUTCOME_OK)
		return r;
	return args_has(&cli->args, OPT_DATA_DIR) ? apply_here(cli, c) : ask_daemon(cli, c);
}
