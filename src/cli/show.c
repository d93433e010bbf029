/* SPDX-License-Identifier: Apache-2.0 */
/* Tables from JSON: every cell becomes escaped text, columns get the width of their widest. */
#include "cli/show.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define GAP 2             /* spaces between two columns */
#define DIGEST_COLUMNS 16 /* 64 bits of a checksum: nobody has two that begin with the same */

bool show_json(const struct cli *cli, const struct answer *answer)
{
	if (!args_has(&cli->args, OPT_JSON))
		return false;
	fwrite(buf_text(&answer->text), 1, answer->text.len, stdout);
	if (answer->text.len > 0 && answer->text.data[answer->text.len - 1] != '\n')
		putchar('\n');
	return true;
}

bool show_now(const struct buf *text)
{
	for (size_t done = 0; done < text->len;) {
		ssize_t n = write(STDOUT_FILENO, text->data + done, text->len - done);
		if (n < 0 && errno != EINTR)
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

static void put_text(const json_t *value, struct buf *out)
{
	if (json_is_string(value)) {
		text_escape(out, json_string_value(value), json_string_length(value));
		return;
	}
	char *CLEANUP(mem_freep) text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	if (text)
		text_escape(out, text, strlen(text));
}

static void put_texts(const json_t *value, struct buf *out)
{
	const json_t *one;
	size_t i;

	json_array_foreach (value, i, one) {
		buf_puts(out, i ? ", " : "");
		put_text(one, out);
	}
}

static void put_digest(const struct cli *cli, const json_t *value, struct buf *out)
{
	size_t start = out->len;

	put_text(value, out);
	if (cli->columns > 0 && out->len - start > DIGEST_COLUMNS) {
		out->len = start + text_fit(buf_text(out) + start, DIGEST_COLUMNS);
		out->data[out->len] = '\0';
	}
}

static void put_age(const struct cli *cli, const json_t *value, struct buf *out)
{
	lapse_ms then;

	if (json_is_string(value) && time_parse(json_string_value(value), &then))
		text_age(out, then, cli->now);
	else
		put_text(value, out);
}

static void put_number(const json_t *value, void (*put)(struct buf *, int64_t), struct buf *out)
{
	if (json_is_integer(value))
		put(out, json_integer_value(value));
	else
		put_text(value, out);
}

void show_value(const struct cli *cli, const json_t *value, enum cell_kind kind, struct buf *out)
{
	if (!value || json_is_null(value)) {
		buf_puts(out, "-");
		return;
	}
	switch (kind) {
	case CELL_TEXT:
	case CELL_LONG:
	case CELL_STATE:
		put_text(value, out);
		break;
	case CELL_TEXTS:
		put_texts(value, out);
		break;
	case CELL_FLAG:
		buf_puts(out, json_is_true(value) ? "yes" : "no");
		break;
	case CELL_COUNT:
	case CELL_DUE:
		put_number(value, text_count, out);
		break;
	case CELL_RATE:
		text_rate(out, json_number_value(value));
		break;
	case CELL_BYTES:
		put_number(value, text_bytes, out);
		break;
	case CELL_AGE:
		put_age(cli, value, out);
		break;
	case CELL_TIME:
		put_text(value, out);
		buf_puts(out, " (");
		put_age(cli, value, out);
		buf_puts(out, ")");
		break;
	case CELL_SPAN:
		put_number(value, text_span, out);
		break;
	case CELL_DIGEST:
		put_digest(cli, value, out);
		break;
	}
}

/* A value of a row by its key; "a.b" is the b of its object a. */
static const json_t *look_up(const json_t *row, const char *key)
{
	const char *dot = strchr(key, '.');

	if (!dot)
		return json_object_get(row, key);
	return json_object_get(json_object_getn(row, key, (size_t)(dot - key)), dot + 1);
}

static bool is_right_aligned(enum cell_kind kind)
{
	return kind == CELL_COUNT || kind == CELL_DUE || kind == CELL_RATE || kind == CELL_BYTES;
}

/* A table while it is laid out; `cells` has the titles as its first row. */
struct grid {
	const struct column *columns;
	size_t width, height;
	char **cells;
	size_t *widths;
};

static void grid_done(struct grid *g)
{
	for (size_t i = 0; g->cells && i < g->width * g->height; i++)
		free(g->cells[i]);
	free(g->cells);
	free(g->widths);
}

static void grid_fill(struct grid *g, const struct cli *cli, const json_t *rows)
{
	for (size_t y = 0; y < g->height; y++)
		for (size_t x = 0; x < g->width; x++) {
			const struct column *c = &g->columns[x];
			struct buf text = { 0 };
			if (y == 0)
				buf_puts(&text, c->title);
			else
				show_value(cli, look_up(json_array_get(rows, y - 1), c->key),
					   c->kind, &text);
			size_t w = text_width(buf_text(&text));
			g->widths[x] = w > g->widths[x] ? w : g->widths[x];
			g->cells[y * g->width + x] = buf_take(&text);
		}
}

/* Shortens a text to `room` columns, with dots where something is missing. */
static void cut(char *text, size_t room)
{
	/* Below that the dots would say more than the text. */
	if (room < 8 || text_width(text) <= room)
		return;
	memcpy(text + text_fit(text, room - 3), "...", 4);
}

static bool is_good_state(const char *text)
{
	static const char *const good[] = { "live", "trusted", "active", "clean" };

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (strcmp(text, good[i]) == 0)
			return true;
	return false;
}

static const char *style_of_value(enum cell_kind kind, const char *text)
{
	if (strcmp(text, "-") == 0)
		return STYLE_DIM;
	if (kind == CELL_DUE && strcmp(text, "0") != 0)
		return STYLE_YELLOW;
	if (kind == CELL_STATE && !is_good_state(text))
		return STYLE_YELLOW;
	return NULL;
}

static bool is_cut(enum cell_kind kind)
{
	return kind == CELL_LONG || kind == CELL_TEXTS;
}

static void put_cell(const struct cli *cli, const struct grid *g, size_t y, size_t x, size_t at,
		     struct buf *out)
{
	char *text = g->cells[y * g->width + x];
	const char *style = y == 0 ? STYLE_BOLD : style_of_value(g->columns[x].kind, text);
	bool last = x + 1 == g->width;

	if (last && is_cut(g->columns[x].kind) && cli->columns > 0)
		cut(text, at < (size_t)cli->columns ? (size_t)cli->columns - at : 0);
	int pad = (int)(g->widths[x] - text_width(text));
	if (is_right_aligned(g->columns[x].kind))
		buf_printf(out, "%*s", pad, "");
	if (style)
		text_styled(cli, out, style, text);
	else
		buf_puts(out, text);
	if (!is_right_aligned(g->columns[x].kind) && !last)
		buf_printf(out, "%*s", pad, "");
	buf_printf(out, "%*s", last ? 0 : GAP, "");
}

void show_table(const struct cli *cli, const json_t *rows, const struct column *columns,
		struct buf *out)
{
	struct grid CLEANUP(grid_done) g = { .columns = columns };

	if (json_array_size(rows) == 0)
		return;
	while (columns[g.width].title)
		g.width++;
	g.height = json_array_size(rows) + 1;
	g.cells = mem_zalloc(g.width * g.height, sizeof(char *));
	g.widths = mem_zalloc(g.width, sizeof(size_t));
	grid_fill(&g, cli, rows);
	for (size_t y = 0; y < g.height; y++) {
		size_t at = 0;
		for (size_t x = 0; x < g.width; x++) {
			put_cell(cli, &g, y, x, at, out);
			at += g.widths[x] + GAP;
		}
		buf_putc(out, '\n');
	}
}

void show_rows(struct cli *cli, const json_t *rows, const struct column *columns, const char *empty)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	show_table(cli, rows, columns, &out);
	if (out.len > 0)
		fwrite(out.data, 1, out.len, stdout);
	else
		puts(empty);
}

void show_fields(const struct cli *cli, const json_t *object, const struct column *columns)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	int width = 0;

	for (const struct column *c = columns; c->title; c++)
		width = (int)strlen(c->title) > width ? (int)strlen(c->title) : width;
	for (const struct column *c = columns; c->title; c++) {
		struct buf CLEANUP(buf_done) value = { 0 };
		show_value(cli, look_up(object, c->key), c->kind, &value);
		const char *style = style_of_value(c->kind, buf_text(&value));
		buf_printf(&out, "%-*s", width + GAP, c->title);
		if (style)
			text_styled(cli, &out, style, buf_text(&value));
		else
			buf_puts(&out, buf_text(&value));
		buf_putc(&out, '\n');
	}
	fputs(buf_text(&out), stdout);
}
