/* SPDX-License-Identifier: Apache-2.0 */
/* The text half of show.h: escaping, width, and numbers people can read. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <wchar.h>

#include "base/hostile.h"
#include "base/id.h"
#include "cli/show/show.h"

#define BROKEN_MIN 8 /* columns that a line must have left for the beginning of a broken word */

static void text_put_escaped(struct buf *out, uint32_t c)
{
	if (c == '\n')
		buf_puts(out, "\\n");
	else if (c == '\t')
		buf_puts(out, "\\t");
	else if (c == '\r')
		buf_puts(out, "\\r");
	else if (c < 0x100)
		buf_printf(out, "\\x%02" PRIx32, c);
	else
		buf_printf(out, c < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, c);
}

void text_escape(struct buf *out, const char *bytes, size_t n)
{
	uint32_t c;

	for (size_t i = 0; i < n;) {
		size_t len = utf8_decode(bytes + i, n - i, &c);
		if (len == 0)
			text_put_escaped(out, (unsigned char)bytes[i]);
		else if (hostile_is(c))
			text_put_escaped(out, c);
		else
			buf_add(out, bytes + i, len);
		i += len ? len : 1;
	}
}

void text_file_name(struct buf *out, const char *name, size_t max_bytes)
{
	const char *slash = strrchr(name, '/');
	const char *base = slash ? slash + 1 : name;
	size_t n = strlen(base), start = out->len;
	uint32_t c;

	for (size_t i = 0; i < n;) {
		size_t len = utf8_decode(base + i, n - i, &c);
		bool first = i == 0 && len == 1 && (c == '.' || c == '-');
		if (out->len - start + (len ? len : 1) > max_bytes)
			break;
		if (len == 0 || hostile_is(c) || first)
			buf_putc(out, '_');
		else
			buf_add(out, base + i, len);
		i += len ? len : 1;
	}
}

void text_escape_lines(struct buf *out, const char *bytes, size_t n)
{
	while (n > 0) {
		const char *end = memchr(bytes, '\n', n);
		size_t line = end ? (size_t)(end - bytes) : n;
		size_t shown = line > 0 && bytes[line - 1] == '\r' ? line - 1 : line;
		text_escape(out, bytes, shown);
		if (end)
			buf_putc(out, '\n');
		bytes += end ? line + 1 : line;
		n -= end ? line + 1 : line;
	}
}

/* Bytes of the character at `text`, which is not empty, and the columns it takes. */
static size_t text_measure(const char *text, size_t n, size_t *ret_columns)
{
	uint32_t c;
	size_t len = utf8_decode(text, n, &c);
	int own = len ? wcwidth((wchar_t)c) : 1;

	*ret_columns = own < 0 ? 1 : (size_t)own;
	assert(*ret_columns <= 2);
	return len ? len : 1;
}

size_t text_width(const char *text)
{
	size_t n = strlen(text), width = 0, own;

	for (size_t i = 0; i < n; width += own)
		i += text_measure(text + i, n - i, &own);
	return width;
}

size_t text_fit(const char *text, size_t columns)
{
	size_t n = strlen(text), i = 0, own;

	while (i < n) {
		size_t len = text_measure(text + i, n - i, &own);
		if (own > columns)
			break;
		columns -= own;
		i += len;
	}
	assert(i <= n);
	return i;
}

size_t text_wrap(struct buf *out, const char *text, size_t at, size_t room, size_t indent)
{
	bool fresh = true; /* nothing of the text is on this line yet */

	assert(indent < room);
	while (*text) {
		size_t n = strcspn(text, " ");
		char *CLEANUP(mem_freep) word = strndup(text, n);
		size_t own = word ? text_width(word) : n; /* NOLINT(clang-analyzer-unix.Malloc) */
		bool broken = own > room - indent;        /* no line can hold it */
		if (at + !fresh + own > room && (!broken || at + BROKEN_MIN > room)) {
			buf_printf(out, "\n%*s", (int)indent, "");
			at = indent;
			fresh = true;
		}
		if (broken && at + !fresh + own > room) {
			own = room - at - !fresh;
			n = text_fit(text, own);
			assert(n > 0);
		}
		buf_puts(out, fresh ? "" : " ");
		buf_add(out, text, n);
		at += own + !fresh;
		text += n;
		fresh = *text != ' ' && *text;
		text += strspn(text, " ");
	}
	return at;
}

