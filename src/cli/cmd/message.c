/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: send, list, show, claim, read. */
#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/client/resolve.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define IDS_MAX 1000 /* ids in one request */
#define MESSAGE_ID_DIGITS 16

/* The content of a message: the operand, or standard input where there is none or "-". */
static enum outcome take_content(const struct cli *cli, json_t *body)
{
	const char *operand = cli->args.operand_count > 1 ? args_operand(&cli->args, 1) : NULL;
	struct buf CLEANUP(buf_done) content = { 0 };

	if (operand && strcmp(operand, "-") != 0) {
		buf_puts(&content, operand);
	} else {
		if (!operand && isatty(STDIN_FILENO))
			return cli_usage(cli, "CONTENT is missing; - reads it from the terminal");
		enum outcome r = input_file(cli, "-", "the content", &content);
		if (r != OUTCOME_OK)
			return r;
		if (!operand && content.len == 0)
			return cli_usage(cli, "CONTENT is missing, and standard input is empty");
	}
	if (json_object_set_new(body, "content", json_stringn(buf_text(&content), content.len)) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "the content is not UTF-8 text");
	return OUTCOME_OK;
}

static enum outcome take_metadata(const struct cli *cli, json_t *body)
{
	const char *text = cli->args.text[OPT_METADATA];
	struct problem p = { 0 };
	json_t *metadata;

	if (!text)
		return OUTCOME_OK;
	if (json_parse_object(text, strlen(text), &metadata, &p) < 0)
		return cli_usage(cli, "--metadata must be a JSON object");
	json_object_set_new(body, "metadata", metadata);
	return OUTCOME_OK;
}

static enum outcome take_recipients(const struct cli *cli, json_t *body)
{
	const struct args *args = &cli->args;
	json_t *to = json_array();

	json_object_set_new(body, "to", to);
	if (json_array_append_new(to, json_string(args_operand(args, 0))) < 0)
		return cli_usage(cli, "AGENT is not UTF-8 text");
	return input_texts(cli, to, OPT_TO);
}

static enum outcome make_message(const struct cli *cli, json_t *body)
{
	enum outcome r = input_text(cli, body, "from", OPT_FROM);

	if (r == OUTCOME_OK)
		r = input_text(cli, body, "type", OPT_TYPE);
	if (r == OUTCOME_OK)
		r = take_metadata(cli, body);
	if (r == OUTCOME_OK && args_has(&cli->args, OPT_TO))
		r = take_recipients(cli, body);
	return r == OUTCOME_OK ? take_content(cli, body) : r;
}

static void print_sent(const json_t *message)
{
	struct buf CLEANUP(buf_done) line = { 0 };
	const json_t *id = json_object_get(message, "id");

	text_escape(&line, json_string_value(id), json_string_length(id));
	puts(buf_text(&line));
}

enum outcome cmd_send(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	bool one = !args_has(&cli->args, OPT_TO);
	struct request request = { .method = "POST",
				   .body = body,
				   .creates = true,
				   .path = one ? "/v1/agents/%/messages" : "/v1/messages",
				   .segments = { args_operand(&cli->args, 0) } };
	const json_t *message;
	size_t i;

	enum outcome r = make_message(cli, body);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	if (one)
		print_sent(answer.json);
	else
		json_array_foreach (json_object_get(answer.json, "data"), i, message)
			print_sent(message);
	return OUTCOME_OK;
}

/* One long poll. */
static enum outcome poll_inbox(struct cli *cli, const struct request *list, int64_t wait_ms,
			       size_t *ret_found)
{
	struct request CLEANUP(request_done) request = *list;
	struct answer CLEANUP(answer_done) answer = { 0 };

	request.query = (struct buf){ 0 };
	buf_puts(&request.query, buf_text(&list->query));
	request_query_int(&request, "limit", 1);
	request_query_int(&request, "wait_ms", wait_ms);
	request.timeout_ms = wait_ms + WAIT_MARGIN_MS;
	enum outcome r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK)
		*ret_found = json_array_size(json_object_get(answer.json, "data"));
	return r;
}

/* Returns when the agent has a message to list; OUTCOME_EMPTY when the time is over. */
static enum outcome wait_for_message(struct cli *cli, const struct request *list)
{
	int64_t left = cli->args.number[OPT_WAIT];
	enum outcome r = OUTCOME_OK;
	size_t found = 0;

	while (r == OUTCOME_OK && found == 0 && left > 0) {
		int64_t step = left < WAIT_STEP_MS ? left : WAIT_STEP_MS;
		r = poll_inbox(cli, list, step, &found);
		assert(step > 0);
		left -= step;
	}
	/* What came in the meantime is not from the future. */
	cli->now = clock_wall(cli->clock);
	return r == OUTCOME_OK && found == 0 ? OUTCOME_EMPTY : r;
}

