/* SPDX-License-Identifier: Apache-2.0 */
/* The replicas of a cluster, and what each of them leads. */
#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

enum outcome cmd_replicas(struct cli *cli)
{
	static const struct column columns[] = {
		{ "NUMBER", "number", CELL_COUNT },    { "STATE", "state", CELL_STATE },
		{ "NAME", "name", CELL_TEXT },         { "LISTEN", "listen", CELL_TEXT },
		{ "VERSION", "version", CELL_TEXT },   { "STARTED", "started_at", CELL_AGE },
		{ "LAG", "lag_ms", CELL_SPAN },        { "FILES", "files", CELL_FLAG },
		{ "LEADS", "schedulers", CELL_TEXTS }, { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_call(
		cli, &(struct request){ .method = "GET", .path = "/v1/replicas" }, &answer);
	return r == OUTCOME_OK
		       ? show_list(cli, &answer, columns, "no cluster: one lapsed has the store")
		       : r;
}
