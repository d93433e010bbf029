/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/frame.h"

#include <assert.h>
#include <string.h>

#include "cli/show/replicas.h"
#include "cli/show/show.h"

#define USUAL_COLUMNS 80
#define FACT_GAP 3 /* spaces between two facts */

/* Facts fill lines of the terminal's width like words. */
struct flow {
	const struct cli *cli;
	struct buf *out;
	size_t at, width;
};

/* Adds "name value"; takes the value. */
static void put_fact(struct flow *f, const char *name, const char *style, struct buf *value)
{
	size_t own = text_width(name) + 1 + text_width(buf_text(value));

	assert(f->width > 0 && name[0]);
	if (f->at > 0 && f->at + FACT_GAP + own > f->width) {
		buf_putc(f->out, '\n');
		f->at = 0;
	}
	if (f->at > 0)
		buf_printf(f->out, "%*s", FACT_GAP, "");
	f->at += own + (f->at > 0 ? FACT_GAP : 0);
	text_styled(f->cli, f->out, STYLE_DIM, name);
	buf_putc(f->out, ' ');
	if (style)
		text_styled(f->cli, f->out, style, buf_text(value));
	else
		buf_puts(f->out, buf_text(value));
	buf_done(value);
}

static void put_seconds(const json_t *value, struct buf *out)
{
	if (json_is_number(value))
		text_seconds(out, json_number_value(value));
	else
		buf_puts(out, "-");
}

/* "p50 1.2ms p99 8.0ms". */
static void put_spread(struct flow *f, const char *name, const json_t *spread, const char *p50,
		       const char *p99)
{
	struct buf value = { 0 };

	buf_puts(&value, "p50 ");
	put_seconds(json_object_get(spread, p50), &value);
	buf_puts(&value, " p99 ");
	put_seconds(json_object_get(spread, p99), &value);
	put_fact(f, name, NULL, &value);
}

static void put_agents(struct flow *f, const json_t *view)
{
	const json_t *suspect = json_object_get(view, "agents_suspect");
	struct buf value = { 0 };

	show_value(f->cli, json_object_get(view, "agents_live"), CELL_COUNT, &value);
	buf_puts(&value, " live, ");
	show_value(f->cli, suspect, CELL_COUNT, &value);
	buf_puts(&value, " suspect");
	put_fact(f, "agents", json_integer_value(suspect) > 0 ? STYLE_YELLOW : NULL, &value);
}

static void frame_put_clock(struct flow *f, const json_t *clock)
{
	const json_t *state = json_object_get(clock, "state");
	const char *text = json_string_value(state);
	bool good = text && strcmp(text, "trusted") == 0;
	struct buf value = { 0 };

	show_value(f->cli, state, CELL_TEXT, &value);
	if (!good) {
		buf_puts(&value, ", ");
		show_value(f->cli, json_object_get(clock, "leap_ms"), CELL_SPAN, &value);
		buf_puts(&value, " ahead");
	}
	put_fact(f, "clock", good ? STYLE_GREEN : STYLE_RED, &value);
}

static void frame_put_facts(const struct cli *cli, const json_t *view, struct buf *out)
{
	struct flow f = { .cli = cli,
			  .out = out,
			  .width = cli->columns > 0 ? (size_t)cli->columns : USUAL_COLUMNS };
	const json_t *dead = json_object_get(view, "dead_letters");
	const json_t *lag = json_object_get(view, "lag");
	struct buf value = { 0 };

	put_agents(&f, view);
	frame_put_clock(&f, json_object_get(view, "clock"));
	show_value(cli, dead, CELL_COUNT, &value);
	put_fact(&f, "dead letters", json_integer_value(dead) > 0 ? STYLE_RED : NULL, &value);
	if (json_object_get(view, "replicas")) {
		show_value(cli, json_object_get(view, "replicas"), CELL_COUNT, &value);
		put_fact(&f, "replicas", NULL, &value);
	}
	show_value(cli, json_object_get(view, "requests_per_second"), CELL_RATE, &value);
	put_fact(&f, "requests/s", NULL, &value);
	put_seconds(json_object_get(json_object_get(view, "commit"), "p99_seconds"), &value);
	put_fact(&f, "commit p99", NULL, &value);
	put_spread(&f, "lag", lag, "p50_seconds", "p99_seconds");
	put_spread(&f, "lag since start", lag, "p50_seconds_total", "p99_seconds_total");
	buf_putc(out, '\n');
}

static void put_health(const struct cli *cli, const json_t *view, const char *away, struct buf *out)
{
	bool good = !away && json_is_true(json_object_get(view, "is_ready"));
	const json_t *reason;
	size_t i;

	buf_puts(out, "lapsed at ");
	show_value(cli, json_object_get(view, "url"), CELL_TEXT, out);
	buf_puts(out, " is ");
	text_styled(cli, out, good ? STYLE_GREEN : STYLE_RED,
		    away   ? "away"
		    : good ? "ready"
			   : "not ready");
	buf_putc(out, '\n');
	if (away) {
		buf_printf(out, "  %s\n", away);
		return;
	}
	json_array_foreach (json_object_get(json_object_get(view, "ready"), "reasons"), i, reason) {
		buf_puts(out, "  ");
		show_value(cli, reason, CELL_TEXT, out);
		buf_putc(out, '\n');
	}
}

void frame_write(const struct cli *cli, const json_t *view, const char *away, struct buf *out)
{
	static const struct column columns[] = {
		{ "TABLE", "table", CELL_TEXT },
		{ "LIVE", "live_rows", CELL_COUNT },
		{ "DUE", "due_rows", CELL_DUE },
		{ "OLDEST DUE", "oldest_due_age_ms", CELL_SPAN },
		{ "PRUNED/S", "pruned_per_second", CELL_RATE },
		{ "LAST SWEEP", "last_sweep_at", CELL_AGE },
		{ "PRUNED", "pruned_total", CELL_COUNT },
		{ 0 },
	};

	put_health(cli, view, away, out);
	frame_put_facts(cli, view, out);
	buf_putc(out, '\n');
	if (json_object_get(view, "cluster")) {
		show_replicas(cli, json_object_get(view, "cluster"), out);
		buf_putc(out, '\n');
	}
	show_table(cli, json_object_get(view, "tables"), columns, FOLD_DROP, out);
}

void frame_keys(const struct cli *cli, lapse_ms every_ms, struct buf *out)
{
	struct buf CLEANUP(buf_done) text = { 0 };

	buf_puts(&text, "q quit   space pause   + faster   - slower   ");
	if (every_ms > 0) {
		buf_puts(&text, "every ");
		text_span(&text, every_ms);
	} else {
		buf_puts(&text, "paused");
	}
	text_styled(cli, out, STYLE_DIM, buf_text(&text));
	buf_putc(out, '\n');
}