/* Every agent that has messages. */
static enum outcome list_inboxes(struct cli *cli)
{
	static const struct column columns[] = {
		{ "AGENT", "agent_id", CELL_TEXT },
		{ "MESSAGES", "total", CELL_COUNT },
		{ "UNREAD", "unread", CELL_DUE },
		{ "OLDEST UNREAD", "oldest_unread_age_ms", CELL_SPAN },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	json_t *row;
	size_t i;

	if (args_has(&cli->args, OPT_UNREAD) || args_has(&cli->args, OPT_WAIT))
		return cli_usage(cli, "--unread and --wait need an AGENT");
	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/messages/stats" }, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	json_array_foreach (json_object_get(answer.json, "data"), i, row) {
		const json_t *age = json_object_get(row, "oldest_unread_age_sec");
		if (json_is_integer(age))
			json_object_set_new(row, "oldest_unread_age_ms",
					    json_integer(json_integer_value(age) * 1000));
	}
	return show_rows(cli, json_object_get(answer.json, "data"), columns, "no messages");
}

enum outcome cmd_inbox(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },
		{ "SENT", "timestamp", CELL_AGE },
		{ "READ", "read_at", CELL_AGE },
		{ "FROM", "from", CELL_TEXT },
		{ "TYPE", "type", CELL_TEXT },
		{ "CONTENT", "content", CELL_LONG },
		{ 0 },
	};
	struct request CLEANUP(request_done)
		request = { .method = "GET", .path = "/v1/agents/%/messages" };
	struct answer CLEANUP(answer_done) answer = { 0 };
	enum outcome waited = OUTCOME_OK;

	if (cli->args.operand_count == 0)
		return list_inboxes(cli);
	request.segments[0] = args_operand(&cli->args, 0);
	if (args_has(&cli->args, OPT_UNREAD))
		request_query(&request, "unread", "true");
	if (args_has(&cli->args, OPT_WAIT))
		waited = wait_for_message(cli, &request);
	if (waited != OUTCOME_OK && waited != OUTCOME_EMPTY)
		return waited;
	enum outcome r = client_list(cli, &request, &answer);
	if (r == OUTCOME_OK)
		r = show_list(cli, &answer, columns, "no messages");
	return r == OUTCOME_OK ? waited : r;
}

static enum outcome resolve_message(struct cli *cli, const char *typed, const char **ret)
{
	const struct resolve what = { .noun = "message",
				      .key = "id",
				      .whole = MESSAGE_ID_DIGITS,
				      .list = { .method = "GET",
						.path = "/v1/agents/%/messages",
						.segments = { args_operand(&cli->args, 0) } } };

	return resolve_id(cli, &what, typed, ret);
}

/* Its fields, an empty line, and the content as it is, line by line. */
static enum outcome print_message(const struct cli *cli, const json_t *message)
{
	static const struct column columns[] = {
		{ "id", "id", CELL_TEXT },
		{ "from", "from", CELL_TEXT },
		{ "to", "to", CELL_TEXT },
		{ "type", "type", CELL_TEXT },
		{ "sent", "timestamp", CELL_TIME },
		{ "read", "read_at", CELL_TIME },
		{ "metadata", "metadata", CELL_TEXT },
		{ 0 },
	};
	const json_t *content = json_object_get(message, "content");
	struct buf CLEANUP(buf_done) text = { 0 };

	enum outcome r = show_fields(cli, message, columns);
	if (r != OUTCOME_OK || args_has(&cli->args, OPT_COLUMNS) || !json_is_string(content))
		return r;
	text_escape_lines(&text, json_string_value(content), json_string_length(content));
	printf("\n%s%s", buf_text(&text),
	       text.len > 0 && text.data[text.len - 1] != '\n' ? "\n" : "");
	return OUTCOME_OK;
}

enum outcome cmd_message_show(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "GET",
				   .path = "/v1/agents/%/messages/%",
				   .segments = { args_operand(&cli->args, 0) } };

	enum outcome r = resolve_message(cli, args_operand(&cli->args, 1), &request.segments[1]);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		r = print_message(cli, answer.json);
	return r;
}

/* One claim, which may wait; `*ret_count` messages came. */
static enum outcome claim_once(struct cli *cli, int64_t wait_ms, struct answer *ret,
			       size_t *ret_count)
{
	const struct args *args = &cli->args;
	json_t *CLEANUP(json_freep) body = json_object();
	struct request request = { .method = "POST",
				   .path = "/v1/agents/%/messages/claim",
				   .segments = { args_operand(args, 0) },
				   .body = body,
				   .timeout_ms = wait_ms + WAIT_MARGIN_MS };

	if (args_has(args, OPT_LIMIT))
		json_object_set_new(body, "limit", json_integer(args->number[OPT_LIMIT]));
	if (args_has(args, OPT_VISIBILITY))
		json_object_set_new(body, "visibility_ms",
				    json_integer(args->number[OPT_VISIBILITY]));
	if (wait_ms > 0)
		json_object_set_new(body, "wait_ms", json_integer(wait_ms));
	enum outcome r = client_call(cli, &request, ret);
	if (r == OUTCOME_OK)
		*ret_count = json_array_size(json_object_get(ret->json, "data"));
	return r;
}

