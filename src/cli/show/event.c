/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show/event.h"

#include <assert.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "cli/show/show.h"

#define KIND_COLUMNS 18 /* most kinds; a longer one pushes its fields to the right */
#define ITEMS_MAX 3     /* shown of an array */
#define FOLD_INDENT 4   /* of the further lines of an event */
#define FOLD_LEAST 50   /* columns; a narrower terminal wraps by itself */

json_t *event_object(const struct sse_event *event)
{
	json_t *CLEANUP(json_freep) data =
		json_loadb(event->data, event->data_len, JSON_ALLOW_NUL, NULL);
	json_t *all = json_object();

	json_object_set_new(all, "id", json_string(event->id));
	json_object_set_new(all, "event", json_string(event->kind));
	/* An envelope with at, owner and data; of a gap there are only its own fields. */
	if (json_object_get(data, "data"))
		json_object_update_missing(all, data);
	else if (data)
		json_object_set(all, "data", data);
	else
		json_object_set_new(all, "data", json_stringn(event->data, event->data_len));
	return all;
}

/* Colours by the last word of the kind: what went wrong, what is gone, what is new. */
static const struct {
	const char *ending, *style;
} STYLES[] = {
	{ EVENT_GAP, STYLE_RED },     { "_failed", STYLE_RED },   { "dead_letter", STYLE_RED },
	{ ".jumped", STYLE_RED },     { ".tripped", STYLE_RED },  { ".evicted", STYLE_YELLOW },
	{ ".expired", STYLE_YELLOW }, { "pruned", STYLE_YELLOW }, { ".cleaned", STYLE_YELLOW },
	{ ".deleted", STYLE_YELLOW }, { ".seen", STYLE_GREEN },   { ".created", STYLE_GREEN },
	{ ".renewed", STYLE_GREEN },  { ".staged", STYLE_GREEN }, { ".acquired", STYLE_GREEN },
	{ ".accepted", STYLE_GREEN },
};

static const char *style_of(const char *kind)
{
	size_t n = strlen(kind);

	for (size_t i = 0; i < ARRAY_LEN(STYLES); i++) {
		size_t len = strlen(STYLES[i].ending);
		assert(len > 0);
		if (n >= len && strcmp(kind + n - len, STYLES[i].ending) == 0)
			return STYLES[i].style;
	}
	return STYLE_BOLD;
}

static void put_fields(const struct cli *cli, json_t *object, const char *separator,
		       struct buf *out);

/* A text with a space, or none at all, in quotes: where it ends must be seen. */
static void put_scalar(const struct cli *cli, const json_t *value, struct buf *out)
{
	const char *text = json_string_value(value);
	bool quoted = text && (text[0] == '\0' || strpbrk(text, " ="));

	buf_puts(out, quoted ? "\"" : "");
	show_value(cli, value, CELL_TEXT, out);
	buf_puts(out, quoted ? "\"" : "");
}

/* Fields whose numbers people cannot read, by the end of their names. */
static const struct unit {
	const char *ending;
	enum cell_kind kind;
	bool is_dropped; /* the ending: the value has the unit now */
} UNITS[] = {
	{ "_ms", CELL_SPAN, true },
	{ "bytes", CELL_BYTES, false },
	{ "size", CELL_BYTES, false },
	{ "checksum", CELL_DIGEST, false },
};

static const struct unit *unit_of(const char *key, const json_t *value)
{
	size_t n = strlen(key);

	for (size_t i = 0; i < ARRAY_LEN(UNITS); i++) {
		size_t len = strlen(UNITS[i].ending);
		bool fits = json_is_integer(value) != (UNITS[i].kind == CELL_DIGEST);
		/* Of a name that is nothing but its unit something must be left. */
		if (fits && n >= len + UNITS[i].is_dropped &&
		    strcmp(key + n - len, UNITS[i].ending) == 0)
			return &UNITS[i];
	}
	return NULL;
}

/* "size=\"1.2 MiB\"", "ttl=1d" */
static void put_quantity(const struct cli *cli, const char *key, const json_t *value,
			 const struct unit *unit, struct buf *out)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	const char *quote;

	show_value(cli, value, unit->kind, &text);
	quote = strchr(buf_text(&text), ' ') ? "\"" : "";
	text_escape(out, key, strlen(key) - (unit->is_dropped ? strlen(unit->ending) : 0));
	buf_printf(out, "=%s%s%s", quote, buf_text(&text), quote);
}

static void put_items(const struct cli *cli, const json_t *array, struct buf *out)
{
	json_t *item;
	size_t i;

	json_array_foreach (array, i, item) {
		buf_puts(out, i ? "," : "");
		if (i == ITEMS_MAX) {
			buf_printf(out, "+%zu", json_array_size(array) - i);
			break;
		}
		if (json_is_object(item))
			put_fields(cli, item, ":", out);
		else
			put_scalar(cli, item, out);
	}
}

/* "id=7 to=planner", or with ':' only the values: "7:planner". */
static void put_fields(const struct cli *cli, json_t *object, const char *separator,
		       struct buf *out)
{
	bool named = separator[0] == ' ';
	const char *key;
	json_t *value;
	size_t n = 0;

