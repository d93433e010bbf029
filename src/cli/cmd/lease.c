/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: list, show, acquire, release. */
#include "base/json.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define LEASE_TTL_MS 30000 /* of one that is acquired without --ttl */

enum outcome cmd_lease(struct cli *cli)
{
	static const struct column columns[] = {
		{ "KEY", "key", CELL_TEXT },
		{ "HOLDER", "holder", CELL_TEXT },
		{ "TOKEN", "fencing_token", CELL_TEXT },
		{ "ACQUIRED", "acquired_at", CELL_AGE },
		{ "EXPIRES", "expires_at", CELL_AGE },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "GET",
				   .path = "/v1/leases/%",
				   .segments = { args_operand(&cli->args, 0) } };

	enum outcome r = client_list(cli, &request, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no leases") : r;
}

static struct request lease_request(const struct cli *cli, const char *method)
{
	return (struct request){ .method = method,
				 .path = "/v1/leases/%/%",
				 .segments = { args_operand(&cli->args, 0),
					       args_operand(&cli->args, 1) } };
}

enum outcome cmd_lease_show(struct cli *cli)
{
	static const struct column columns[] = {
		{ "table", "table", CELL_TEXT },
		{ "key", "key", CELL_TEXT },
		{ "holder", "holder", CELL_TEXT },
		{ "fencing token", "fencing_token", CELL_TEXT },
		{ "acquired", "acquired_at", CELL_TIME },
		{ "expires", "expires_at", CELL_TIME },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = lease_request(cli, "GET");

	enum outcome r = client_call(cli, &request, &answer);
	return r == OUTCOME_OK ? show_object(cli, &answer, columns) : r;
}

/* The token alone, so that a script can keep it. */
enum outcome cmd_lease_acquire(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_pack("{s:I}", "ttl_ms", (json_int_t)LEASE_TTL_MS);
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) token = { 0 };
	struct request request = lease_request(cli, "PUT");

	request.body = body;
	enum outcome r = input_text(cli, body, "holder", OPT_LEASE_HOLDER);
	input_number(cli, body, "ttl_ms", OPT_LEASE_TTL);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "fencing_token"), CELL_TEXT, &token);
	puts(buf_text(&token));
	return OUTCOME_OK;
}

enum outcome cmd_lease_release(struct cli *cli)
{
	const struct args *args = &cli->args;
	struct request CLEANUP(request_done) request = lease_request(cli, "DELETE");
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) key = { 0 };

	request_query(&request, "holder", args->text[OPT_LEASE_HOLDER]);
	if (args_has(args, OPT_FENCING_TOKEN))
		request_query_int(&request, "fencing_token", args->number[OPT_FENCING_TOKEN]);
	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "key"), CELL_TEXT, &key);
	printf("%s is released\n", buf_text(&key));
	return OUTCOME_OK;
}