enum outcome cmd_claim(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },           { "SENT", "timestamp", CELL_AGE },
		{ "FROM", "from", CELL_TEXT },       { "TYPE", "type", CELL_TEXT },
		{ "CONTENT", "content", CELL_LONG }, { 0 },
	};
	struct column picked[SHOW_COLUMNS_MAX];
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) claim = { 0 };
	int64_t left = args_has(&cli->args, OPT_WAIT) ? cli->args.number[OPT_WAIT] : 0;
	size_t count = 0;

	/* Before anything is claimed. */
	enum outcome r = show_columns(cli, columns, picked);
	while (r == OUTCOME_OK && count == 0) {
		int64_t step = left < WAIT_STEP_MS ? left : WAIT_STEP_MS;
		answer_done(&answer);
		answer = (struct answer){ 0 };
		r = claim_once(cli, step, &answer, &count);
		left -= step;
		if (left <= 0)
			break;
	}
	cli->now = clock_wall(cli->clock);
	if (r != OUTCOME_OK)
		return r;
	if (show_json(cli, &answer))
		return count > 0 ? OUTCOME_OK : OUTCOME_EMPTY;
	if (count > 0) {
		show_value(cli, json_object_get(answer.json, "claim_id"), CELL_TEXT, &claim);
		printf("claim %s\n", buf_text(&claim));
	}
	r = show_rows(cli, json_object_get(answer.json, "data"), columns, "nothing to claim");
	return r == OUTCOME_OK && count == 0 ? OUTCOME_EMPTY : r;
}

static void print_count(int64_t count)
{
	struct buf CLEANUP(buf_done) line = { 0 };

	text_count(&line, count);
	printf("%s %s marked read\n", buf_text(&line), count == 1 ? "message" : "messages");
}

/* One id: its own route, which can say that the message does not exist. */
static enum outcome read_one(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/agents/%/messages/%/read",
				   .segments = { args_operand(&cli->args, 0) } };

	enum outcome r = resolve_message(cli, args_operand(&cli->args, 1), &request.segments[1]);
	if (r == OUTCOME_OK && args_has(&cli->args, OPT_CLAIM_ID)) {
		r = input_text(cli, body, "claim_id", OPT_CLAIM_ID);
		request.body = body;
	}
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_count(1);
	return r;
}

static enum outcome read_bulk(struct cli *cli, const json_t *body, int64_t *ret_count)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/agents/%/messages/read",
				   .segments = { args_operand(&cli->args, 0) },
				   .body = body };

	enum outcome r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK)
		*ret_count += json_integer_value(json_object_get(answer.json, "count"));
	return r;
}

static enum outcome mark_ids_read(struct cli *cli, int64_t *ret_count)
{
	const struct args *args = &cli->args;
	enum outcome r = OUTCOME_OK;

	for (size_t i = 1; i < args->operand_count && r == OUTCOME_OK;) {
		json_t *CLEANUP(json_freep) body = json_object();
		json_t *ids = json_array();
		json_object_set_new(body, "ids", ids);
		for (; i < args->operand_count && json_array_size(ids) < IDS_MAX; i++) {
			const char *id;
			r = resolve_message(cli, args->operands[i], &id);
			if (r != OUTCOME_OK)
				return r;
			if (json_array_append_new(ids, json_string(id)) < 0)
				return cli_usage(cli, "ID must be 16 hexadecimal digits");
		}
		r = read_bulk(cli, body, ret_count);
	}
	return r;
}

static enum outcome read_before(struct cli *cli, const char *time, int64_t *ret_count)
{
	json_t *CLEANUP(json_freep) body = json_object();

	json_object_set_new(body, "before", json_string(time));
	return read_bulk(cli, body, ret_count);
}

enum outcome cmd_read(struct cli *cli)
{
	const struct args *args = &cli->args;
	char time[TIME_TEXT_LEN + 1] = "9999-12-31T23:59:59.999Z"; /* every message there is */
	int64_t count = 0;
	enum outcome r;

	if ((args->operand_count > 1) + args_has(args, OPT_BEFORE) + args_has(args, OPT_ALL) != 1)
		return cli_usage(cli, "give ids, or --before, or --all");
	if (args_has(args, OPT_CLAIM_ID) && args->operand_count != 2)
		return cli_usage(cli, "--claim is for one ID");
	if (args->operand_count == 2)
		return read_one(cli);
	if (args_has(args, OPT_BEFORE))
		time_format(args->number[OPT_BEFORE], time);
	r = args->operand_count > 1 ? mark_ids_read(cli, &count) : read_before(cli, time, &count);
	if (r != OUTCOME_OK)
		return r;
	if (show_wants_json(cli))
		printf("{\"count\":%lld}\n", (long long)count);
	else
		print_count(count);
	return OUTCOME_OK;
}