void text_clip(struct buf *out, const char *line, size_t n, size_t columns)
{
	size_t own;

	for (size_t i = 0; i < n;) {
		/* A style takes no column; those behind the edge are kept, to end what began. */
		if (line[i] == '\033') {
			size_t len = strcspn(line + i, "m") + 1;
			buf_add(out, line + i, len);
			i += len;
			continue;
		}
		size_t len = text_measure(line + i, n - i, &own);
		if (own <= columns)
			buf_add(out, line + i, len);
		columns = own <= columns ? columns - own : 0;
		i += len;
	}
}

void text_span(struct buf *out, int64_t ms)
{
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = {
		{ "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 }, { "ms", 1 }
	};
	int shown = 0;

	if (ms <= 0)
		buf_puts(out, "0s");
	for (size_t i = 0; i < ARRAY_LEN(units) && shown < 2 && ms > 0; i++) {
		int64_t n = ms / units[i].ms;
		if (n == 0 && shown == 0)
			continue;
		if (n > 0)
			buf_printf(out, "%s%" PRId64 "%s", shown ? " " : "", n, units[i].name);
		ms %= units[i].ms;
		shown++;
	}
}

static void put_coarse(struct buf *out, int64_t ms)
{
	if (ms < 60000)
		buf_printf(out, "%" PRId64 "s", ms / 1000);
	else if (ms < 3600000)
		buf_printf(out, "%" PRId64 "m", ms / 60000);
	else if (ms < 2 * INT64_C(86400000))
		buf_printf(out, "%" PRId64 "h", ms / 3600000);
	else
		buf_printf(out, "%" PRId64 "d", ms / 86400000);
}

/* To the nearest unit: who has asked for two hours a moment ago does not read "in 1h". */
static int64_t to_nearest(int64_t ms)
{
	int64_t unit = ms < 60000                   ? 1000
		       : ms < 3600000               ? 60000
		       : ms < 2 * INT64_C(86400000) ? 3600000
						    : 86400000;

	return time_add(ms, unit / 2);
}

void text_age(struct buf *out, lapse_ms then, lapse_ms now)
{
	int64_t age = time_sub(now, then);

	if (age > -1000 && age < 1000) {
		buf_puts(out, "now");
	} else if (age < 0) {
		buf_puts(out, "in ");
		put_coarse(out, to_nearest(time_sub(then, now)));
	} else {
		put_coarse(out, age);
		buf_puts(out, " ago");
	}
}

void text_count(struct buf *out, int64_t n)
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRId64, n);

	for (int i = 0; i < len; i++) {
		buf_putc(out, digits[i]);
		int left = len - 1 - i;
		if (left > 0 && left % 3 == 0 && digits[i] != '-')
			buf_putc(out, ',');
	}
}

void text_rate(struct buf *out, double per_second)
{
	if (per_second > 0 && per_second < 100)
		buf_printf(out, "%.1f", per_second);
	else
		text_count(out, (int64_t)per_second);
}

void text_seconds(struct buf *out, double seconds)
{
	if (seconds < 1e-3)
		buf_printf(out, "%.0fµs", seconds * 1e6);
	else if (seconds < 1)
		buf_printf(out, seconds < 0.1 ? "%.1fms" : "%.0fms", seconds * 1e3);
	else if (seconds < 60)
		buf_printf(out, "%.1fs", seconds);
	else
		text_span(out, (int64_t)seconds * 1000);
}

void text_bytes(struct buf *out, int64_t n)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)n;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < ARRAY_LEN(units)) {
		value /= 1024;
		unit++;
	}
	buf_printf(out, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void text_styled(const struct cli *cli, struct buf *out, const char *style, const char *text)
{
	if (cli->colour)
		buf_printf(out, "\033[%sm%s\033[0m", style, text);
	else
		buf_puts(out, text);
}
