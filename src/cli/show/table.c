/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables that fit the terminal. A table whose natural width fits is printed as it is. One that does
 * not gives up the ends of its long texts first; when that is not enough each row becomes a block:
 * its first cell as a heading, the other cells as "name: value" below it, filled like words. Where
 * standard output is no terminal, and with --wide, a table always has its natural width.
 */
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "cli/show/show.h"

#define GAP 2      /* spaces between two columns */
#define CUT_MIN 20 /* columns a long text keeps; with less of it a block is better */
#define FACT_GAP 3 /* spaces between two facts of a block */
#define BLOCK_INDENT 2
#define COLUMNS_MAX 32
#define FACTS_COLUMNS 80 /* of lines of facts where there is no terminal */

/* A value of a row by its key; "a.b" is the b of its object a. */
static const json_t *row_value(const json_t *row, const char *key)
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

static bool is_cut(enum cell_kind kind)
{
	return kind == CELL_LONG || kind == CELL_TEXTS;
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

static char *grid_cell(const struct grid *g, size_t y, size_t x)
{
	assert(y < g->height && x < g->width);
	return g->cells[y * g->width + x];
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
				show_value(cli, row_value(json_array_get(rows, y - 1), c->key),
					   c->kind, &text);
			size_t w = text_width(buf_text(&text));
			g->widths[x] = w > g->widths[x] ? w : g->widths[x];
			g->cells[y * g->width + x] = buf_take(&text);
		}
}

static void grid_init(struct grid *g, const struct cli *cli, const json_t *rows,
		      const struct column *columns)
{
	*g = (struct grid){ .columns = columns, .height = json_array_size(rows) + 1 };
	while (columns[g->width].title)
		g->width++;
	assert(g->width > 0 && g->width <= COLUMNS_MAX);
	g->cells = mem_zalloc(g->width * g->height, sizeof(char *));
	g->widths = mem_zalloc(g->width, sizeof(size_t));
	grid_fill(g, cli, rows);
}

/* Columns of the terminal that the first `n` columns of the table take. */
static size_t grid_total(const struct grid *g, size_t n)
{
	size_t total = n > 0 ? (n - 1) * GAP : 0;

	for (size_t x = 0; x < n; x++)
		total += g->widths[x];
	return total;
}

/* The widest column of texts that may be cut further, or `g->width` when there is none. */
static size_t grid_widest(const struct grid *g)
{
	size_t found = g->width;

	for (size_t x = 0; x < g->width; x++)
		if (is_cut(g->columns[x].kind) && g->widths[x] > CUT_MIN &&
		    (found == g->width || g->widths[x] > g->widths[found]))
			found = x;
	return found;
}

/* Takes room from long texts until the table has at most `room` columns. False when it cannot. */
static bool grid_squeeze(struct grid *g, size_t room)
{
	size_t x;

	while (grid_total(g, g->width) > room && (x = grid_widest(g)) < g->width) {
		size_t excess = grid_total(g, g->width) - room;
		size_t spare = g->widths[x] - CUT_MIN;
		assert(excess > 0 && spare > 0 && is_cut(g->columns[x].kind));
		g->widths[x] -= excess < spare ? excess : spare;
	}
	return grid_total(g, g->width) <= room;
}

/* Shortens a text to `room` columns, with dots where something is missing. */
static void cell_cut(char *text, size_t room)
{
	if (text_width(text) <= room)
		return;
	assert(room > 3);
	memcpy(text + text_fit(text, room - 3), "...", 4);
}

static bool is_good_state(const char *text)
{
	static const char *const good[] = { "live", "trusted", "active", "clean", "ok" };

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (strcmp(text, good[i]) == 0)
			return true;
	return false;
}

static const char *cell_style(enum cell_kind kind, const char *text)
{
	if (strcmp(text, "-") == 0)
		return STYLE_DIM;
	if (kind == CELL_DUE && strcmp(text, "0") != 0)
		return STYLE_YELLOW;
	if (kind == CELL_STATE && !is_good_state(text))
		return STYLE_YELLOW;
	return NULL;
}

static void put_styled(const struct cli *cli, struct buf *out, const char *style, const char *text)
{
	if (style)
		text_styled(cli, out, style, text);
	else
		buf_puts(out, text);
}

static void grid_put_cell(const struct cli *cli, const struct grid *g, size_t y, size_t x,
			  struct buf *out)
{
	char *text = grid_cell(g, y, x);
	enum cell_kind kind = g->columns[x].kind;
	bool last = x + 1 == g->width;

	cell_cut(text, g->widths[x]);
	int pad = (int)(g->widths[x] - text_width(text));
	assert(pad >= 0);
	if (is_right_aligned(kind))
		buf_printf(out, "%*s", pad, "");
	put_styled(cli, out, y == 0 ? STYLE_BOLD : cell_style(kind, text), text);
	if (!is_right_aligned(kind) && !last)
		buf_printf(out, "%*s", pad, "");
	buf_printf(out, "%*s", last ? 0 : GAP, "");
}

