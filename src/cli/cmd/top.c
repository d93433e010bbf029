/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live view: sample.c asks the daemon, frame.c makes text of it, screen.c puts it on the
 * terminal. A daemon that does not answer any more leaves the last frame there, with the reason
 * above it, and is asked again with every interval.
 */
#include <assert.h>
#include <errno.h>
#include <time.h>

#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"
#include "cli/top/frame.h"
#include "cli/top/sample.h"
#include "cli/top/screen.h"

#define INTERVAL_MS 1000
#define INTERVAL_MIN_MS 100 /* a view must not be a load */
#define INTERVAL_MAX_MS INT64_C(86400000)
#define PAUSE_US 60000000 /* a paused view wakes up as seldom as it may */

struct top {
	struct cli *cli;
	lapse_us interval_us;
	struct sample before, now;
	bool is_paused;
	struct buf away; /* why the daemon does not answer; empty while it does */
};

static void top_done(struct top *t)
{
	sample_done(&t->before);
	sample_done(&t->now);
	buf_done(&t->away);
}

static void top_keep(struct top *t, const struct sample *next)
{
	sample_done(&t->before);
	/* Rates over the time it was away would say nothing about now. */
	assert(next->matrix);
	if (t->away.len > 0)
		sample_done(&t->now);
	t->before = t->now;
	t->now = *next;
	buf_done(&t->away);
}

static void top_refresh(struct top *t)
{
	struct buf CLEANUP(buf_done) why = { 0 };
	struct sample next;

	t->cli->complaint = &why;
	enum outcome r = sample_read(t->cli, &next);
	t->cli->complaint = NULL;
	if (r == OUTCOME_OK) {
		top_keep(t, &next);
		return;
	}
	buf_done(&t->away);
	buf_puts(&t->away, "last answer ");
	text_span(&t->away, (clock_mono(t->cli->clock) - t->now.at) / 1000000 * 1000);
	buf_printf(&t->away, " ago: %s", buf_text(&why));
}

static bool top_draw(struct top *t)
{
	json_t *CLEANUP(json_freep) view = sample_view(t->cli, &t->now, &t->before);
	struct buf CLEANUP(buf_done) text = { 0 };
	int lines;

	t->cli->now = clock_wall(t->cli->clock);
	screen_size(&t->cli->columns, &lines);
	frame_keys(t->cli, t->is_paused ? 0 : t->interval_us / 1000, &text);
	frame_write(t->cli, view, t->away.len > 0 ? buf_text(&t->away) : NULL, &text);
	return screen_draw(&text);
}

/* Twice as often, or half as often, within the bounds of --interval. */
static void change_pace(struct top *t, enum screen_event event)
{
	lapse_us wanted = event == SCREEN_FASTER ? t->interval_us / 2 : t->interval_us * 2;

	assert(event == SCREEN_FASTER || event == SCREEN_SLOWER);
	if (wanted < INTERVAL_MIN_MS * 1000)
		wanted = INTERVAL_MIN_MS * 1000;
	if (wanted > INTERVAL_MAX_MS * 1000)
		wanted = INTERVAL_MAX_MS * 1000;
	t->interval_us = wanted;
}

static void top_watch(struct top *t)
{
	lapse_us next = t->now.at + t->interval_us;
	enum screen_event event = SCREEN_TIME;

	while (top_draw(t) && event != SCREEN_QUIT) {
		lapse_us now = clock_mono(t->cli->clock);
		event = screen_wait(t->cli->clock, t->is_paused ? now + PAUSE_US : next);
		if (event == SCREEN_PAUSE)
			t->is_paused = !t->is_paused;
		if (event == SCREEN_FASTER || event == SCREEN_SLOWER) {
			change_pace(t, event);
			next = now + t->interval_us;
		}
		if (event != SCREEN_TIME || t->is_paused)
			continue;
		next = clock_mono(t->cli->clock) + t->interval_us;
		top_refresh(t);
	}
}

static void sleep_us(lapse_us us)
{
	struct timespec left = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

static enum outcome print_once(struct top *t)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct sample next;

	sleep_us(t->interval_us);
	enum outcome r = sample_read(t->cli, &next);
	if (r != OUTCOME_OK)
		return r;
	top_keep(t, &next);
	t->cli->now = clock_wall(t->cli->clock);
	json_t *CLEANUP(json_freep) view = sample_view(t->cli, &t->now, &t->before);
	if (show_made_json(t->cli, view))
		return OUTCOME_OK;
	frame_write(t->cli, view, NULL, &text);
	fputs(buf_text(&text), stdout);
	return OUTCOME_OK;
}

enum outcome cmd_top(struct cli *cli)
{
	const struct args *args = &cli->args;
	int64_t ms = args_has(args, OPT_INTERVAL) ? args->number[OPT_INTERVAL] : INTERVAL_MS;
	struct top CLEANUP(top_done) t = { .cli = cli, .interval_us = ms * 1000 };

	if (ms < INTERVAL_MIN_MS || ms > INTERVAL_MAX_MS)
		return cli_usage(cli, "--interval must be from 100ms to 1d");
	enum outcome r = sample_read(cli, &t.now);
	if (r != OUTCOME_OK)
		return r;
	if (args_has(args, OPT_ONCE) || show_wants_json(cli) || !screen_open())
		return print_once(&t);
	top_watch(&t);
	screen_close();
	return OUTCOME_OK;
}
