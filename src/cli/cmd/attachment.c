/* SPDX-License-Identifier: Apache-2.0 */
/* Attachments: stage, ls, show, rm, metrics, cleanup. Fetching one is in fetch.c. */
#include <assert.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"
#include "cli/transfer/attachment.h"
#include "cli/transfer/transfer.h"

#define HASH_GLADLY_BYTES (256 << 20) /* about a second of hashing */
#define CLEANUP_TIMEOUT_MS 3600000    /* millions of files */

static void put_expiry(const struct cli *cli, const json_t *attachment, struct buf *out)
{
	const json_t *expires = json_object_get(attachment, "expires_at");

	if (!json_is_string(expires)) {
		buf_puts(out, "does not expire");
		return;
	}
	buf_puts(out, "expires ");
	show_value(cli, expires, CELL_AGE, out);
}

/* "CHECKSUM  1.2 MiB  expires in 24h  report.pdf (cached)" */
static void print_staged(const struct cli *cli, const json_t *attachment)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	show_value(cli, json_object_get(attachment, "checksum"), CELL_TEXT, &out);
	buf_puts(&out, "  ");
	show_value(cli, json_object_get(attachment, "size"), CELL_BYTES, &out);
	buf_puts(&out, "  ");
	put_expiry(cli, attachment, &out);
	buf_puts(&out, "  ");
	show_value(cli, json_object_get(attachment, "name"), CELL_TEXT, &out);
	if (json_is_true(json_object_get(attachment, "cached")))
		buf_puts(&out, " (cached)");
	puts(buf_text(&out));
	fflush(stdout);
}

/* What the attachment is called: --name, the file's name, or nothing for standard input. */
static enum outcome take_name(const struct cli *cli, const char *path, struct request *request)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	if (args_has(&cli->args, OPT_NAME))
		name = cli->args.text[OPT_NAME];
	else if (strcmp(path, "-") == 0)
		return OUTCOME_OK;
	if (!utf8_is_valid(name, strlen(name), false))
		return cli_fail(cli, OUTCOME_USAGE, "its name is not UTF-8: give --name");
	request_query(request, "name", name);
	return OUTCOME_OK;
}

static void take_lifetime(const struct args *args, struct request *request)
{
	if (args_has(args, OPT_PERSIST))
		request_query(request, "persist", "true");
	if (!args_has(args, OPT_STAGE_TTL))
		return;
	if (args->number[OPT_STAGE_TTL] == LAPSE_NEVER)
		request_query(request, "ttl_ms", "infinity");
	else
		request_query_int(request, "ttl_ms", args->number[OPT_STAGE_TTL]);
}

static void put_lifetime(const struct args *args, json_t *body)
{
	if (args_has(args, OPT_PERSIST))
		json_object_set_new(body, "persist", json_true());
	if (args_has(args, OPT_STAGE_TTL))
		json_object_set_new(body, "ttl_ms",
				    args->number[OPT_STAGE_TTL] == LAPSE_NEVER
					    ? json_string("infinity")
					    : json_integer(args->number[OPT_STAGE_TTL]));
}

/* Looks for an attachment of that size. */
struct same_size {
	int64_t size;
	bool found;
};

static bool same_size_page(void *arg, struct answer *page)
{
	struct same_size *s = arg;
	const json_t *row;
	size_t i;

	assert(s->size >= HASH_GLADLY_BYTES && !s->found);
	json_array_foreach (json_object_get(page->json, "data"), i, row)
		s->found |= json_integer_value(json_object_get(row, "size")) == s->size;
	return !s->found;
}

/* Whether it is worth to hash a file: reading a huge one for nothing would take longer than a look
 * at the list. */
static bool may_be_there(struct cli *cli, int64_t size)
{
	struct same_size s = { .size = size };

	if (size < HASH_GLADLY_BYTES)
		return size >= 0;
	enum outcome r =
		client_pages(cli, &(struct request){ .method = "GET", .path = "/v1/attachments" },
			     SIZE_MAX, same_size_page, &s);
	/* The upload will find out, and say, what is wrong. */
	if (r != OUTCOME_OK && cli->complaint)
		buf_done(cli->complaint);
	return r == OUTCOME_OK && s.found;
}

/* Asks whether the daemon has these bytes, which stages them again and sends nothing. `*ret_has` is
 * false when it has not, or does not know the question. */
static enum outcome stage_again(struct cli *cli, const char *path, struct answer *ret,
				bool *ret_has)
{
	char checksum[65];
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/attachments/%/stage",
				   .segments = { checksum },
				   .body = body,
				   .any_status = true,
				   .repeatable = true };

	*ret_has = false;
	if (!may_be_there(cli, transfer_size(path)) || !transfer_checksum(path, checksum))
		return OUTCOME_OK;
	put_lifetime(&cli->args, body);
	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || answer.status == 404 || answer.status == 405 || answer.status == 410)
		return r;
	if (outcome_of_status(answer.status) != OUTCOME_OK)
		return client_refused(cli, &answer);
	*ret = answer;
	answer = (struct answer){ 0 };
	*ret_has = true;
	return OUTCOME_OK;
}

static enum outcome stage_file(struct cli *cli, const char *path)
{
	struct request CLEANUP(request_done)
		request = { .method = "POST", .path = "/v1/attachments" };
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = take_name(cli, path, &request);
	take_lifetime(&cli->args, &request);
	bool has = false;
	if (r == OUTCOME_OK)
		r = stage_again(cli, path, &answer, &has);
	if (r == OUTCOME_OK && !has)
		r = transfer_up(cli, path, &request, &answer);
	cli->now = clock_wall(cli->clock);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_staged(cli, answer.json);
	return r;
}