static void grid_put_table(const struct cli *cli, const struct grid *g, struct buf *out)
{
	for (size_t y = 0; y < g->height; y++) {
		for (size_t x = 0; x < g->width; x++)
			grid_put_cell(cli, g, y, x, out);
		buf_putc(out, '\n');
	}
}

/* "last sweep": the title of a column inside a line. */
static void put_title(const struct cli *cli, const char *title, struct buf *out)
{
	char text[48];
	size_t n = 0;

	for (; title[n] && n + 1 < sizeof(text); n++)
		text[n] = (char)tolower((unsigned char)title[n]);
	text[n] = '\0';
	text_styled(cli, out, STYLE_DIM, text);
}

/* Lines that are filled with facts like words. */
struct fact_lines {
	const struct cli *cli;
	struct buf *out;
	size_t at, room, indent;
};

/* Adds "title: text"; one that needs more than a line wraps. What has no value is left out. */
static void fact_put(struct fact_lines *l, const struct column *c, const char *text)
{
	size_t own = text_width(c->title) + 2 + text_width(text);

	if (strcmp(text, "-") == 0)
		return;
	if (l->at > 0 && l->room > FACT_GAP + own && l->at <= l->room - FACT_GAP - own) {
		buf_printf(l->out, "%*s", FACT_GAP, "");
		l->at += FACT_GAP;
	} else {
		buf_printf(l->out, "%s%*s", l->at > 0 ? "\n" : "", (int)l->indent, "");
		l->at = l->indent;
	}
	put_title(l->cli, c->title, l->out);
	buf_puts(l->out, ": ");
	l->at += text_width(c->title) + 2;
	if (l->at + text_width(text) <= l->room) {
		put_styled(l->cli, l->out, cell_style(c->kind, text), text);
		l->at += text_width(text);
		return;
	}
	text_wrap(l->out, text, l->at, l->room, l->indent + BLOCK_INDENT);
	assert(l->room > l->indent + BLOCK_INDENT);
	l->at = l->room; /* nothing follows on a line that ends such a text */
}

static void grid_put_facts(const struct cli *cli, const struct grid *g, size_t y, size_t room,
			   struct buf *out)
{
	struct fact_lines l = { .cli = cli, .out = out, .room = room, .indent = BLOCK_INDENT };

	for (size_t x = 1; x < g->width; x++)
		fact_put(&l, &g->columns[x], grid_cell(g, y, x));
	if (l.at > 0)
		buf_putc(out, '\n');
}

void show_facts(const struct cli *cli, const json_t *object, const struct column *columns,
		struct buf *out)
{
	struct fact_lines l = { .cli = cli,
				.out = out,
				.room = cli->columns > 0 ? (size_t)cli->columns : FACTS_COLUMNS };

	for (const struct column *c = columns; c->title; c++) {
		struct buf CLEANUP(buf_done) text = { 0 };
		show_value(cli, row_value(object, c->key), c->kind, &text);
		fact_put(&l, c, buf_text(&text));
	}
	if (l.at > 0)
		buf_putc(out, '\n');
}

static void grid_put_blocks(const struct cli *cli, const struct grid *g, size_t room,
			    struct buf *out)
{
	for (size_t y = 1; y < g->height; y++) {
		if (y > 1)
			buf_putc(out, '\n');
		text_styled(cli, out, STYLE_BOLD, grid_cell(g, y, 0));
		buf_putc(out, '\n');
		grid_put_facts(cli, g, y, room, out);
	}
}

/* Leaves out columns from the right until the rest fits; the first one stays. */
static void grid_drop(struct grid *g, size_t room)
{
	size_t keep = g->width;

	while (keep > 1 && grid_total(g, keep) > room)
		keep--;
	assert(keep >= 1 && keep <= g->width);
	for (size_t y = 0; y < g->height; y++)
		for (size_t x = 0; x < g->width; x++) {
			char *cell = g->cells[y * g->width + x];
			if (x < keep)
				g->cells[y * keep + x] = cell;
			else
				free(cell);
		}
	g->width = keep;
}

void show_table(const struct cli *cli, const json_t *rows, const struct column *columns,
		enum fold fold, struct buf *out)
{
	struct grid CLEANUP(grid_done) g = { 0 };
	size_t room = cli->columns > 0 ? (size_t)cli->columns : SIZE_MAX;

	if (json_array_size(rows) == 0)
		return;
	grid_init(&g, cli, rows, columns);
	if (args_has(&cli->args, OPT_WIDE))
		room = SIZE_MAX;
	if (fold == FOLD_DROP)
		grid_drop(&g, room);
	if (fold == FOLD_DROP || g.width == 1 || grid_squeeze(&g, room))
		grid_put_table(cli, &g, out);
	else
		grid_put_blocks(cli, &g, room, out);
}

