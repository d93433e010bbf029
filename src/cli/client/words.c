/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/client/words.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/line/commands.h"
#include "cli/show/show.h"

/* Fields of requests, the flag that fills them, and whether their numbers are milliseconds. */
static const struct {
	const char *field, *flag;
	bool is_span;
} WORDS[] = {
	{ "ttl_ms", "ttl", true },
	{ "wait_ms", "wait", true },
	{ "visibility_ms", "visibility", true },
	{ "claim_id", "claim", false },
	{ "cluster_id", "cluster", false },
	{ "capabilities", "capability", false },
	{ "limit", "limit", false },
	{ "username", "username", false },
	{ "domain", "domain", false },
	{ "metadata", "metadata", false },
	{ "reason", "reason", false },
	{ "until", "until", false },
	{ "owner", "owner", false },
	{ "name", "name", false },
	{ "subject", "subject", false },
	{ "from", "from", false },
	{ "type", "type", false },
	{ "holder", "holder", false },
	{ "window_ms", "window", true },
	{ "lease_ms", "lease", true },
	{ "status", "status", false },
	{ "worker", "worker", false },
	{ "attempt", "attempt", false },
	{ "error", "error", false },
	{ "key", "key", false },
	{ "inbox_id", "inbox-id", false },
	{ "dedupe_key", "dedupe-key", false },
	{ "topic", "topic", false },
};

static bool command_has(const struct command *c, const char *spelling)
{
	for (enum option_id id = 0; c && id < OPTIONS_COUNT; id++)
		if ((options_have(c->needs, id) || options_have(c->takes, id)) &&
		    strcmp(OPTIONS_TABLE[id].spelling, spelling) == 0)
			return true;
	return false;
}

static size_t word_length(const char *text)
{
	size_t n = 0;

	while (isalnum((unsigned char)text[n]) || text[n] == '_')
		n++;
	return n;
}

/* A number of milliseconds, with the unit that follows it, as a duration. Returns the bytes it
 * stood for; 0: none. */
static size_t put_span(const char *text, struct buf *out)
{
	char *end;
	long long ms = strtoll(text, &end, 10);
	struct buf CLEANUP(buf_done) span = { 0 };

	if (end == text || word_length(text) != (size_t)(end - text) || ms < 1000)
		return 0;
	text_span(&span, ms);
	buf_puts(out, buf_text(&span));
	if (strncmp(end, " ms", 3) == 0 && !isalnum((unsigned char)end[3]))
		end += 3;
	return (size_t)(end - text);
}

/* Only a message that begins with a field is about it; a field's name may be any word elsewhere. */
void words_of_flags(const struct cli *cli, const char *message, struct buf *out)
{
	size_t n = word_length(message), used, row = ARRAY_LEN(WORDS);

	for (size_t i = 0; i < ARRAY_LEN(WORDS); i++)
		if (strlen(WORDS[i].field) == n && memcmp(WORDS[i].field, message, n) == 0 &&
		    message[n] == ' ' && command_has(cli->args.command, WORDS[i].flag))
			row = i;
	if (row == ARRAY_LEN(WORDS)) {
		buf_puts(out, message);
		return;
	}
	assert(n > 0);
	buf_printf(out, "--%s", WORDS[row].flag);
	for (message += n; *message; message += used) {
		used = 0;
		if (WORDS[row].is_span && isdigit((unsigned char)*message))
			used = put_span(message, out);
		if (used > 0)
			continue;
		used = word_length(message);
		used = used > 0 ? used : 1;
		buf_add(out, message, used);
	}
}
