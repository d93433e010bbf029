/* SPDX-License-Identifier: Apache-2.0 */
/* Webhooks: ls, show, create, test, replay, pause, resume, rm. */
#include "base/json.h"
#include "cli/client/resolve.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define WEBHOOK_ID_CHARS 20       /* whk_ and 16 digits */
#define WEBHOOK_TIMEOUT_MS 630000 /* a receiver may take as long as webhook_timeout_ms lets it */

/* Calls with the webhook that the first operand names, by its id or the beginning of it. */
static enum outcome webhook_call(struct cli *cli, struct request *request, struct answer *ret)
{
	struct resolve CLEANUP(resolve_done)
		what = { .noun = "webhook",
			 .key = "id",
			 .prefix = "whk_",
			 .whole = WEBHOOK_ID_CHARS,
			 .list = { .method = "GET", .path = "/v1/webhooks" } };
	enum outcome r = resolve_id(cli, &what, args_operand(&cli->args, 0), &request->segments[0]);

	return r == OUTCOME_OK ? client_call(cli, request, ret) : r;
}

enum outcome cmd_webhook_ls(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },
		{ "STATE", "state", CELL_STATE },
		{ "LAST", "last_attempt_at", CELL_AGE },
		{ "STATUS", "last_status", CELL_COUNT },
		{ "FAILING", "failing_since", CELL_AGE },
		{ "DEAD LETTERS", "dead_letters", CELL_DUE },
		{ "TYPES", "types", CELL_TEXTS },
		{ "URL", "url", CELL_LONG },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/webhooks" }, &answer);

	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no webhooks") : r;
}

static const struct column WEBHOOK_FACTS[] = {
	{ "id", "id", CELL_TEXT },
	{ "url", "url", CELL_TEXT },
	{ "types", "types", CELL_TEXTS },
	{ "state", "state", CELL_STATE },
	{ "created", "created_at", CELL_TIME },
	{ "disabled", "disabled_at", CELL_TIME },
	{ "cursor", "cursor", CELL_TEXT },
	{ "attempts", "attempts", CELL_COUNT },
	{ "next attempt", "next_attempt_at", CELL_TIME },
	{ "failing since", "failing_since", CELL_TIME },
	{ "last attempt", "last_attempt_at", CELL_TIME },
	{ "last status", "last_status", CELL_COUNT },
	{ "last error", "last_error", CELL_TEXT },
	{ "dead letters", "dead_letters", CELL_COUNT },
	{ 0 },
};

static enum outcome webhook_show(struct cli *cli, struct request *request)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	enum outcome r = webhook_call(cli, request, &answer);

	return r == OUTCOME_OK ? show_object(cli, &answer, WEBHOOK_FACTS) : r;
}

enum outcome cmd_webhook_show(struct cli *cli)
{
	return webhook_show(cli, &(struct request){ .method = "GET", .path = "/v1/webhooks/%" });
}

enum outcome cmd_webhook_create(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) line = { 0 };
	struct request request = {
		.method = "POST", .path = "/v1/webhooks", .body = body, .creates = true
	};
	enum outcome r = OUTCOME_OK;

	if (json_object_set_new(body, "url", json_string(args_operand(&cli->args, 0))) < 0)
		return cli_usage(cli, "URL is not UTF-8 text");
	if (args_has(&cli->args, OPT_EVENT_TYPE)) {
		json_t *types = json_array();
		json_object_set_new(body, "types", types);
		r = input_texts(cli, types, OPT_EVENT_TYPE);
	}
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "id"), CELL_TEXT, &line);
	buf_puts(&line, "  ");
	show_value(cli, json_object_get(answer.json, "secret"), CELL_TEXT, &line);
	puts(buf_text(&line));
	return OUTCOME_OK;
}

enum outcome cmd_webhook_test(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) error = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/webhooks/%/test",
				   .timeout_ms = WEBHOOK_TIMEOUT_MS };
	enum outcome r = webhook_call(cli, &request, &answer);

	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	long long status = json_integer_value(json_object_get(answer.json, "status"));
	if (json_is_true(json_object_get(answer.json, "delivered"))) {
		printf("delivered: the receiver answered %lld\n", status);
		return OUTCOME_OK;
	}
	if (status)
		return cli_fail(cli, OUTCOME_REFUSED, "the receiver answered %lld", status);
	show_value(cli, json_object_get(answer.json, "error"), CELL_TEXT, &error);
	return cli_fail(cli, OUTCOME_REFUSED, "not delivered: %s", buf_text(&error));
}

enum outcome cmd_webhook_replay(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct request request = {
		.method = "POST", .path = "/v1/webhooks/%/replay", .body = body, .repeatable = true
	};
	enum outcome r = input_text(cli, body, "after", OPT_AFTER);

	return r == OUTCOME_OK ? webhook_show(cli, &request) : r;
}

static enum outcome webhook_enable(struct cli *cli, bool enabled)
{
	json_t *CLEANUP(json_freep) body = json_object();

	json_object_set_new(body, "enabled", json_boolean(enabled));
	return webhook_show(
		cli,
		&(struct request){ .method = "PATCH", .path = "/v1/webhooks/%", .body = body });
}

enum outcome cmd_webhook_pause(struct cli *cli)
{
	return webhook_enable(cli, false);
}

enum outcome cmd_webhook_resume(struct cli *cli)
{
	return webhook_enable(cli, true);
}

enum outcome cmd_webhook_rm(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) id = { 0 };
	struct request request = { .method = "DELETE", .path = "/v1/webhooks/%" };
	enum outcome r = webhook_call(cli, &request, &answer);

	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "id"), CELL_TEXT, &id);
	printf("%s is removed\n", buf_text(&id));
	return OUTCOME_OK;
}
