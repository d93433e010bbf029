/* SPDX-License-Identifier: Apache-2.0 */
/* Values and answers: every value becomes escaped text, in the way of its column. */
#include "cli/show/show.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/hostile.h"

#define DIGEST_COLUMNS 16 /* 64 bits of a checksum tell it from all others */

/* JSON may go to a terminal too. */
static void print_json(const char *json, size_t n)
{
	struct buf CLEANUP(buf_done) safe = { 0 };

	hostile_escape_json(&safe, json, n);
	fwrite(buf_text(&safe), 1, safe.len, stdout);
	if (safe.len > 0 && safe.data[safe.len - 1] != '\n')
		putchar('\n');
}

static void print_line(const json_t *value)
{
	char *CLEANUP(mem_freep) text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

	print_json(text ? text : "{}", text ? strlen(text) : 2);
}

/* A list as its rows, anything else as it is; one line each. */
static void print_lines(const json_t *answer)
{
	const json_t *rows = json_object_get(answer, "data"), *row;
	size_t i;

	if (!json_is_array(rows)) {
		print_line(answer);
		return;
	}
	json_array_foreach (rows, i, row)
		print_line(row);
}

bool show_wants_json(const struct cli *cli)
{
	return args_has(&cli->args, OPT_JSON) || args_has(&cli->args, OPT_JSONL);
}

bool show_json(const struct cli *cli, const struct answer *answer)
{
	if (args_has(&cli->args, OPT_JSONL)) {
		print_lines(answer->json);
		return true;
	}
	if (!args_has(&cli->args, OPT_JSON))
		return false;
	print_json(buf_text(&answer->text), answer->text.len);
	return true;
}

bool show_made_json(const struct cli *cli, const json_t *made)
{
	if (args_has(&cli->args, OPT_JSONL))
		print_lines(made);
	else if (args_has(&cli->args, OPT_JSON))
		print_line(made);
	return show_wants_json(cli);
}

bool show_is_hung_up(void)
{
	struct pollfd out = { .fd = STDOUT_FILENO };

	return poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLHUP));
}

bool show_now(const struct buf *text)
{
	for (size_t done = 0; done < text->len;) {
		ssize_t n = write(STDOUT_FILENO, text->data + done, text->len - done);
		assert(n <= (ssize_t)(text->len - done));
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

	if (json_array_size(value) == 0)
		buf_putc(out, '-');
	json_array_foreach (value, i, one) {
		buf_puts(out, i ? ", " : "");
		put_text(one, out);
	}
}

static void put_digest(const struct cli *cli, const json_t *value, struct buf *out)
{
	size_t start = out->len;

	put_text(value, out);
	if (cli->columns > 0 && !args_has(&cli->args, OPT_WIDE) &&
	    out->len - start > DIGEST_COLUMNS) {
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
