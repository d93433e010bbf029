/* SPDX-License-Identifier: Apache-2.0 */
/* Mailboxes: create, ls, show, renew, rm, and their mail: messages, send. */
#include <string.h>
#include <unistd.h>

#include "base/id.h"
#include "base/json.h"
#include "cli/client/resolve.h"
#include "cli/cmd/mailbox.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"
#include "provider/mail.h"

#define MAILBOX_ID_CHARS 20 /* mbx_ and 16 digits */

/* "mbx_1  a@b.c  expires in 2h" */
static void print_mailbox(const struct cli *cli, const json_t *mailbox)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	show_value(cli, json_object_get(mailbox, "id"), CELL_TEXT, &out);
	buf_puts(&out, "  ");
	show_value(cli, json_object_get(mailbox, "address"), CELL_TEXT, &out);
	buf_puts(&out, "  expires ");
	show_value(cli, json_object_get(mailbox, "expires_at"), CELL_AGE, &out);
	puts(buf_text(&out));
}

enum outcome mailbox_resolve(struct cli *cli, struct request *request)
{
	struct resolve CLEANUP(resolve_done)
		what = { .noun = "mailbox",
			 .key = "id",
			 .prefix = "mbx_",
			 .whole = MAILBOX_ID_CHARS,
			 .list = { .method = "GET", .path = "/v1/mailboxes" } };

	request_query(&what.list, "include_expired", "true");
	return resolve_id(cli, &what, args_operand(&cli->args, 0), &request->segments[0]);
}

static enum outcome mailbox_call(struct cli *cli, struct request *request, struct answer *ret)
{
	enum outcome r = mailbox_resolve(cli, request);

	return r == OUTCOME_OK ? client_call(cli, request, ret) : r;
}

/* The key becomes a header, whose blanks at the ends would be lost. */
static bool is_key(const char *key)
{
	size_t n = strlen(key);

	return n > 0 && n <= ID_MAX_BYTES && utf8_is_valid(key, n, true) && key[0] != ' ' &&
	       key[n - 1] != ' ';
}

static enum outcome mailbox_check_key(const struct cli *cli)
{
	if (!args_has(&cli->args, OPT_KEY) || is_key(cli->args.text[OPT_KEY]))
		return OUTCOME_OK;
	return cli_usage(cli,
			 "--idempotency-key must be 1 to %d bytes of printable UTF-8 without a "
			 "blank at either end",
			 ID_MAX_BYTES);
}

static void put_ttl_option(const struct cli *cli, json_t *body)
{
	if (args_has(&cli->args, OPT_MAILBOX_TTL))
		json_object_set_new(body, "ttl_ms",
				    json_integer(cli->args.number[OPT_MAILBOX_TTL]));
}

enum outcome cmd_mailbox_create(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/mailboxes",
				   .body = body,
				   .creates = true,
				   .key = cli->args.text[OPT_KEY],
				   .timeout_ms = MAIL_TIMEOUT_MS };

	enum outcome r = mailbox_check_key(cli);
	if (r == OUTCOME_OK)
		r = input_text(cli, body, "username", OPT_USERNAME);
	if (r == OUTCOME_OK)
		r = input_text(cli, body, "domain", OPT_DOMAIN);
	put_ttl_option(cli, body);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_mailbox(cli, answer.json);
	return r;
}

enum outcome cmd_mailbox_ls(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },
		{ "ADDRESS", "address", CELL_TEXT },
		{ "STATUS", "status", CELL_STATE },
		{ "CREATED", "created_at", CELL_AGE },
		{ "EXPIRES", "expires_at", CELL_AGE },
		{ "CLEANUP", "cleanup.state", CELL_STATE },
		{ 0 },
	};
	struct request CLEANUP(request_done) request = { .method = "GET", .path = "/v1/mailboxes" };
	struct answer CLEANUP(answer_done) answer = { 0 };

	if (args_has(&cli->args, OPT_INCLUDE_EXPIRED))
		request_query(&request, "include_expired", "true");
	enum outcome r = client_list(cli, &request, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no mailboxes") : r;
}

enum outcome cmd_mailbox_show(struct cli *cli)
{
	static const struct column columns[] = {
		{ "id", "id", CELL_TEXT },
		{ "address", "address", CELL_TEXT },
		{ "status", "status", CELL_STATE },
		{ "created", "created_at", CELL_TIME },
		{ "expires", "expires_at", CELL_TIME },
		{ "cleanup", "cleanup.state", CELL_STATE },
		{ "attempts", "cleanup.attempts", CELL_COUNT },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "GET",
				   .path = "/v1/mailboxes/%",
				   .segments = { args_operand(&cli->args, 0) } };

