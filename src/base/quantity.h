/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durations and sizes as people write them: "24h", "1h30m", "1.5d", "10MiB". The command's flags
 * and the daemon's settings read them with these two functions, so that both take the same words.
 */
#ifndef LAPSE_BASE_QUANTITY_H
#define LAPSE_BASE_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

#define SPAN_EXAMPLES "a duration like 500ms, 30s, 5m, 1h30m, 7d or 2w"
#define BYTES_EXAMPLES "a size like 64KiB, 10MiB or 2GB"

/* One or more numbers with a unit each: ms, s, m, h, d, w. A number may have a fraction as long as
 * the result is a whole number of milliseconds. */
bool span_parse(const char *text, int64_t *ret_ms);

/* A number with an optional unit: B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB or K, M,
 * G, T (powers of 1024). Without a unit it counts bytes. Case does not matter. */
bool bytes_parse(const char *text, int64_t *ret_bytes);

#endif
