/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to a PostgreSQL store while no daemon runs on it: moving one there, and telling that
 * one was restored. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/uri.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"
#include "cli/transfer/progress.h"
#include "store/postgres/move.h"
#include "store/postgres/restored.h"

#define SOURCE_SCHEME "sqlite:"
#define WORD_US INT64_C(10000000) /* between two lines where no bar can be drawn */

/* A password in an argument is in the list of processes. */
static enum outcome check_store(const struct cli *cli, enum option_id id)
{
	const char *uri = cli->args.text[id];

	if (uri[0] == '@' || !uri_has_password(uri))
		return OUTCOME_OK;
	return cli_fail(cli, OUTCOME_USAGE,
			"--%s: an argument can be read by everybody on this machine: put the URI "
			"into a file and give @FILE",
			OPTIONS_TABLE[id].spelling);
}

/* What the move has told so far. */
struct migrating {
	const struct cli *cli;
	char table[64]; /* the one under way, and its phase; "" = none */
	enum move_phase phase;
	struct progress progress;
	lapse_us spoke;  /* the last line instead of a bar */
	struct buf json; /* an object for each checked table */
};

static void migrating_end_bar(struct migrating *m)
{
	if (m->table[0])
		progress_end(&m->progress);
	m->table[0] = '\0';
}

static void migrating_checked(struct migrating *m, const struct move_step *step)
{
	migrating_end_bar(m);
	if (!show_wants_json(m->cli)) {
		printf("%-24s %12" PRId64 " rows  %s\n", step->table, step->done, step->checksum);
		fflush(stdout);
		return;
	}
	json_begin(&m->json, '{');
	json_put_text(&m->json, "table", step->table);
	json_put_int(&m->json, "rows", step->done);
	json_put_text(&m->json, "sha256", step->checksum);
	json_end(&m->json, '}');
}

/* For a log, in the place of a bar. */
static void migrating_speak(struct migrating *m, const struct move_step *step)
{
	lapse_us now = clock_mono(m->cli->clock);
	struct buf CLEANUP(buf_done) line = { 0 };

	if (m->progress.is_shown || now - m->spoke < WORD_US)
		return;
	m->spoke = now;
	buf_printf(&line, "%s: ", m->progress.label);
	text_count(&line, step->done);
	buf_puts(&line, " of ");
	text_count(&line, step->total);
	fprintf(stderr, "%s rows\n", buf_text(&line));
}

static void migrating_tell(void *arg, const struct move_step *step)
{
	struct migrating *m = arg;
	struct buf CLEANUP(buf_done) label = { 0 };

	assert(step->table[0] && strlen(step->table) < sizeof(m->table));
	if (step->phase == MOVE_CHECKED) {
		migrating_checked(m, step);
		return;
	}
	if (step->phase != m->phase || strcmp(m->table, step->table) != 0) {
		migrating_end_bar(m);
		buf_printf(&label, "%s %s", step->phase == MOVE_COPYING ? "copying" : "checking",
			   step->table);
		progress_begin_rows(&m->progress, m->cli, buf_text(&label), step->done,
				    step->total);
		snprintf(m->table, sizeof(m->table), "%s", step->table);
		m->phase = step->phase;
	}
	progress_at(&m->progress, step->done);
	migrating_speak(m, step);
}

static void migrate_show(struct migrating *m, const char *dir, const struct move_result *done)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	if (show_wants_json(m->cli)) {
		json_end(&m->json, ']');
		json_begin(&out, '{');
		json_put_text(&out, "data_dir", dir);
		json_put_int(&out, "rows", done->rows);
		json_put_bool(&out, "resumed", done->resumed);
		json_put_text(&out, "kept", done->kept[0] ? done->kept : NULL);
		json_put_raw(&out, "tables", buf_text(&m->json));
		json_end(&out, '}');
		puts(buf_text(&out));
		return;
	}
	printf("%" PRId64 " tables with %" PRId64 " rows are the same on both sides\n",
	       done->tables, done->rows);
	if (done->kept[0])
		printf("the old database is kept as %s\n", done->kept);
	printf("files of attachments and lapse.key stay in %s: start lapsed with --data-dir %s and "
	       "--store\n",
	       dir, dir);
}

static enum outcome migrate_run(struct cli *cli, const char *dir)
{
	struct migrating m = { .cli = cli, .spoke = clock_mono(cli->clock) };
	const struct move_config config = { .data_dir = dir,
					    .store = cli->args.text[OPT_MOVE_TO],
					    .tell = migrating_tell,
					    .arg = &m };
	struct move_result done = { 0 };
	struct problem p = { 0 };
	enum outcome how = OUTCOME_OK;

	json_begin(&m.json, '[');
	int err = store_move(&config, &done, &p);
	migrating_end_bar(&m);
	if (err < 0)
		how = cli_fail(cli, outcome_of_error(err), "%s", problem_text(&p, err));
	else
		migrate_show(&m, dir, &done);
	buf_done(&m.json);
	return how;
}

enum outcome cmd_migrate(struct cli *cli)
{
	const char *from = cli->args.text[OPT_MOVE_FROM];
	struct buf CLEANUP(buf_done) to = { 0 };
	enum outcome how = check_store(cli, OPT_MOVE_TO);

	if (how != OUTCOME_OK)
		return how;
	if (strncmp(from, SOURCE_SCHEME, strlen(SOURCE_SCHEME)) != 0 ||
	    !from[strlen(SOURCE_SCHEME)])
		return cli_usage(cli, "--from must be " SOURCE_SCHEME
				      "DIR with the data directory of a stopped daemon");
	from += strlen(SOURCE_SCHEME);
	uri_put_public(&to, cli->args.text[OPT_MOVE_TO]);
	if (!cli_confirm(cli, "Move the store in %s to %s? The old database is kept.", from,
			 buf_text(&to)))
		return cli_fail(cli, OUTCOME_REFUSED, "nothing was changed");
	return migrate_run(cli, from);
}

enum outcome cmd_restored(struct cli *cli)
{
	const char *store = cli->args.text[OPT_STORE];
	struct buf CLEANUP(buf_done) shown = { 0 }, out = { 0 };
	struct problem p = { 0 };
	lapse_ms at = 0;
	enum outcome how = check_store(cli, OPT_STORE);

	if (how != OUTCOME_OK)
		return how;
	uri_put_public(&shown, store);
	if (!cli_confirm(cli, "Was %s restored just now?", buf_text(&shown)))
		return cli_fail(cli, OUTCOME_REFUSED, "nothing was changed");
	int err = store_restored(store, &at, &p);
	if (err < 0)
		return cli_fail(cli, outcome_of_error(err), "%s", problem_text(&p, err));
	if (show_wants_json(cli)) {
		json_begin(&out, '{');
		json_put_time(&out, "restored_at", at);
		json_end(&out, '}');
		puts(buf_text(&out));
		return OUTCOME_OK;
	}
	puts("noted: after the start nothing is removed for one grace period");
	return OUTCOME_OK;
}