	json_object_foreach (object, key, value) {
		const struct unit *unit = named ? unit_of(key, value) : NULL;
		buf_puts(out, n++ ? separator : "");
		if (unit) {
			put_quantity(cli, key, value, unit, out);
			continue;
		}
		if (named) {
			text_escape(out, key, strlen(key));
			buf_putc(out, '=');
		}
		if (json_is_array(value)) {
			put_items(cli, value, out);
		} else if (named && json_is_object(value)) {
			buf_putc(out, '(');
			put_fields(cli, value, separator, out);
			buf_putc(out, ')');
		} else {
			put_scalar(cli, value, out);
		}
	}
}

/* The parts of a line. */
struct event_parts {
	struct buf at, id, kind, owner, fields;
};

static void event_parts_done(struct event_parts *p)
{
	buf_done(&p->at);
	buf_done(&p->id);
	buf_done(&p->kind);
	buf_done(&p->owner);
	buf_done(&p->fields);
}

static void event_parts_fill(const struct cli *cli, const json_t *event, struct event_parts *p)
{
	json_t *data = json_object_get(event, "data");

	show_value(cli, json_object_get(event, "at"), CELL_TEXT, &p->at);
	show_value(cli, json_object_get(event, "id"), CELL_TEXT, &p->id);
	show_value(cli, json_object_get(event, "event"), CELL_TEXT, &p->kind);
	show_value(cli, json_object_get(event, "owner"), CELL_TEXT, &p->owner);
	if (strcmp(buf_text(&p->kind), EVENT_GAP) == 0)
		buf_puts(&p->fields, "events are missing here ");
	if (json_is_object(data))
		put_fields(cli, data, " ", &p->fields);
	else if (data)
		put_scalar(cli, data, &p->fields);
}

/* Spaces that bring a column of `n` bytes to its width, and two. */
static int event_pad(size_t n, size_t width)
{
	return n < width ? (int)(width - n) + 2 : 2;
}

/* On a terminal today's events need no date: "18:33:00.123Z" of "2026-11-15T18:33:00.123Z". */
static const char *event_clock(const struct cli *cli, const char *at)
{
	char today[TIME_TEXT_LEN + 1];
	size_t date = strcspn(at, "T");

	time_format(cli->now, today);
	return at[date] == 'T' && strncmp(at, today, date + 1) == 0 ? at + date + 1 : at;
}

/* Kind and fields, after `at` columns of a line; what does not fit goes on in further lines. */
static void event_put_folded(const struct cli *cli, const struct event_parts *p, size_t at,
			     struct buf *out)
{
	const char *kind = buf_text(&p->kind), *fields = buf_text(&p->fields);
	size_t room = (size_t)cli->columns;
	int pad = event_pad(p->kind.len, KIND_COLUMNS);

	if (at + p->kind.len > room) {
		buf_printf(out, "\n%*s", FOLD_INDENT, "");
		at = FOLD_INDENT;
	}
	text_styled(cli, out, style_of(kind), kind);
	at += p->kind.len + (size_t)pad;
	if (at + strcspn(fields, " ") > room) {
		buf_printf(out, "\n%*s", FOLD_INDENT, "");
		at = FOLD_INDENT;
	} else if (*fields) {
		buf_printf(out, "%*s", pad, "");
	}
	text_wrap(out, fields, at, room, FOLD_INDENT);
}

static void event_show_line(const struct cli *cli, const struct event_parts *p, struct buf *out)
{
	bool folds = cli->columns >= FOLD_LEAST && !args_has(&cli->args, OPT_WIDE);
	const char *at = folds ? event_clock(cli, buf_text(&p->at)) : buf_text(&p->at);
	size_t width = at == buf_text(&p->at) ? TIME_TEXT_LEN : strlen(at);
	int pad = event_pad(p->id.len, ID_TEXT_LEN);

	text_styled(cli, out, STYLE_DIM, at);
	buf_printf(out, "%*s", event_pad(strlen(at), width), "");
	text_styled(cli, out, STYLE_DIM, buf_text(&p->id));
	buf_printf(out, "%*s", pad, "");
	if (folds) {
		event_put_folded(cli, p, width + 2 + p->id.len + (size_t)pad, out);
		return;
	}
	text_styled(cli, out, style_of(buf_text(&p->kind)), buf_text(&p->kind));
	if (p->fields.len > 0)
		buf_printf(out, "%*s%s", event_pad(p->kind.len, KIND_COLUMNS), "",
			   buf_text(&p->fields));
}

const struct column EVENT_COLUMNS[] = {
	{ "AT", "at", CELL_TEXT },       { "ID", "id", CELL_TEXT },
	{ "EVENT", "event", CELL_TEXT }, { "OWNER", "owner", CELL_TEXT },
	{ "DATA", "data", CELL_TEXT },   { 0 },
};

/* What --columns asks for, two spaces between them. */
static void event_put_columns(const struct column *picked, const struct event_parts *p,
			      struct buf *out)
{
	for (const struct column *c = picked; c->title; c++) {
		const struct buf *part = strcmp(c->key, "at") == 0      ? &p->at
					 : strcmp(c->key, "id") == 0    ? &p->id
					 : strcmp(c->key, "event") == 0 ? &p->kind
					 : strcmp(c->key, "owner") == 0 ? &p->owner
									: &p->fields;
		buf_printf(out, "%s%s", c == picked ? "" : "  ", buf_text(part));
	}
}

void event_line(const struct cli *cli, const json_t *event, const struct column *picked,
		struct buf *out)
{
	struct event_parts CLEANUP(event_parts_done) p = { 0 };

	event_parts_fill(cli, event, &p);
	if (picked)
		event_put_columns(picked, &p, out);
	else
		event_show_line(cli, &p, out);
	buf_putc(out, '\n');
}
