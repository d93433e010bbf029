/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream of events. One connection at a time: client.c gives its bytes to sse.c, which gives
 * events to print_event(). Without --follow the stream is read until it has nothing more to tell;
 * with it, a connection that ends is made again, after the last event that was printed.
 */
#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hostile.h"
#include "base/id.h"
#include "base/json.h"
#include "cli/client/sse.h"
#include "cli/line/commands.h"
#include "cli/show/event.h"
#include "cli/show/show.h"

#define FIRST_PAUSE_MS 250
#define LAST_PAUSE_MS 30000
#define SILENCE_MS 45000 /* three keep-alives missed: the connection is dead */
#define QUIET_US 5000000 /* without --follow, should the daemon never say that it is live */
#define BEFORE_ALL "0000000000000000" /* the id no event has */

struct reader {
	struct cli *cli;
	struct sse sse;
	bool follow;
	bool is_open;      /* this connection has begun to stream */
	bool has_begun;    /* some connection has */
	bool was_read;     /* an event came through since the last pause */
	bool is_done;      /* all stored events are told */
	bool is_unread;    /* the reader of our output is gone */
	bool is_oversized; /* an event was too large to be one */
	size_t printed;
	const char
		*start; /* the id before the first event we ask for, when no cursor of the user's */
	struct column picked[SHOW_COLUMNS_MAX]; /* what --columns asks for */
	lapse_us heard;
	lapse_ms until; /* without --follow: the daemon's time when we asked */
};

/* An event that came while we were reading the stored ones. */
static bool is_newer(const struct reader *r, const json_t *event)
{
	const char *text = json_string_value(json_object_get(event, "at"));
	lapse_ms at;

	return !r->follow && text && time_parse(text, &at) && at > r->until;
}

/* The gap before the oldest event: a user who asks for all there is, or by time, misses nothing
 * there. */
static bool is_first_gap(const struct reader *r, const struct sse_event *event,
			 const json_t *object)
{
	const char *from =
		json_string_value(json_object_get(json_object_get(object, "data"), "from"));

	return strcmp(event->kind, EVENT_GAP) == 0 && from && strcmp(from, r->start) == 0 &&
	       (!r->follow || args_has(&r->cli->args, OPT_SINCE)) &&
	       !args_has(&r->cli->args, OPT_AFTER);
}

/* "agent.evicted" is wanted by --type agent.evicted, by --type agent, and by --type '*.evicted'. */
static bool is_wanted_type(const struct args *args, const char *kind)
{
	for (size_t i = 0; i < args->times[OPT_EVENT_TYPE]; i++) {
		const char *type = args->lists[OPT_EVENT_TYPE][i];
		size_t n = strlen(type);
		if (fnmatch(type, kind, 0) == 0 || (strncmp(type, kind, n) == 0 && kind[n] == '.'))
			return true;
	}
	return args->times[OPT_EVENT_TYPE] == 0;
}

static bool is_asked_for(const struct reader *r, const struct sse_event *event,
			 const json_t *object)
{
	const struct args *args = &r->cli->args;
	const char *text = json_string_value(json_object_get(object, "at"));
	lapse_ms at;

	/* What is missing concerns everyone. */
	if (strcmp(event->kind, EVENT_GAP) == 0)
		return !is_first_gap(r, event, object);
	if (args_has(args, OPT_SINCE) && text && time_parse(text, &at) &&
	    at < args->number[OPT_SINCE])
		return false;
	return is_wanted_type(args, event->kind);
}

static bool print_event(void *arg, const struct sse_event *event)
{
	struct reader *r = arg;
	struct buf CLEANUP(buf_done) out = { 0 };
	json_t *CLEANUP(json_freep) object = event_object(event);

	assert(!r->is_done && !r->is_unread); /* the stream ends with either */
	r->was_read = true;
	r->is_done = is_newer(r, object);
	if (r->is_done)
		return false;
	if (!is_asked_for(r, event, object))
		return true;
	if (show_wants_json(r->cli)) {
		char *CLEANUP(mem_freep) text = json_dumps(object, JSON_COMPACT);
		hostile_escape_json(&out, text ? text : "{}", text ? strlen(text) : 2);
		buf_putc(&out, '\n');
	} else {
		event_line(r->cli, object, args_has(&r->cli->args, OPT_COLUMNS) ? r->picked : NULL,
			   &out);
	}
	r->is_unread = !show_now(&out);
	r->printed++;
	if (args_has(&r->cli->args, OPT_LIMIT) &&
	    r->printed >= (size_t)r->cli->args.number[OPT_LIMIT])
		r->is_done = true;
	return !r->is_unread && !r->is_done;
}

/* The daemon says when everything that was there has been sent. */
static bool take_comment(void *arg, const char *text)
{
	struct reader *r = arg;

	r->is_done |= !r->follow && strcmp(text, "live") == 0;
	return !r->is_done;
}

static bool take_bytes(void *arg, const char *bytes, size_t n)
{
	struct reader *r = arg;

	r->heard = clock_mono(r->cli->clock);
	if (sse_feed(&r->sse, bytes, n))
		return true;
	r->is_oversized = !r->is_unread && !r->is_done;
	return false;
}

static bool look_around(void *arg)
{
	struct reader *r = arg;
	lapse_us now = clock_mono(r->cli->clock);

	if (!r->is_open) {
		if (r->has_begun)
			fputs("lapse: connected again\n", stderr);
		r->is_open = r->has_begun = true;
		r->heard = now;
	}
	/* Found here when no event comes to be written. */
	r->is_unread |= show_is_hung_up();
	r->is_done |= !r->follow && now - r->heard > QUIET_US;
	return !r->is_unread && !r->is_done;
}

