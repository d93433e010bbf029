/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	if (b->data)
		b->data[0] = '\0';
}

void buf_grow(struct buf *b, size_t more)
{
	size_t cap = b->cap ? b->cap * 2 : 512;

	assert(b->len <= b->cap && more <= SIZE_MAX / 4 - b->len);
	if (cap < b->len + more)
		cap = b->len + more;
	b->data = mem_realloc(b->data, cap + 1);
	b->data[b->len] = '\0';
	b->cap = cap;
}

void buf_add(struct buf *b, const void *bytes, size_t n)
{
	assert(bytes || n == 0);
	buf_reserve(b, n);
	memcpy(b->data + b->len, bytes, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_int(struct buf *b, int64_t n)
{
	char digits[24];
	char *p = digits + sizeof(digits);
	uint64_t u = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;

	do {
		*--p = (char)('0' + u % 10);
		u /= 10;
	} while (u);
	if (n < 0)
		*--p = '-';
	buf_add(b, p, (size_t)(digits + sizeof(digits) - p));
}

void buf_printf(struct buf *b, const char *format, ...)
{
	va_list ap, again;
	va_start(ap, format);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	assert(n >= 0);
	buf_reserve(b, (size_t)n);
	vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
	va_end(again);
	b->len += (size_t)n;
	assert(b->len <= b->cap);
}

const char *buf_text(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_take(struct buf *b)
{
	buf_reserve(b, 0);
	char *data = b->data;
	*b = (struct buf){ 0 };
	return data;
}
