/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output for people: aligned tables made from the daemon's JSON by a table of columns, and numbers,
 * sizes and times one can read.
 *
 * Nothing that came from the daemon reaches the terminal without text_escape(): a message's content
 * is hostile.
 */
#ifndef LAPSE_CLI_SHOW_H
#define LAPSE_CLI_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/cli.h"

enum cell_kind {
	CELL_TEXT,   /* text, as it is */
	CELL_LONG,   /* text; its end is cut where the terminal is too narrow */
	CELL_TEXTS,  /* an array of texts: "a, b"; cut like CELL_LONG */
	CELL_STATE,  /* text; in colour when it is no good state */
	CELL_FLAG,   /* true or false: yes or no */
	CELL_COUNT,  /* 1,234,567 */
	CELL_DUE,    /* the same, in colour above 0 */
	CELL_RATE,   /* a number a second: 1.5, 1,234 */
	CELL_BYTES,  /* 1.2 MiB */
	CELL_AGE,    /* a time: 3m ago, in 2h */
	CELL_TIME,   /* a time as it is, and its age */
	CELL_SPAN,   /* milliseconds: 1d 2h */
	CELL_DIGEST, /* a checksum; on a terminal only as many digits as tell it from others */
};

struct column {
	const char *title; /* NULL ends a table of columns */
	const char *key;   /* of the row's JSON object, or a.b of one in it; null and missing: - */
	enum cell_kind kind;
};

/* Whether output is for programs: --json or --jsonl. */
bool show_wants_json(const struct cli *cli);

/* With --json prints the answer as it came, with --jsonl its rows as lines, and returns true: the
 * command is done. */
bool show_json(const struct cli *cli, const struct answer *answer);

/* The same for an object that the command made itself. */
bool show_made_json(const struct cli *cli, const json_t *made);

/* What becomes of a table that is too wide even with its long texts cut. */
enum fold {
	FOLD_BLOCKS, /* each row becomes a block of lines */
	FOLD_DROP,   /* columns at the right are left out */
};

/* An array of objects as a table into a buffer; nothing when there are none. */
void show_table(const struct cli *cli, const json_t *rows, const struct column *columns,
		enum fold fold, struct buf *out);

/* The columns that --columns asks for, or all. */
#define SHOW_COLUMNS_MAX 33
enum outcome show_columns(const struct cli *cli, const struct column *columns,
			  struct column picked[static SHOW_COLUMNS_MAX]);

/* Prints an array of objects as a table, or `empty` when there are none. */
enum outcome show_rows(const struct cli *cli, const json_t *rows, const struct column *columns,
		       const char *empty);

/* Prints one object, one line per column. */
enum outcome show_fields(const struct cli *cli, const json_t *object, const struct column *columns);

/* The values an object has as "name: value", filling lines of the terminal's width like words. */
void show_facts(const struct cli *cli, const json_t *object, const struct column *columns,
		struct buf *out);

/* A list answer, or an answer that is one object, in the form the user asked for. */
enum outcome show_list(const struct cli *cli, const struct answer *answer,
		       const struct column *columns, const char *empty);
enum outcome show_object(const struct cli *cli, const struct answer *answer,
			 const struct column *columns);

/* Whether standard output is a pipe whose reader is gone: `lapse inbox a | head` has seen enough.
 */
bool show_is_hung_up(void);

/* Writes to standard output at once. False when its reader is gone. */
bool show_now(const struct buf *text);

/* One value in the way of a column. */
void show_value(const struct cli *cli, const json_t *value, enum cell_kind kind, struct buf *out);

/* Without trust: control characters, bidirectional overrides and the like become \n, \x1b, \u202e;
 * bytes that are not UTF-8 become \xff. */
void text_escape(struct buf *out, const char *bytes, size_t n);

/* The same for text of several lines: those stay, whatever ends them. */
void text_escape_lines(struct buf *out, const char *bytes, size_t n);

/* What a file of this name may be called here: without a directory, without what text_escape()
 * would escape, not hidden, no option, and not too long. Empty where nothing is left of it. */
void text_file_name(struct buf *out, const char *name, size_t max_bytes);

/* Columns of a terminal that escaped text takes. */
size_t text_width(const char *text);

/* Bytes of `text` that fit into so many columns. */
size_t text_fit(const char *text, size_t columns);

/* Appends text wrapped at blanks to lines of `room` columns; the first line goes on at column `at`,
 * the others begin after `indent` spaces. A word longer than a line is broken. Returns the column
 * it ends at. */
size_t text_wrap(struct buf *out, const char *text, size_t at, size_t room, size_t indent);

/* Appends what fits of a line of `n` bytes, with the styles of text_styled() in it. */
void text_clip(struct buf *out, const char *line, size_t n, size_t columns);

void text_span(struct buf *out, int64_t ms);
void text_age(struct buf *out, lapse_ms then, lapse_ms now);
void text_count(struct buf *out, int64_t n);
void text_rate(struct buf *out, double per_second);
void text_seconds(struct buf *out, double seconds); /* 850µs, 2.3ms, 1.5s, 3m 20s */
void text_bytes(struct buf *out, int64_t n);

/* Writes escapes only where colour is wanted. */
#define STYLE_BOLD "1"
#define STYLE_DIM "2"
#define STYLE_RED "31"
#define STYLE_GREEN "32"
#define STYLE_YELLOW "33"
void text_styled(const struct cli *cli, struct buf *out, const char *style, const char *text);

#endif