	enum outcome r = mailbox_call(cli, &request, &answer);
	return r == OUTCOME_OK ? show_object(cli, &answer, columns) : r;
}

enum outcome cmd_mailbox_renew(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/mailboxes/%/renew",
				   .segments = { args_operand(&cli->args, 0) },
				   .body = body,
				   .repeatable = true };

	put_ttl_option(cli, body);
	enum outcome r = mailbox_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_mailbox(cli, answer.json);
	return r;
}

enum outcome cmd_mailbox_rm(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) id = { 0 };
	struct request request = { .method = "DELETE",
				   .path = "/v1/mailboxes/%",
				   .segments = { args_operand(&cli->args, 0) },
				   .timeout_ms = MAIL_TIMEOUT_MS };

	enum outcome r = mailbox_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "id"), CELL_TEXT, &id);
	printf("%s is removed\n", buf_text(&id));
	return OUTCOME_OK;
}

static bool is_folder(const char *name)
{
#define X(id, text)                                                                                \
	if (strcmp(name, text) == 0)                                                               \
		return true;
	MAIL_FOLDERS(X)
#undef X
	return false;
}

static enum outcome list_mail(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },
		{ "RECEIVED", "received_at", CELL_AGE },
		{ "READ", "read", CELL_FLAG },
		{ "FROM", "from", CELL_TEXT },
		{ "TO", "to", CELL_TEXTS },
		{ "SUBJECT", "subject", CELL_LONG },
		{ 0 },
	};
	const char *folder = cli->args.text[OPT_FOLDER];
	struct request CLEANUP(request_done)
		request = { .method = "GET",
			    .path = "/v1/mailboxes/%/messages",
			    .segments = { args_operand(&cli->args, 0) },
			    .timeout_ms = MAIL_TIMEOUT_MS };
	struct answer CLEANUP(answer_done) answer = { 0 };

	if (folder)
		request_query(&request, "folder", folder);
	enum outcome r = mailbox_resolve(cli, &request);
	if (r == OUTCOME_OK)
		r = client_list(cli, &request, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no messages") : r;
}

/* The mail's text below its fields, line by line. */
static void print_text(const json_t *mail)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	const json_t *text = json_object_get(mail, "body");

	if (json_is_string(text))
		text_escape_lines(&out, json_string_value(text), json_string_length(text));
	else if (json_is_string(json_object_get(mail, "html")))
		buf_puts(&out, "(this mail has only HTML; --json prints it)");
	if (out.len > 0)
		printf("\n%s%s", buf_text(&out), out.data[out.len - 1] == '\n' ? "" : "\n");
	if (json_is_true(json_object_get(mail, "truncated")))
		puts("(the mail goes on; this is what the daemon gives of it)");
}

/* The files of a mail; lapse fetch gets one by its checksum. */
static void print_mail_files(const struct cli *cli, const json_t *files)
{
	static const struct column columns[] = {
		{ "FILE", "name", CELL_LONG },
		{ "SIZE", "size", CELL_BYTES },
		{ "TYPE", "type", CELL_TEXT },
		{ "CHECKSUM", "checksum", CELL_DIGEST },
		{ 0 },
	};
	struct buf CLEANUP(buf_done) text = { 0 };

	show_table(cli, files, columns, FOLD_BLOCKS, &text);
	if (text.len > 0)
		printf("\n%s", buf_text(&text));
}

enum outcome mailbox_print_mail(const struct cli *cli, const json_t *mail)
{
	static const struct column columns[] = {
		{ "id", "id", CELL_TEXT },           { "from", "from", CELL_TEXT },
		{ "to", "to", CELL_TEXTS },          { "cc", "cc", CELL_TEXTS },
		{ "subject", "subject", CELL_TEXT }, { "received", "received_at", CELL_TIME },
		{ "read", "read", CELL_FLAG },       { 0 },
	};
	enum outcome r = show_fields(cli, mail, columns);

	if (r != OUTCOME_OK || args_has(&cli->args, OPT_COLUMNS))
		return r;
	print_text(mail);
	print_mail_files(cli, json_object_get(mail, "attachments"));
	return OUTCOME_OK;
}

static enum outcome print_mail(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/mailboxes/%/messages/%/read",
				   .segments = { args_operand(&cli->args, 0),
						 args_operand(&cli->args, 1) },
				   .timeout_ms = MAIL_TIMEOUT_MS };

	enum outcome r = mailbox_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	return mailbox_print_mail(cli, answer.json);
}

