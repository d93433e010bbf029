/* SPDX-License-Identifier: Apache-2.0 */
/* The log and its consumers: outbox, outbox add, outbox consumers, outbox commit. */
#include "base/json.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define OUTBOX_PAGE 100 /* rows; the most a daemon gives at once */

static const struct column OUTBOX_COLUMNS[] = {
	{ "CURSOR", "cursor", CELL_TEXT },
	{ "CREATED", "created_at", CELL_AGE },
	{ "TOPIC", "topic", CELL_TEXT },
	{ "PAYLOAD", "payload", CELL_LONG },
	{ 0 },
};

/* One page after `cursor`; the first one, without a cursor, begins where the user said. */
static enum outcome outbox_page_get(struct cli *cli, const char *cursor, size_t rows,
				    int64_t wait_ms, struct answer *ret)
{
	const struct args *args = &cli->args;
	struct request CLEANUP(request_done)
		request = { .method = "GET",
			    .path = "/v1/outbox",
			    .timeout_ms = wait_ms > 0 ? wait_ms + WAIT_MARGIN_MS : 0 };

	request_query_int(&request, "limit", rows < OUTBOX_PAGE ? (int64_t)rows : OUTBOX_PAGE);
	if (cursor)
		request_query(&request, "after", cursor);
	else if (args_has(args, OPT_AFTER_CURSOR))
		request_query(&request, "after", args->text[OPT_AFTER_CURSOR]);
	else if (args_has(args, OPT_CONSUMER))
		request_query(&request, "consumer", args->text[OPT_CONSUMER]);
	if (args_has(args, OPT_TOPIC))
		request_query(&request, "topic", args->text[OPT_TOPIC]);
	if (wait_ms > 0)
		request_query_int(&request, "wait_ms", wait_ms);
	return client_call(cli, &request, ret);
}

/* The first page, waiting for a row as long as --wait says. */
static enum outcome outbox_first(struct cli *cli, size_t rows, struct answer *ret)
{
	int64_t left = args_has(&cli->args, OPT_WAIT) ? cli->args.number[OPT_WAIT] : 0;

	for (;;) {
		int64_t step = left < WAIT_STEP_MS ? left : WAIT_STEP_MS;
		enum outcome r = outbox_page_get(cli, NULL, rows, step, ret);
		left -= step;
		if (r != OUTCOME_OK || left <= 0 ||
		    json_array_size(json_object_get(ret->json, "data")) > 0)
			return r;
		answer_done(ret);
		*ret = (struct answer){ 0 };
	}
}

/* Appends the pages after the first, until one is empty or --limit is reached. */
static enum outcome outbox_rest(struct cli *cli, size_t limit, json_t *all)
{
	json_t *data = json_object_get(all, "data");

	while (json_array_size(data) < limit) {
		struct answer CLEANUP(answer_done) page = { 0 };
		const char *cursor = json_string_value(json_object_get(all, "next_cursor"));
		size_t before = json_array_size(data);
		if (!cursor)
			break;
		enum outcome r = outbox_page_get(cli, cursor, limit - before, 0, &page);
		if (r != OUTCOME_OK)
			return r;
		json_array_extend(data, json_object_get(page.json, "data"));
		if (json_array_size(data) == before)
			break;
		json_object_set(all, "next_cursor", json_object_get(page.json, "next_cursor"));
		if (json_is_true(json_object_get(page.json, "gap")))
			json_object_set_new(all, "gap", json_true());
	}
	return OUTCOME_OK;
}

static enum outcome outbox_print(const struct cli *cli, const json_t *all)
{
	if (show_made_json(cli, all))
		return OUTCOME_OK;
	if (json_is_true(json_object_get(all, "gap")))
		fputs("lapse: rows before the first one here were removed\n", stderr);
	return show_rows(cli, json_object_get(all, "data"), OUTBOX_COLUMNS, "no rows");
}

enum outcome cmd_outbox(struct cli *cli)
{
	const struct args *args = &cli->args;
	size_t limit = args_has(args, OPT_LIMIT) ? (size_t)args->number[OPT_LIMIT] : SIZE_MAX;
	struct answer CLEANUP(answer_done) answer = { 0 };

	if (args_has(args, OPT_AFTER_CURSOR) && args_has(args, OPT_CONSUMER))
		return cli_usage(cli, "give --after or --consumer, not both");
	enum outcome r = outbox_first(cli, limit, &answer);
	if (r != OUTCOME_OK)
		return r;
	size_t found = json_array_size(json_object_get(answer.json, "data"));
	if (found > 0)
		r = outbox_rest(cli, limit, answer.json);
	cli->now = clock_wall(cli->clock);
	if (r == OUTCOME_OK)
		r = outbox_print(cli, answer.json);
	return r == OUTCOME_OK && found == 0 && args_has(args, OPT_WAIT) ? OUTCOME_EMPTY : r;
}

enum outcome cmd_outbox_add(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) id = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/outbox",
				   .body = body,
				   .creates = true,
				   .key = cli->args.text[OPT_KEY] };

	if (json_object_set_new(body, "topic", json_string(args_operand(&cli->args, 0))) < 0)
		return cli_usage(cli, "TOPIC is not UTF-8 text");
	enum outcome r = input_object(cli, body, "payload", 1, "PAYLOAD");
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "id"), CELL_TEXT, &id);
	puts(buf_text(&id));
	return OUTCOME_OK;
}

enum outcome cmd_outbox_consumers(struct cli *cli)
{
	static const struct column columns[] = {
		{ "CONSUMER", "name", CELL_TEXT },
		{ "CURSOR", "cursor", CELL_TEXT },
		{ "BEHIND", "lag", CELL_COUNT },
		{ "UPDATED", "updated_at", CELL_AGE },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/outbox/consumers" }, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no consumers") : r;
}

enum outcome cmd_outbox_commit(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) line = { 0 };
	struct request request = { .method = "PUT",
				   .path = "/v1/outbox/consumers/%",
				   .segments = { args_operand(&cli->args, 0) },
				   .body = body };

	if (json_object_set_new(body, "cursor", json_string(args_operand(&cli->args, 1))) < 0)
		return cli_usage(cli, "CURSOR is not UTF-8 text");
	if (args_has(&cli->args, OPT_BACKWARDS))
		json_object_set_new(body, "force", json_true());
	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "name"), CELL_TEXT, &line);
	buf_puts(&line, " stands at ");
	show_value(cli, json_object_get(answer.json, "cursor"), CELL_TEXT, &line);
	puts(buf_text(&line));
	return OUTCOME_OK;
}
