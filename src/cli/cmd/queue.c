/* SPDX-License-Identifier: Apache-2.0 */
/* Work queues: list, show, add, claim, and what a worker says of an item. */
#include "base/json.h"
#include "cli/client/resolve.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define ITEM_ID_DIGITS 16
#define ITEM_LEASE_MS 30000 /* of an item that is extended without --lease */

enum outcome cmd_queue(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },
		{ "STATUS", "status", CELL_STATE },
		{ "CREATED", "created_at", CELL_AGE },
		{ "ATTEMPT", "attempt", CELL_COUNT },
		{ "WORKER", "worker", CELL_TEXT },
		{ "LEASE ENDS", "lease_expires_at", CELL_AGE },
		{ "FINISHED", "finished_at", CELL_AGE },
		{ "KEY", "key", CELL_TEXT },
		{ "ERROR", "error", CELL_LONG },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request CLEANUP(request_done) request = {
		.method = "GET", .path = "/v1/queues/%", .segments = { args_operand(&cli->args, 0) }
	};

	if (args_has(&cli->args, OPT_STATUS))
		request_query(&request, "status", cli->args.text[OPT_STATUS]);
	enum outcome r = client_list(cli, &request, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no items") : r;
}

/* The item of the operands TABLE and ID, whose first digits are enough. */
static enum outcome queue_resolve(struct cli *cli, struct request *request)
{
	const char *table = args_operand(&cli->args, 0);

	request->segments[0] = table;
	return resolve_id(cli,
			  &(struct resolve){ .noun = "item",
					     .key = "id",
					     .whole = ITEM_ID_DIGITS,
					     .list = { .method = "GET",
						       .path = "/v1/queues/%",
						       .segments = { table } } },
			  args_operand(&cli->args, 1), &request->segments[1]);
}

enum outcome cmd_queue_show(struct cli *cli)
{
	static const struct column columns[] = {
		{ "id", "id", CELL_TEXT },
		{ "status", "status", CELL_STATE },
		{ "key", "key", CELL_TEXT },
		{ "answers", "inbox_id", CELL_TEXT },
		{ "created", "created_at", CELL_TIME },
		{ "attempt", "attempt", CELL_COUNT },
		{ "worker", "worker", CELL_TEXT },
		{ "lease ends", "lease_expires_at", CELL_TIME },
		{ "finished", "finished_at", CELL_TIME },
		{ "error", "error", CELL_TEXT },
		{ "payload", "payload", CELL_TEXT },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "GET", .path = "/v1/queues/%/%" };

	enum outcome r = queue_resolve(cli, &request);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	return r == OUTCOME_OK ? show_object(cli, &answer, columns) : r;
}

enum outcome cmd_queue_add(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) id = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/queues/%",
				   .segments = { args_operand(&cli->args, 0) },
				   .body = body,
				   .creates = true,
				   .key = cli->args.text[OPT_KEY] };

	enum outcome r = input_text(cli, body, "key", OPT_ITEM_KEY);
	if (r == OUTCOME_OK)
		r = input_text(cli, body, "inbox_id", OPT_INBOX_ID);
	if (r == OUTCOME_OK)
		r = input_text(cli, body, "dedupe_key", OPT_DEDUPE_KEY);
	if (r == OUTCOME_OK)
		r = input_object(cli, body, "payload", 1, "PAYLOAD");
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "id"), CELL_TEXT, &id);
	puts(buf_text(&id));
	return OUTCOME_OK;
}

/* One claim, which may wait; `*ret_count` items came. */
static enum outcome queue_claim_once(struct cli *cli, int64_t wait_ms, struct answer *ret,
				     size_t *ret_count)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct request request = { .method = "POST",
				   .path = "/v1/queues/%/claim",
				   .segments = { args_operand(&cli->args, 0) },
				   .body = body,
				   .timeout_ms = wait_ms + WAIT_MARGIN_MS };

	enum outcome r = input_text(cli, body, "worker", OPT_WORKER);
	input_number(cli, body, "limit", OPT_LIMIT);
	input_number(cli, body, "lease_ms", OPT_ITEM_LEASE);
	if (wait_ms > 0)
		json_object_set_new(body, "wait_ms", json_integer(wait_ms));
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, ret);
	if (r == OUTCOME_OK)
		*ret_count = json_array_size(json_object_get(ret->json, "data"));
	return r;
}

enum outcome cmd_queue_claim(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },
		{ "ATTEMPT", "attempt", CELL_COUNT },
		{ "LEASE ENDS", "lease_expires_at", CELL_AGE },
		{ "CREATED", "created_at", CELL_AGE },
		{ "KEY", "key", CELL_TEXT },
		{ "PAYLOAD", "payload", CELL_LONG },
		{ 0 },
	};
	struct column picked[SHOW_COLUMNS_MAX];
	struct answer CLEANUP(answer_done) answer = { 0 };
	int64_t left = args_has(&cli->args, OPT_WAIT) ? cli->args.number[OPT_WAIT] : 0;
	size_t count = 0;

	/* Before anything is claimed. */
	enum outcome r = show_columns(cli, columns, picked);
	while (r == OUTCOME_OK) {
		int64_t step = left < WAIT_STEP_MS ? left : WAIT_STEP_MS;
		answer_done(&answer);
		answer = (struct answer){ 0 };
		r = queue_claim_once(cli, step, &answer, &count);
		left -= step;
		if (count > 0 || left <= 0)
			break;
	}
	cli->now = clock_wall(cli->clock);
	if (r == OUTCOME_OK)
		r = show_list(cli, &answer, columns, "nothing to claim");
	return r == OUTCOME_OK && count == 0 ? OUTCOME_EMPTY : r;
}

/* Sends it, and says what the item is now. */
static enum outcome queue_post(struct cli *cli, struct request *request)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) line = { 0 };

	enum outcome r = queue_resolve(cli, request);
	if (r == OUTCOME_OK)
		r = client_call(cli, request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "id"), CELL_TEXT, &line);
	buf_puts(&line, " is ");
	show_value(cli, json_object_get(answer.json, "status"), CELL_TEXT, &line);
	puts(buf_text(&line));
	return OUTCOME_OK;
}

/* What a worker says of an item it has claimed: POST …/`verb` with worker and attempt. */
static enum outcome queue_say(struct cli *cli, const char *path, json_t *body)
{
	struct request request = { .method = "POST", .path = path, .body = body };

	enum outcome r = input_text(cli, body, "worker", OPT_WORKER);
	input_number(cli, body, "attempt", OPT_ATTEMPT);
	return r == OUTCOME_OK ? queue_post(cli, &request) : r;
}

enum outcome cmd_queue_retry(struct cli *cli)
{
	struct request request = { .method = "POST", .path = "/v1/queues/%/%/retry" };

	return queue_post(cli, &request);
}

enum outcome cmd_queue_complete(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();

	return queue_say(cli, "/v1/queues/%/%/complete", body);
}

enum outcome cmd_queue_fail(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();

	enum outcome r = input_text(cli, body, "error", OPT_ERROR);
	if (args_has(&cli->args, OPT_RETRY))
		json_object_set_new(body, "retry", json_true());
	return r == OUTCOME_OK ? queue_say(cli, "/v1/queues/%/%/fail", body) : r;
}

enum outcome cmd_queue_extend(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body =
		json_pack("{s:I}", "lease_ms", (json_int_t)ITEM_LEASE_MS);

	input_number(cli, body, "lease_ms", OPT_ITEM_LEASE);
	return queue_say(cli, "/v1/queues/%/%/extend", body);
}
