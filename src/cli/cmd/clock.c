/* SPDX-License-Identifier: Apache-2.0 */
/* The clock everything expires by, and the decision about a leap. */
#include <string.h>

#include "cli/line/commands.h"
#include "cli/show/show.h"

/* How a leap ends, for the one who looks at it. */
static void put_outlook(const json_t *clock, struct buf *out)
{
	const json_t *left = json_object_get(clock, "accepted_in_ms");

	if (!json_is_integer(left)) {
		buf_puts(out, "until it comes back, or: lapse clock accept");
		return;
	}
	buf_puts(out, "accepted by itself in ");
	text_span(out, json_integer_value(left));
	buf_puts(out, ", at once with: lapse clock accept");
}

static enum outcome print_clock(const struct cli *cli, const json_t *clock)
{
	static const struct column columns[] = {
		{ "state", "state", CELL_STATE },
		{ "trusted", "trusted", CELL_TEXT },
		{ "wall", "wall", CELL_TEXT },
		{ "leap", "leap_ms", CELL_SPAN },
		{ 0 },
	};
	struct buf CLEANUP(buf_done) outlook = { 0 };
	const char *state = json_string_value(json_object_get(clock, "state"));

	enum outcome r = show_fields(cli, clock, columns);
	if (r == OUTCOME_OK && state && strcmp(state, "jumped") == 0) {
		put_outlook(clock, &outlook);
		puts(buf_text(&outlook));
	}
	return r;
}

enum outcome cmd_clock(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_call(cli, &(struct request){ .method = "GET", .path = "/v1/clock" },
				     &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		r = print_clock(cli, answer.json);
	return r;
}

/* Asks with the numbers of the leap. Where there is none, the daemon will say so. */
static enum outcome confirm_leap(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) leap = { 0 };

	enum outcome r = client_call(cli, &(struct request){ .method = "GET", .path = "/v1/clock" },
				     &answer);
	if (r != OUTCOME_OK)
		return r;
	int64_t ms = json_integer_value(json_object_get(answer.json, "leap_ms"));
	text_span(&leap, ms);
	if (ms > 0 && !cli_confirm(cli,
				   "The wall clock is %s ahead of trusted time. Accept it? What "
				   "is due by it will be removed.",
				   buf_text(&leap)))
		return cli_fail(cli, OUTCOME_REFUSED, "nothing was changed");
	return OUTCOME_OK;
}

enum outcome cmd_clock_accept(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = confirm_leap(cli);
	if (r == OUTCOME_OK)
		r = client_call(cli,
				&(struct request){ .method = "POST", .path = "/v1/clock/accept" },
				&answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		r = print_clock(cli, answer.json);
	return r;
}
