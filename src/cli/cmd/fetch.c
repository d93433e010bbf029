/* SPDX-License-Identifier: Apache-2.0 */
/* Fetching an attachment: where it goes is decided here, how it comes in transfer.c. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"
#include "cli/transfer/attachment.h"
#include "cli/transfer/part.h"
#include "cli/transfer/transfer.h"

#define NAME_MAX_BYTES (255 - 5) /* of a file, with room for ".part" */

static void closep(const int *fd)
{
	if (*fd > STDERR_FILENO)
		close(*fd);
}

/* Whether it goes to standard output: when asked for, or when that is no terminal. */
static bool is_piped(const struct args *args)
{
	if (args_has(args, OPT_OUTPUT))
		return strcmp(args->text[OPT_OUTPUT], "-") == 0;
	return !isatty(STDOUT_FILENO);
}

static enum outcome check_output(const struct cli *cli)
{
	const struct args *args = &cli->args;

	if (args_has(args, OPT_OUTPUT) && args->text[OPT_OUTPUT][0] == '\0')
		return cli_usage(cli, "--output must not be empty");
	if (!is_piped(args))
		return OUTCOME_OK;
	if (isatty(STDOUT_FILENO))
		return cli_usage(cli, "standard output is a terminal, and an attachment can be "
				      "anything: give --output FILE, or pipe it to a command");
	if (show_wants_json(cli))
		return cli_usage(cli, "--json needs --output FILE: standard output is for the "
				      "attachment itself");
	return OUTCOME_OK;
}

/* The attachment's own name as far as it can be trusted. */
static const char *safe_name(struct cli *cli, const json_t *attachment, const char *checksum)
{
	struct buf CLEANUP(buf_done) safe = { 0 };
	const char *name = json_string_value(json_object_get(attachment, "name"));

	text_file_name(&safe, name ? name : "", NAME_MAX_BYTES);
	return arena_strdup(&cli->arena, safe.len > 0 ? buf_text(&safe) : checksum);
}

static void print_fetched(const struct cli *cli, const struct download *d, const char *file)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	if (show_wants_json(cli)) {
		json_t *CLEANUP(json_freep) all = json_object();
		json_object_set_new(all, "checksum", json_string(d->checksum));
		json_object_set_new(all, "file", json_string(file));
		json_object_set_new(all, "size", json_integer(d->size));
		json_object_set_new(all, "resumed_at", json_integer(d->resumed_at));
		show_made_json(cli, all);
		return;
	}
	text_escape(&out, file, strlen(file));
	buf_puts(&out, "  ");
	text_bytes(&out, d->size);
	if (d->resumed_at > 0) {
		buf_puts(&out, ", the first ");
		text_bytes(&out, d->resumed_at);
		buf_puts(&out, " from before");
	}
	puts(buf_text(&out));
}

/* A pipe, a device: there is nothing to put in its place. */
static enum outcome fetch_into_device(struct cli *cli, struct download *d, const char *file)
{
	int CLEANUP(closep) fd = open(file, O_WRONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return cli_fail(cli, OUTCOME_USAGE, "cannot open %s: %s", file, strerror(errno));
	if (isatty(fd))
		return cli_usage(cli, "%s is a terminal, and an attachment can be anything", file);
	d->fd = fd;
	return transfer_down(cli, d);
}

static enum outcome fetch_into_part(struct cli *cli, struct download *d, const char *file)
{
	struct part CLEANUP(part_done) part = { .fd = -1 };

	enum outcome r = part_open(cli, file, &part);
	d->part = &part;
	if (r == OUTCOME_OK)
		r = transfer_down(cli, d);
	if (r == OUTCOME_OK)
		r = part_finish(cli, &part, args_has(&cli->args, OPT_FORCE));
	d->part = NULL;
	return r;
}

static enum outcome fetch_into_file(struct cli *cli, struct download *d, const char *file)
{
	struct stat st;
	enum outcome r;

	if (stat(file, &st) == 0 && S_ISDIR(st.st_mode))
		return cli_usage(cli, "%s is a directory: give --output FILE", file);
	if (stat(file, &st) == 0 && !S_ISREG(st.st_mode))
		r = fetch_into_device(cli, d, file);
	else if (lstat(file, &st) == 0 && !args_has(&cli->args, OPT_FORCE))
		return cli_fail(cli, OUTCOME_REFUSED,
				"%s exists: give --force to replace it, or --output FILE", file);
	else
		r = fetch_into_part(cli, d, file);
	if (r == OUTCOME_OK)
		print_fetched(cli, d, file);
	return r;
}

enum outcome cmd_fetch(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct download d = { .fd = STDOUT_FILENO };

	enum outcome r = check_output(cli);
	if (r == OUTCOME_OK)
		r = attachment_look_up(cli, &d.checksum, &answer);
	if (r != OUTCOME_OK)
		return r;
	const json_t *size = json_object_get(answer.json, "size");
	d.size = json_integer_value(size);
	if (!json_is_integer(size) || d.size < 0)
		return cli_fail(cli, OUTCOME_UNREACHABLE,
				"%s does not answer like lapsed (an attachment without a size)",
				cli->client.url);
	d.label = safe_name(cli, answer.json, d.checksum);
	if (is_piped(&cli->args))
		return transfer_down(cli, &d);
	const char *file = cli->args.text[OPT_OUTPUT];
	return fetch_into_file(cli, &d, file ? file : d.label);
}
