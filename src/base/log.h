/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: one line of JSON a fact, to a file descriptor, or to a function of the program that
 * embeds the library. Used by the daemon, the command and the engine's loops only; everything else
 * returns errors.
 *
 *	struct buf line = { 0 };
 *	log_open(log, &line, LOG_WARN, "messages.lifecycle_tick_failed");
 *	json_put_text(&line, "error", …);
 *	log_close(log, &line);
 */
#ifndef LAPSE_BASE_LOG_H
#define LAPSE_BASE_LOG_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log {
	const struct clock *clock;
	enum log_level least; /* lines below it are dropped */
	int fd;
	void (*sink)(void *arg, const char *line); /* in the place of fd; NULL = fd */
	void *sink_arg;
};

/* Starts a line with its time, level and event; log_close() writes it in one write() and releases
 * the buffer. */
void log_open(const struct log *log, struct buf *line, enum log_level level, const char *event);
void log_close(const struct log *log, struct buf *line);

/* log_close() for many lines at once: keeps the line in `lines`, and log_flush() writes them with
 * one write() and releases the buffer. */
void log_keep(const struct log *log, struct buf *line, struct buf *lines);
void log_flush(const struct log *log, struct buf *lines);

/* A line with nothing but a message. */
void log_message(const struct log *log, enum log_level level, const char *event, const char *format,
		 ...) __attribute__((format(printf, 4, 5)));

/* "debug", "info", "warn", "error"; false for anything else. */
bool log_level_parse(const char *text, enum log_level *ret);

#endif
