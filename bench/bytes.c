/* SPDX-License-Identifier: Apache-2.0 */
/* The byte buffer of the load generator; see bytes.h. */
#include "bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void bytes_reserve(struct bytes *b, size_t more)
{
	if (b->cap - b->len >= more)
		return;
	if (more > BYTES_MAX - b->len)
		die("a request would be larger than %zu bytes", BYTES_MAX);

	size_t cap = b->cap ? b->cap : 512;
	while (cap - b->len < more)
		cap *= 2;
	char *data = realloc(b->data, cap);
	if (!data)
		die("out of memory");
	b->data = data;
	b->cap = cap;
}

void bytes_put(struct bytes *b, const char *data, size_t len)
{
	if (len == 0)
		return;
	bytes_reserve(b, len);
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

void bytes_puts(struct bytes *b, const char *text)
{
	bytes_put(b, text, strlen(text));
}

void bytes_put_number(struct bytes *b, unsigned long long number, unsigned width)
{
	char digits[64];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number > 0);
	while (sizeof(digits) - at < width && at > 0)
		digits[--at] = '0';
	bytes_put(b, digits + at, sizeof(digits) - at);
}

void bytes_reset(struct bytes *b)
{
	b->len = 0;
}

void bytes_done(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){ 0 };
}

void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("bench_load: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(2);
}
