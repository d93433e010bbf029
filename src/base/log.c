/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hostile.h"
#include "base/mem.h"

static const char *const LEVELS[] = {
	[LOG_DEBUG] = "debug",
	[LOG_INFO] = "info",
	[LOG_WARN] = "warn",
	[LOG_ERROR] = "error",
};

bool log_level_parse(const char *text, enum log_level *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(LEVELS); i++)
		if (strcmp(LEVELS[i], text) == 0) {
			*ret = (enum log_level)i;
			return true;
		}
	return false;
}

void log_open(const struct log *log, struct buf *line, enum log_level level, const char *event)
{
	assert((size_t)level < ARRAY_LEN(LEVELS) && event);
	*line = (struct buf){ 0 };
	if (level < log->least)
		return; /* the fields that follow go nowhere: log_close() sees no time */
	json_begin(line, '{');
	json_put_time(line, "time", clock_wall(log->clock));
	json_put_text(line, "level", LEVELS[level]);
	json_put_text(line, "event", event);
}

void log_keep(const struct log *log, struct buf *line, struct buf *lines)
{
	if (line->len && line->data[0] == '{') {
		json_end(line, '}');
		if (log->sink) {
			log->sink(log->sink_arg, buf_text(line));
		} else {
			hostile_escape_json(lines, line->data, line->len);
			buf_putc(lines, '\n');
		}
	}
	buf_done(line);
}

void log_flush(const struct log *log, struct buf *lines)
{
	if (lines->len > 0) {
		/* A log that cannot be written has nowhere to complain. */
		ssize_t ignored = write(log->fd, lines->data, lines->len);
		(void)ignored;
	}
	buf_done(lines);
}

void log_close(const struct log *log, struct buf *line)
{
	struct buf lines = { 0 };

	log_keep(log, line, &lines);
	log_flush(log, &lines);
}

void log_message(const struct log *log, enum log_level level, const char *event, const char *format,
		 ...)
{
	char text[512];
	struct buf line;
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	log_open(log, &line, level, event);
	json_put_text(&line, "message", text);
	log_close(log, &line);
}
