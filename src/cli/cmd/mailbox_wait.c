/* SPDX-License-Identifier: Apache-2.0 */
/* `mailbox wait`: the next unread mail that fits, or the code or link in it. */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "cli/cmd/mailbox.h"
#include "cli/line/commands.h"
#include "cli/show/pick.h"
#include "cli/show/show.h"

#define WAIT_DEFAULT_MS 60000
#define POLL_MS 25000 /* one long poll; longer waits are several of them */
#define PAGE_MAILS 100

/* What is being waited for, and how far the inbox was looked through. */
struct mail_wait {
	struct cli *cli;
	const char *mailbox;
	lapse_us until; /* monotonic */
	char *since;    /* id of the newest mail seen; NULL = none yet */
	char *found;    /* id of the mail that fits; NULL = none yet */
};

static void mail_wait_done(struct mail_wait *w)
{
	free(w->since);
	free(w->found);
}

static bool contains(const json_t *mail, const char *key, const char *wanted)
{
	const char *text = json_string_value(json_object_get(mail, key));

	return !wanted || (text && strcasestr(text, wanted));
}

static bool fits(const struct cli *cli, const json_t *mail)
{
	return !json_is_true(json_object_get(mail, "read")) &&
	       contains(mail, "from", cli->args.text[OPT_MAIL_FROM]) &&
	       contains(mail, "subject", cli->args.text[OPT_MAIL_SUBJECT]);
}

/* Lists are newest first; the oldest mail that fits is wanted. */
static void look_through(struct mail_wait *w, const json_t *mails)
{
	for (size_t i = json_array_size(mails); i-- > 0 && !w->found;) {
		const json_t *mail = json_array_get(mails, i);
		const char *id = json_string_value(json_object_get(mail, "id"));
		if (id && fits(w->cli, mail))
			w->found = mem_strdup(id);
		if (id && i == 0) {
			free(w->since);
			w->since = mem_strdup(id);
		}
	}
}

/* Waits up to `ms` for mail that was not looked at yet. */
static enum outcome poll_mail(struct mail_wait *w, int64_t ms)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request CLEANUP(request_done) request = { .method = "GET",
							 .path = "/v1/mailboxes/%/messages",
							 .segments = { w->mailbox },
							 .timeout_ms = ms + MAIL_TIMEOUT_MS };

	request_query_int(&request, "limit", PAGE_MAILS);
	request_query_int(&request, "wait_ms", ms);
	if (w->since)
		request_query(&request, "since", w->since);
	enum outcome r = client_call(w->cli, &request, &answer);
	if (r == OUTCOME_OK)
		look_through(w, json_object_get(answer.json, "data"));
	return r;
}

static enum outcome find_mail(struct mail_wait *w)
{
	enum outcome r = OUTCOME_OK;
	int64_t left = 0;

	do {
		left = (w->until - clock_mono(w->cli->clock)) / 1000;
		left = left > 0 ? left : 0;
		r = poll_mail(w, left < POLL_MS ? left : POLL_MS);
	} while (r == OUTCOME_OK && !w->found && left > 0);
	if (r == OUTCOME_OK && !w->found)
		return cli_fail(w->cli, OUTCOME_EMPTY, "no unread mail that fits came in time");
	return r;
}

/* The code or the link alone on standard output, for a script. */
static enum outcome print_picked(const struct cli *cli, const json_t *mail)
{
	const struct pick_mail parts = { json_string_value(json_object_get(mail, "subject")),
					 json_string_value(json_object_get(mail, "body")),
					 json_string_value(json_object_get(mail, "html")) };
	struct buf CLEANUP(buf_done) picked = { 0 }, safe = { 0 };
	bool found = args_has(&cli->args, OPT_CODE) && pick_code(&parts, &picked);

	if (!found) {
		buf_clear(&picked);
		found = pick_link(&parts, &picked);
	}
	if (!found)
		return cli_fail(cli, OUTCOME_REFUSED,
				"the mail has neither a code nor a link in it");
	text_escape(&safe, picked.data, picked.len);
	puts(buf_text(&safe));
	return OUTCOME_OK;
}

static enum outcome mail_wait_take(struct mail_wait *w)
{
	struct cli *cli = w->cli;
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/mailboxes/%/messages/%/read",
				   .segments = { w->mailbox, w->found },
				   .timeout_ms = MAIL_TIMEOUT_MS };

	assert(w->found);
	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK)
		return r;
	if (args_has(&cli->args, OPT_CODE) || args_has(&cli->args, OPT_LINK))
		return print_picked(cli, answer.json);
	return show_json(cli, &answer) ? OUTCOME_OK : mailbox_print_mail(cli, answer.json);
}

enum outcome cmd_mailbox_wait(struct cli *cli)
{
	const bool given = args_has(&cli->args, OPT_WAIT);
	const int64_t wait_ms = given ? cli->args.number[OPT_WAIT] : WAIT_DEFAULT_MS;
	struct mail_wait CLEANUP(mail_wait_done) w = { .cli = cli };
	struct request request = { 0 };

	if (args_has(&cli->args, OPT_CODE) && args_has(&cli->args, OPT_LINK))
		return cli_usage(cli, "give --code or --link, not both");
	w.until = clock_mono(cli->clock) + wait_ms * 1000;
	enum outcome r = mailbox_resolve(cli, &request);
	if (r != OUTCOME_OK)
		return r;
	w.mailbox = request.segments[0];
	r = find_mail(&w);
	cli->now = clock_wall(cli->clock); /* what came meanwhile is not from the future */
	return r == OUTCOME_OK ? mail_wait_take(&w) : r;
}