enum outcome cmd_mailbox_messages(struct cli *cli)
{
	const struct args *args = &cli->args;

	if (args_has(args, OPT_FOLDER) && !is_folder(args->text[OPT_FOLDER]))
		return cli_usage(cli, "--folder must be inbox, sent, drafts, junk or all, not '%s'",
				 args->text[OPT_FOLDER]);
	if (args->operand_count == 1)
		return list_mail(cli);
	if (args_has(args, OPT_FOLDER) || args_has(args, OPT_LIMIT))
		return cli_usage(cli, "--folder and --limit are for lists: leave MESSAGE out");
	return print_mail(cli);
}

/* One address is a text, several are an array. */
static enum outcome mailbox_take_addresses(const struct cli *cli, json_t *body, const char *key,
					   enum option_id id)
{
	json_t *CLEANUP(json_freep) all = json_array();

	enum outcome r = input_texts(cli, all, id);
	if (r == OUTCOME_OK && json_array_size(all) > 0)
		json_object_set(body, key, json_array_size(all) > 1 ? all : json_array_get(all, 0));
	return r;
}

static enum outcome mailbox_take_file(const struct cli *cli, json_t *body, const char *key,
				      const char *path, const char *what)
{
	struct buf CLEANUP(buf_done) text = { 0 };

	enum outcome r = input_file(cli, path, what, &text);
	if (r == OUTCOME_OK &&
	    json_object_set_new(body, key, json_stringn(buf_text(&text), text.len)) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s is not UTF-8 text", what);
	return r;
}

/* --body, --body-file, or standard input where neither is given and there is no HTML. */
static enum outcome mailbox_take_body(const struct cli *cli, json_t *body)
{
	const struct args *args = &cli->args;

	if (args_has(args, OPT_BODY))
		return input_text(cli, body, "body", OPT_BODY);
	if (args_has(args, OPT_BODY_FILE))
		return mailbox_take_file(cli, body, "body", args->text[OPT_BODY_FILE],
					 "the file of --body-file");
	if (args_has(args, OPT_HTML_FILE))
		return OUTCOME_OK;
	if (isatty(STDIN_FILENO))
		return cli_usage(cli, "the text is missing: give --body, --body-file or "
				      "--html-file, or pipe it in");
	enum outcome r = mailbox_take_file(cli, body, "body", "-", "the text");
	if (r == OUTCOME_OK && json_string_length(json_object_get(body, "body")) == 0)
		return cli_usage(cli, "the text is missing, and standard input is empty: give "
				      "--body, --body-file or --html-file");
	return r;
}

static bool is_standard_input(const struct args *args, enum option_id id)
{
	return args_has(args, id) && strcmp(args->text[id], "-") == 0;
}

static enum outcome make_mail(const struct cli *cli, json_t *body)
{
	static const struct {
		const char *key;
		enum option_id id;
	} lists[] = { { "to", OPT_MAIL_TO }, { "cc", OPT_CC }, { "bcc", OPT_BCC } };
	const struct args *args = &cli->args;

	if (args_has(args, OPT_BODY) && args_has(args, OPT_BODY_FILE))
		return cli_usage(cli, "give --body or --body-file, not both");
	if (is_standard_input(args, OPT_BODY_FILE) && is_standard_input(args, OPT_HTML_FILE))
		return cli_usage(cli, "only one of --body-file and --html-file can be -");
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		enum outcome r = mailbox_take_addresses(cli, body, lists[i].key, lists[i].id);
		if (r != OUTCOME_OK)
			return r;
	}
	enum outcome r = input_text(cli, body, "subject", OPT_SUBJECT);
	if (r == OUTCOME_OK && args_has(args, OPT_HTML_FILE))
		r = mailbox_take_file(cli, body, "html", args->text[OPT_HTML_FILE],
				      "the file of --html-file");
	return r == OUTCOME_OK ? mailbox_take_body(cli, body) : r;
}

enum outcome cmd_mailbox_send(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) id = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/mailboxes/%/send",
				   .segments = { args_operand(&cli->args, 0) },
				   .body = body,
				   .creates = true,
				   .key = cli->args.text[OPT_KEY],
				   .timeout_ms = MAIL_TIMEOUT_MS };

	enum outcome r = mailbox_check_key(cli);
	if (r == OUTCOME_OK)
		r = make_mail(cli, body);
	if (r == OUTCOME_OK)
		r = mailbox_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "message_id"), CELL_TEXT, &id);
	puts(buf_text(&id));
	return OUTCOME_OK;
}
