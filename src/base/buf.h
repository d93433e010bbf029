/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer.
 *
 * Invariants: `data` is NULL while `cap` is 0, else `data[len]` is NUL, so a buffer is always a C
 * string through buf_text(). A zeroed struct is a valid empty buffer.
 */
#ifndef LAPSE_BASE_BUF_H
#define LAPSE_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data;
	size_t len;
	size_t cap; /* without the byte for the final NUL */
};

void buf_done(struct buf *b);  /* frees; the buffer is empty and usable again */
void buf_clear(struct buf *b); /* empties it and keeps its memory */
void buf_grow(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *bytes, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_int(struct buf *b, int64_t n);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Room for so many bytes and their NUL behind what is there. */
static inline void buf_reserve(struct buf *b, size_t more)
{
	if (b->cap - b->len < more || !b->data)
		buf_grow(b, more);
}

static inline void buf_putc(struct buf *b, char c)
{
	buf_reserve(b, 1);
	b->data[b->len++] = c;
	b->data[b->len] = '\0';
}

const char *buf_text(const struct buf *b);

/* Hands the bytes over to the caller, who frees them; never NULL. The buffer is empty after it. */
char *buf_take(struct buf *b);

#endif