/* Failures that the other files would meet, too. */
static bool is_hopeless(enum outcome r)
{
	return r == OUTCOME_UNREACHABLE || r == OUTCOME_DENIED;
}

/* Stages one file and says which one it was about when that fails. */
static enum outcome stage_one(struct cli *cli, const char *path)
{
	struct buf CLEANUP(buf_done) why = { 0 };

	cli->complaint = &why;
	enum outcome r = stage_file(cli, path);
	cli->complaint = NULL;
	if (r == OUTCOME_OK)
		return r;
	if (is_hopeless(r))
		return cli_fail(cli, r, "%s", buf_text(&why));
	return cli_fail(cli, r, "%s: %s", strcmp(path, "-") == 0 ? "standard input" : path,
			buf_text(&why));
}

static enum outcome check_stage(const struct cli *cli)
{
	const struct args *args = &cli->args;
	size_t inputs = 0;

	for (size_t i = 0; i < args->operand_count; i++)
		inputs += strcmp(args->operands[i], "-") == 0;
	if (inputs > 1)
		return cli_usage(cli, "- can be given only once");
	if (args_has(args, OPT_NAME) && args->operand_count > 1)
		return cli_usage(cli, "--name is for one FILE: stage them one by one");
	if (args_has(args, OPT_NAME) && args->text[OPT_NAME][0] == '\0')
		return cli_usage(cli, "--name must not be empty");
	return OUTCOME_OK;
}

enum outcome cmd_stage(struct cli *cli)
{
	enum outcome first = check_stage(cli);

	if (first != OUTCOME_OK)
		return first;
	for (size_t i = 0; i < cli->args.operand_count; i++) {
		enum outcome r = stage_one(cli, cli->args.operands[i]);
		if (first == OUTCOME_OK)
			first = r;
		if (is_hopeless(r))
			break;
	}
	return first;
}

enum outcome cmd_attachments(struct cli *cli)
{
	static const struct column columns[] = {
		{ "CHECKSUM", "checksum", CELL_DIGEST },
		{ "SIZE", "size", CELL_BYTES },
		{ "STAGED", "inserted_at", CELL_AGE },
		{ "EXPIRES", "expires_at", CELL_AGE },
		{ "PERSIST", "persist", CELL_FLAG },
		{ "NAME", "name", CELL_LONG },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/attachments" }, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no attachments") : r;
}

enum outcome cmd_attachments_show(struct cli *cli)
{
	static const struct column columns[] = {
		{ "checksum", "checksum", CELL_TEXT },  { "name", "name", CELL_TEXT },
		{ "size", "size", CELL_BYTES },         { "persist", "persist", CELL_FLAG },
		{ "lifetime", "ttl_ms", CELL_SPAN },    { "staged", "inserted_at", CELL_TIME },
		{ "expires", "expires_at", CELL_TIME }, { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	const char *checksum;

	enum outcome r = attachment_look_up(cli, &checksum, &answer);
	return r == OUTCOME_OK ? show_object(cli, &answer, columns) : r;
}

enum outcome cmd_attachments_rm(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	const char *checksum;

	enum outcome r = attachment_resolve(cli, args_operand(&cli->args, 0), &checksum);
	if (r == OUTCOME_OK)
		r = client_call(cli,
				&(struct request){ .method = "DELETE",
						   .path = "/v1/attachments/%",
						   .segments = { checksum } },
				&answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		printf("%s is removed\n", checksum);
	return r;
}

/* A row "kind, count, bytes" of the six numbers. */
static void add_kind(json_t *rows, const json_t *metrics, const char *kind)
{
	char count[32], bytes[32];
	json_t *row = json_object();

	snprintf(count, sizeof(count), "%s_count", kind);
	snprintf(bytes, sizeof(bytes), "%s_bytes", kind);
	json_object_set_new(row, "kind", json_string(kind));
	json_object_set(row, "count", json_object_get(metrics, count));
	json_object_set(row, "bytes", json_object_get(metrics, bytes));
	json_array_append_new(rows, row);
}

enum outcome cmd_attachments_metrics(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ATTACHMENTS", "kind", CELL_TEXT },
		{ "COUNT", "count", CELL_COUNT },
		{ "SIZE", "bytes", CELL_BYTES },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	json_t *CLEANUP(json_freep) rows = json_array();

	enum outcome r = client_call(
		cli, &(struct request){ .method = "GET", .path = "/v1/attachments/metrics" },
		&answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	add_kind(rows, answer.json, "persistent");
	add_kind(rows, answer.json, "expirable");
	add_kind(rows, answer.json, "total");
	return show_rows(cli, rows, columns, "");
}

enum outcome cmd_cleanup(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) out = { 0 };

	enum outcome r = client_call(cli,
				     &(struct request){ .method = "POST",
							.path = "/v1/attachments/cleanup",
							.timeout_ms = CLEANUP_TIMEOUT_MS },
				     &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	const json_t *count = json_object_get(answer.json, "count");
	buf_puts(&out, "removed ");
	show_value(cli, count, CELL_COUNT, &out);
	buf_puts(&out, json_integer_value(count) == 1 ? " attachment (" : " attachments (");
	show_value(cli, json_object_get(answer.json, "bytes"), CELL_BYTES, &out);
	buf_puts(&out, ")");
	puts(buf_text(&out));
	return OUTCOME_OK;
}
