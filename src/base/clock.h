/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time. The only place that reads a clock; everybody else is given one, so a test can own time.
 *
 * Deadlines are wall-clock milliseconds since 1970 (`lapse_ms`); budgets and intervals are
 * monotonic microseconds.
 */
#ifndef LAPSE_BASE_CLOCK_H
#define LAPSE_BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lapse.h" /* lapse_ms, lapse_us, LAPSE_NEVER */

struct clock {
	lapse_ms (*wall)(void *ctx);
	lapse_us (*mono)(void *ctx);
	void *ctx;
};

extern const struct clock CLOCK_SYSTEM;

static inline lapse_ms clock_wall(const struct clock *c)
{
	return c->wall(c->ctx);
}

static inline lapse_us clock_mono(const struct clock *c)
{
	return c->mono(c->ctx);
}

/* a + b and a - b that stop at the ends of the range instead of wrapping. */
int64_t time_add(int64_t a, int64_t b);
int64_t time_sub(int64_t a, int64_t b);

/* "2026-11-15T18:33:00.123Z": 24 characters and a NUL. Years outside 0000–9999 are clamped. */
#define TIME_TEXT_LEN 24
void time_format(lapse_ms t, char out[TIME_TEXT_LEN + 1]);

/* "Sun, 15 Nov 2026 18:33:00 GMT", for HTTP headers. */
#define TIME_HTTP_LEN 29
void time_format_http(lapse_ms t, char out[TIME_HTTP_LEN + 1]);

/* Reads ISO 8601 with seconds, up to nine fractional digits, and Z or an offset. */
bool time_parse(const char *text, lapse_ms *ret);

#endif
