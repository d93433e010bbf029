/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet: agents, heartbeat, capabilities. */
#include "base/json.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

static const struct column AGENT_COLUMNS[] = {
	{ "AGENT", "agent_id", CELL_TEXT },
	{ "CLUSTER", "cluster_id", CELL_TEXT },
	{ "STATE", "state", CELL_STATE },
	{ "LAST SEEN", "last_seen", CELL_AGE },
	{ "FIRST SEEN", "first_seen", CELL_AGE },
	{ "CAPABILITIES", "capabilities", CELL_TEXTS },
	{ 0 },
};

/* A list of agents, from a route that gives one. */
static enum outcome agent_list(struct cli *cli, const struct request *request)
{
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(cli, request, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, AGENT_COLUMNS, "no agents") : r;
}

enum outcome cmd_agents(struct cli *cli)
{
	const struct args *args = &cli->args;
	struct request CLEANUP(request_done) request = { .method = "GET", .path = "/v1/agents" };

	if (args_has(args, OPT_CLUSTER))
		request_query(&request, "cluster_id", args->text[OPT_CLUSTER]);
	if (args_has(args, OPT_CAPABILITY))
		request_query(&request, "capability", args->text[OPT_CAPABILITY]);
	if (args_has(args, OPT_INCLUDE_SUSPECT))
		request_query(&request, "include_suspect", "true");
	return agent_list(cli, &request);
}

enum outcome cmd_agents_show(struct cli *cli)
{
	static const struct column columns[] = {
		{ "agent", "agent_id", CELL_TEXT },
		{ "cluster", "cluster_id", CELL_TEXT },
		{ "state", "state", CELL_STATE },
		{ "last seen", "last_seen", CELL_TIME },
		{ "first seen", "first_seen", CELL_TIME },
		{ "capabilities", "capabilities", CELL_TEXTS },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "GET",
				   .path = "/v1/agents/%",
				   .segments = { args_operand(&cli->args, 0) } };

	enum outcome r = client_call(cli, &request, &answer);
	return r == OUTCOME_OK ? show_object(cli, &answer, columns) : r;
}

enum outcome cmd_agents_rm(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) agent = { 0 };
	struct request request = { .method = "DELETE",
				   .path = "/v1/agents/%",
				   .segments = { args_operand(&cli->args, 0) } };

	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "agent_id"), CELL_TEXT, &agent);
	printf("%s is removed\n", buf_text(&agent));
	return OUTCOME_OK;
}

static enum outcome make_heartbeat(const struct cli *cli, json_t *body)
{
	json_t *CLEANUP(json_freep) capabilities = json_array();

	enum outcome r = input_texts(cli, capabilities, OPT_OWN_CAPABILITY);
	if (r == OUTCOME_OK && args_has(&cli->args, OPT_OWN_CAPABILITY))
		json_object_set(body, "capabilities", capabilities);
	return r == OUTCOME_OK ? input_text(cli, body, "cluster_id", OPT_OWN_CLUSTER) : r;
}

enum outcome cmd_heartbeat(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/agents/%/heartbeat",
				   .segments = { args_operand(&cli->args, 0) },
				   .body = body,
				   .repeatable = true };

	enum outcome r = make_heartbeat(cli, body);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK)
		show_json(cli, &answer);
	return r;
}

enum outcome cmd_capabilities(struct cli *cli)
{
	static const struct column columns[] = {
		{ "CAPABILITY", "capability", CELL_TEXT },
		{ "COUNT", "count", CELL_COUNT },
		{ "AGENTS", "agents", CELL_TEXTS },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	if (cli->args.operand_count > 0)
		return agent_list(cli,
				  &(struct request){ .method = "GET",
						     .path = "/v1/capabilities/%",
						     .segments = { args_operand(&cli->args, 0) } });
	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/capabilities" }, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no capabilities") : r;
}
