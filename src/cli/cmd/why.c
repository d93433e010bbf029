/* SPDX-License-Identifier: Apache-2.0 */
/* What happened to a thing, and when and why it will go. */
#include <stdio.h>

#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/event.h"
#include "cli/show/show.h"

static enum outcome why_print_thing(const struct cli *cli, const json_t *thing)
{
	static const struct column columns[] = {
		{ "table", "table", CELL_TEXT },  { "key", "key", CELL_TEXT },
		{ "state", "state", CELL_STATE }, { "created", "created_at", CELL_TIME },
		{ "goes", "goes_at", CELL_TIME }, { "next sweep", "next_sweep_at", CELL_AGE },
		{ "why", "why", CELL_TEXT },      { 0 },
	};
	return show_fields(cli, thing, columns);
}

static void why_print_event(const struct cli *cli, json_t *event)
{
	struct buf CLEANUP(buf_done) line = { 0 };

	json_object_set(event, "event", json_object_get(event, "type"));
	event_line(cli, event, NULL, &line);
	while (line.len > 0 && line.data[line.len - 1] == '\n')
		line.data[--line.len] = '\0';
	printf("%s%s\n", buf_text(&line),
	       json_is_true(json_object_get(event, "inferred"))
		       ? "  (the batch that must have held it)"
		       : "");
}

static enum outcome why_print(const struct cli *cli, const json_t *answer)
{
	const json_t *things = json_object_get(answer, "things");
	const json_t *timeline = json_object_get(answer, "timeline");
	enum outcome r = OUTCOME_OK;
	json_t *item;
	size_t i;

	json_array_foreach (things, i, item) {
		if (i > 0)
			puts("");
		r = why_print_thing(cli, item);
		if (r != OUTCOME_OK)
			return r;
	}
	if (json_array_size(things) > 0 && json_array_size(timeline) > 0)
		puts("");
	if (json_is_true(json_object_get(answer, "more_events")))
		puts("(older events are left out)");
	json_array_foreach (timeline, i, item)
		why_print_event(cli, item);
	return r;
}

enum outcome cmd_why(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request CLEANUP(request_done) request = { .method = "GET", .path = "/v1/why" };
	const char *thing = args_operand(&cli->args, 0);

	request_query(&request, "q", thing);
	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK)
		return r;
	if (!show_json(cli, &answer))
		r = why_print(cli, answer.json);
	if (r == OUTCOME_OK && json_array_size(json_object_get(answer.json, "things")) == 0 &&
	    json_array_size(json_object_get(answer.json, "timeline")) == 0)
		return cli_fail(cli, OUTCOME_NOT_FOUND,
				"nothing is known by this name: no row has it, and no event that "
				"is still kept mentions it");
	return r;
}
