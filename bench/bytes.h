/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer, and the only way this tool ends on a fault of its own: die().
 *
 * A zeroed struct is an empty buffer. Contents live in data[0..len) and are not terminated.
 */
#ifndef BENCH_BYTES_H
#define BENCH_BYTES_H

#include <stddef.h>

/* No request we would ever send is larger; a template that says otherwise is a typing error. */
#define BYTES_MAX ((size_t)16 << 20)

struct bytes {
	char *data;
	size_t len;
	size_t cap;
};

void bytes_put(struct bytes *b, const char *data, size_t len);
void bytes_puts(struct bytes *b, const char *text);
/* Decimal, padded with zeros to `width` digits. */
void bytes_put_number(struct bytes *b, unsigned long long number, unsigned width);
void bytes_reset(struct bytes *b);
void bytes_done(struct bytes *b);

/* Prints one line on stderr and exits with status 2. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
