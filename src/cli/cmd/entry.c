/* SPDX-License-Identifier: Apache-2.0 */
/* Entries that are refreshed, and what is claimed or consumed once: entry, dedupe, oauth. */
#include <string.h>

#include "base/hostile.h"
#include "base/json.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

enum outcome cmd_entry(struct cli *cli)
{
	static const struct column columns[] = {
		{ "KEY", "key", CELL_TEXT },           { "LAST SEEN", "last_seen_at", CELL_AGE },
		{ "EXPIRES", "expires_at", CELL_AGE }, { "CREATED", "created_at", CELL_AGE },
		{ "DATA", "data", CELL_LONG },         { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "GET",
				   .path = "/v1/tables/%",
				   .segments = { args_operand(&cli->args, 0) } };

	enum outcome r = client_list(cli, &request, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no entries") : r;
}

static struct request entry_request(const struct cli *cli, const char *method)
{
	return (struct request){ .method = method,
				 .path = "/v1/tables/%/%",
				 .segments = { args_operand(&cli->args, 0),
					       args_operand(&cli->args, 1) } };
}

enum outcome cmd_entry_show(struct cli *cli)
{
	static const struct column columns[] = {
		{ "key", "key", CELL_TEXT },
		{ "created", "created_at", CELL_TIME },
		{ "last seen", "last_seen_at", CELL_TIME },
		{ "expires", "expires_at", CELL_TIME },
		{ "data", "data", CELL_TEXT },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = entry_request(cli, "GET");

	enum outcome r = client_call(cli, &request, &answer);
	return r == OUTCOME_OK ? show_object(cli, &answer, columns) : r;
}

/* "KEY expires 2026-11-15T18:33:00.000Z (in 5m)" */
static void print_expiry(const struct cli *cli, const json_t *object, const char *key)
{
	struct buf CLEANUP(buf_done) line = { 0 };

	show_value(cli, json_object_get(object, key), CELL_TEXT, &line);
	buf_puts(&line, " expires ");
	show_value(cli, json_object_get(object, "expires_at"), CELL_TIME, &line);
	puts(buf_text(&line));
}

enum outcome cmd_entry_put(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = entry_request(cli, "PUT");
	enum outcome r = OUTCOME_OK;

	request.body = body;
	input_number(cli, body, "ttl_ms", OPT_ENTRY_TTL);
	if (cli->args.operand_count > 2)
		r = input_object(cli, body, "data", 2, "DATA");
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_expiry(cli, answer.json, "key");
	return r;
}

enum outcome cmd_entry_rm(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) key = { 0 };
	struct request request = entry_request(cli, "DELETE");

	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "key"), CELL_TEXT, &key);
	printf("%s is removed\n", buf_text(&key));
	return OUTCOME_OK;
}

static enum outcome make_dedupe(const struct cli *cli, json_t *body)
{
	static const struct {
		const char *key, *operand;
	} parts[] = {
		{ "channel", "CHANNEL" },
		{ "account_id", "ACCOUNT" },
		{ "container_id", "CONTAINER" },
		{ "message_id", "MESSAGE" },
	};

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (json_object_set_new(body, parts[i].key,
					json_string(args_operand(&cli->args, i))) < 0)
			return cli_usage(cli, "%s is not UTF-8 text", parts[i].operand);
	input_number(cli, body, "window_ms", OPT_WINDOW);
	return OUTCOME_OK;
}

enum outcome cmd_dedupe(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) until = { 0 };
	struct request request = { .method = "POST", .path = "/v1/dedupe", .body = body };

	enum outcome r = make_dedupe(cli, body);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK)
		return r;
	bool fresh = json_is_true(json_object_get(answer.json, "fresh"));
	if (show_json(cli, &answer))
		return fresh ? OUTCOME_OK : OUTCOME_REFUSED;
	show_value(cli, json_object_get(answer.json, "expires_at"), CELL_TIME, &until);
	if (!fresh)
		return cli_fail(cli, OUTCOME_REFUSED,
				"the message was claimed before; its window ends %s",
				buf_text(&until));
	printf("fresh; a repetition is recognized until %s\n", buf_text(&until));
	return OUTCOME_OK;
}

enum outcome cmd_oauth(struct cli *cli)
{
	return cli_usage(cli, "a verb is missing: put or consume");
}

enum outcome cmd_oauth_put(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "PUT",
				   .path = "/v1/oauth/%",
				   .segments = { args_operand(&cli->args, 0) },
				   .body = body };

	input_number(cli, body, "ttl_ms", OPT_STATE_TTL);
	enum outcome r = input_object(cli, body, "data", 1, "DATA");
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_expiry(cli, answer.json, "state");
	return r;
}

/* The data alone, as JSON: it is for a program. */
enum outcome cmd_oauth_consume(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) data = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/oauth/%/consume",
				   .segments = { args_operand(&cli->args, 0) } };

	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	char *CLEANUP(mem_freep) text =
		json_dumps(json_object_get(answer.json, "data"), JSON_COMPACT);
	if (!text)
		return cli_fail(cli, OUTCOME_REFUSED, "the daemon's answer has no data");
	hostile_escape_json(&data, text, strlen(text));
	puts(buf_text(&data));
	return OUTCOME_OK;
}