/* Whether a word of --columns means this column: its title or its key, in any case, with - or _ for
 * a blank. */
static bool column_is(const struct column *c, const char *word, size_t n)
{
	const char *const names[] = { c->title, c->key };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t at = 0;
		if (strlen(names[i]) != n)
			continue;
		while (at < n) {
			int a = tolower((unsigned char)names[i][at]);
			int b = tolower((unsigned char)word[at]);
			bool blank = strchr(" _-", a) && strchr(" _-", b);
			if (a != b && !blank)
				break;
			at++;
		}
		if (at == n)
			return true;
	}
	return false;
}

static enum outcome column_unknown(const struct cli *cli, const struct column *columns,
				   const char *word, size_t n)
{
	struct buf CLEANUP(buf_done) names = { 0 };

	for (const struct column *c = columns; c->title; c++) {
		buf_puts(&names, c == columns ? "" : ", ");
		for (const char *t = c->title; *t; t++)
			buf_putc(&names, (char)(*t == ' ' ? '-' : tolower((unsigned char)*t)));
	}
	return cli_usage(cli, "--columns: there is no column '%.*s'; there are %s", (int)n, word,
			 buf_text(&names));
}

enum outcome show_columns(const struct cli *cli, const struct column *columns,
			  struct column picked[static SHOW_COLUMNS_MAX])
{
	const char *list = cli->args.text[OPT_COLUMNS];
	size_t count = 0;

	_Static_assert(SHOW_COLUMNS_MAX == COLUMNS_MAX + 1, "room for the end of the table");
	if (!args_has(&cli->args, OPT_COLUMNS)) {
		for (; columns[count].title; count++) {
			assert(count < COLUMNS_MAX);
			picked[count] = columns[count];
		}
		picked[count] = (struct column){ 0 };
		return OUTCOME_OK;
	}
	do {
		size_t n = strcspn(list, ",");
		const struct column *c = columns;
		while (c->title && !column_is(c, list, n))
			c++;
		if (!c->title)
			return column_unknown(cli, columns, list, n);
		if (count == COLUMNS_MAX)
			return cli_usage(cli, "--columns: at most %d columns", COLUMNS_MAX);
		picked[count++] = *c;
		list += n;
	} while (*list++ == ',');
	picked[count] = (struct column){ 0 };
	return OUTCOME_OK;
}

enum outcome show_rows(const struct cli *cli, const json_t *rows, const struct column *columns,
		       const char *empty)
{
	struct column picked[SHOW_COLUMNS_MAX] = { 0 };
	struct buf CLEANUP(buf_done) out = { 0 };

	enum outcome r = show_columns(cli, columns, picked);
	if (r != OUTCOME_OK)
		return r;
	show_table(cli, rows, picked, FOLD_BLOCKS, &out);
	if (out.len > 0)
		fwrite(out.data, 1, out.len, stdout);
	else
		puts(empty);
	return OUTCOME_OK;
}

enum outcome show_list(const struct cli *cli, const struct answer *answer,
		       const struct column *columns, const char *empty)
{
	if (show_json(cli, answer))
		return OUTCOME_OK;
	return show_rows(cli, json_object_get(answer->json, "data"), columns, empty);
}

enum outcome show_fields(const struct cli *cli, const json_t *object, const struct column *columns)
{
	struct column picked[SHOW_COLUMNS_MAX] = { 0 };
	struct buf CLEANUP(buf_done) out = { 0 };
	size_t room = cli->columns > 0 && !args_has(&cli->args, OPT_WIDE) ? (size_t)cli->columns
									  : SIZE_MAX;
	size_t width = 0;

	enum outcome r = show_columns(cli, columns, picked);
	if (r != OUTCOME_OK)
		return r;
	for (const struct column *c = picked; c->title; c++)
		width = strlen(c->title) > width ? strlen(c->title) : width;
	width += GAP;
	for (const struct column *c = picked; c->title; c++) {
		struct buf CLEANUP(buf_done) value = { 0 };
		show_value(cli, row_value(object, c->key), c->kind, &value);
		buf_printf(&out, "%-*s", (int)width, c->title);
		if (width + text_width(buf_text(&value)) <= room)
			put_styled(cli, &out, cell_style(c->kind, buf_text(&value)),
				   buf_text(&value));
		else
			text_wrap(&out, buf_text(&value), width, room, width);
		buf_putc(&out, '\n');
	}
	fputs(buf_text(&out), stdout);
	return OUTCOME_OK;
}

enum outcome show_object(const struct cli *cli, const struct answer *answer,
			 const struct column *columns)
{
	if (show_json(cli, answer))
		return OUTCOME_OK;
	return show_fields(cli, answer->json, columns);
}
