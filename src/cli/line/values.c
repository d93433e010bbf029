/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options, read by the kind of the option. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/cli.h"

static bool life_parse(const char *text, int64_t *ret)
{
	if (strcmp(text, "infinity") != 0)
		return span_parse(text, ret);
	*ret = LAPSE_NEVER;
	return true;
}

static bool whole_parse(const char *text, int64_t *ret)
{
	char *end;

	errno = 0;
	int64_t n = strtoll(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno == ERANGE || n < 1)
		return false;
	*ret = n;
	return true;
}

static bool moment_parse(const char *text, lapse_ms now, int direction, int64_t *ret)
{
	int64_t span;

	assert(direction == 1 || direction == -1);
	if (!span_parse(text, &span))
		return time_parse(text, ret);
	*ret = direction < 0 ? time_sub(now, span) : time_add(now, span);
	return true;
}

enum outcome args_take_value(struct cli *cli, enum option_id id, const char *value)
{
	const struct option *o = &OPTIONS_TABLE[id];
	struct args *args = &cli->args;
	const char *wanted = NULL;

	assert(o->kind == KIND_FLAG || value);
	args->text[id] = value;
	switch (o->kind) {
	case KIND_FLAG:
	case KIND_TEXT:
		break;
	case KIND_TEXTS:
		assert(args->lists[id]);
		args->lists[id][args->times[id]++] = value;
		break;
	case KIND_WHOLE:
		if (!whole_parse(value, &args->number[id]))
			wanted = "a whole number from 1";
		break;
	case KIND_SPAN:
		if (!span_parse(value, &args->number[id]))
			wanted = SPAN_EXAMPLES;
		break;
	case KIND_LIFE:
		if (!life_parse(value, &args->number[id]))
			wanted = SPAN_EXAMPLES ", or infinity";
		break;
	case KIND_PAST:
	case KIND_FUTURE:
		if (!moment_parse(value, cli->now, o->kind == KIND_PAST ? -1 : 1,
				  &args->number[id]))
			wanted = "a time like 2026-11-15T18:33:00Z or " SPAN_EXAMPLES;
		break;
	}
	if (wanted)
		return cli_usage(cli, "--%s must be %s, not '%s'", o->spelling, wanted, value);
	return OUTCOME_OK;
}