/* One connection, to its end. The complaint about it is printed, or in cli->complaint. */
static enum outcome read_stream(struct reader *r, bool *ret_again)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	const char *after = r->sse.last_id.len > 0 ? buf_text(&r->sse.last_id) : NULL;
	struct stream stream = { .take = take_bytes, .tick = look_around, .arg = r };
	struct request request = { .method = "GET",
				   .path = "/v1/events",
				   .accept = "text/event-stream",
				   .stream = &stream,
				   .any_status = true,
				   .timeout_ms = SILENCE_MS };

	if (after)
		request.headers[0].name = "Last-Event-ID", request.headers[0].value = after;
	r->is_open = false;
	enum outcome how = client_call(r->cli, &request, &answer);
	r->has_begun |= how == OUTCOME_OK && answer.status == 200;
	if (how == OUTCOME_OK && outcome_of_status(answer.status) != OUTCOME_OK)
		how = client_refused(r->cli, &answer);
	else if (how == OUTCOME_OK && r->is_oversized)
		how = cli_fail(r->cli, OUTCOME_UNREACHABLE, "%s sends an event without end",
			       r->cli->client.url);
	sse_reset(&r->sse);
	/* The limit of streams is one of the things that pass. */
	*ret_again = how == OUTCOME_OK || how == OUTCOME_UNREACHABLE ||
		     how == OUTCOME_UNAVAILABLE || answer.status == 429;
	return how;
}

static void sleep_ms(int64_t ms)
{
	struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

/* Between half and the whole of it, so that a fleet of readers does not come back as one. */
static int64_t shorten(int64_t ms)
{
	return ms - id_random() % (ms / 2 + 1);
}

/* Says why the connection ended, and waits; longer from time to time. */
static void take_break(struct reader *r, const struct buf *why, int64_t *pause_ms)
{
	struct buf CLEANUP(buf_done) span = { 0 };
	int64_t least = r->sse.retry_ms > FIRST_PAUSE_MS ? r->sse.retry_ms : FIRST_PAUSE_MS;

	assert(r->follow && r->has_begun);
	if (r->was_read || *pause_ms < least)
		*pause_ms = least;
	if (*pause_ms > LAST_PAUSE_MS)
		*pause_ms = LAST_PAUSE_MS;
	int64_t ms = shorten(*pause_ms);
	text_span(&span, ms);
	fprintf(stderr, "lapse: %s; trying again in %s\n",
		why->len > 0 ? buf_text(why) : "the stream ended", buf_text(&span));
	sleep_ms(ms);
	*pause_ms *= 2;
	r->was_read = false;
}

static enum outcome events_follow(struct reader *r)
{
	int64_t pause_ms = FIRST_PAUSE_MS;

	for (;;) {
		struct buf CLEANUP(buf_done) why = { 0 };
		bool again;
		r->cli->complaint = &why;
		enum outcome how = read_stream(r, &again);
		r->cli->complaint = NULL;
		if (r->is_unread || r->is_done)
			return OUTCOME_OK;
		/* A daemon that was never there is an error like in any other command. */
		if (!again || !r->has_begun)
			return cli_fail(r->cli, how, "%s", buf_text(&why));
		take_break(r, &why, &pause_ms);
	}
}

static enum outcome ask_time(struct cli *cli, lapse_ms *ret)
{
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome how = client_call(
		cli, &(struct request){ .method = "GET", .path = "/v1/clock" }, &answer);
	const char *text = json_string_value(json_object_get(answer.json, "trusted"));
	if (how == OUTCOME_OK && !(text && time_parse(text, ret)))
		*ret = cli->now;
	return how;
}

static enum outcome read_stored(struct reader *r)
{
	bool again;

	enum outcome how = ask_time(r->cli, &r->until);
	if (how == OUTCOME_OK)
		how = read_stream(r, &again);
	if (how == OUTCOME_OK && !r->is_done && !r->is_unread)
		return cli_fail(r->cli, OUTCOME_UNREACHABLE, "the stream ended too early");
	return how;
}

static void reader_done(struct reader *r)
{
	sse_done(&r->sse);
}

enum outcome cmd_events(struct cli *cli)
{
	struct reader CLEANUP(reader_done)
		r = { .cli = cli, .follow = args_has(&cli->args, OPT_FOLLOW), .start = BEFORE_ALL };
	const char *after = cli->args.text[OPT_AFTER];
	char since[ID_TEXT_LEN + 1];
	int64_t id;

	if (after && !id_parse(after, &id))
		return cli_usage(cli, "--after must be the 16 hexadecimal digits of an event's id");
	if (after && args_has(&cli->args, OPT_SINCE))
		return cli_usage(cli, "give --since or --after, not both");
	if (args_has(&cli->args, OPT_SINCE)) {
		/* Ids grow with time: begin after all that can be older. */
		int64_t time = cli->args.number[OPT_SINCE];
		id_format(time > 0 ? id_floor(time) : 0, since);
		r.start = after = since;
	}
	enum outcome picked = show_columns(cli, EVENT_COLUMNS, r.picked);
	if (picked != OUTCOME_OK)
		return picked;
	r.sse.take = print_event;
	r.sse.comment = take_comment;
	r.sse.arg = &r;
	if (after || !r.follow)
		buf_puts(&r.sse.last_id, after ? after : BEFORE_ALL);
	sse_reset(&r.sse);
	return r.follow ? events_follow(&r) : read_stored(&r);
}
