/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BLOCK_BYTES ((size_t)16384) /* a list of a hundred messages fits in one or two */

struct arena_block {
	struct arena_block *next;
	size_t size;
	_Alignas(16) char data[];
};

static void *or_die(void *p)
{
	if (!p) {
		static const char line[] = "{\"level\":\"fatal\",\"event\":\"out_of_memory\"}\n";
		fwrite(line, 1, sizeof(line) - 1, stderr);
		abort();
	}
	return p;
}

void *mem_alloc(size_t size)
{
	return or_die(malloc(size ? size : 1));
}

void *mem_zalloc(size_t count, size_t size)
{
	return or_die(calloc(count ? count : 1, size ? size : 1));
}

void *mem_realloc(void *p, size_t size)
{
	return or_die(realloc(p, size ? size : 1));
}

char *mem_strdup(const char *s)
{
	return or_die(strdup(s));
}

void *mem_aligned(size_t alignment, size_t size)
{
	return or_die(aligned_alloc(alignment, size));
}

void mem_prefer_huge(void *p, size_t size)
{
	uintptr_t from = ((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	uintptr_t to = ((uintptr_t)p + size) & ~(HUGE_PAGE - 1);

	if (from < to)
		madvise((char *)p + (from - (uintptr_t)p), to - from, MADV_HUGEPAGE);
}

void arena_init(struct arena *a)
{
	a->blocks = NULL;
	a->used = 0;
}

void arena_done(struct arena *a)
{
	while (a->blocks) {
		struct arena_block *next = a->blocks->next;
		free(a->blocks);
		a->blocks = next;
	}
}

void arena_reset(struct arena *a)
{
	arena_done(a);
	arena_init(a);
}

static char *arena_grow(struct arena *a, size_t size)
{
	size_t bytes = size > ARENA_BLOCK_BYTES ? size : ARENA_BLOCK_BYTES;
	struct arena_block *b = mem_alloc(sizeof(*b) + bytes);

	b->next = a->blocks;
	b->size = bytes;
	a->blocks = b;
	a->used = 0;
	return b->data;
}

static void *take(struct arena *a, size_t size)
{
	size_t need = (size + 15) & ~(size_t)15;
	char *base = a->blocks ? a->blocks->data : a->first;
	size_t room = a->blocks ? a->blocks->size : sizeof(a->first);

	assert(need >= size && a->used <= room);
	if (need > room - a->used)
		base = arena_grow(a, need);
	assert(((uintptr_t)(base + a->used) & 15) == 0);
	char *p = base + a->used;
	a->used += need;
	return p;
}

void *arena_alloc(struct arena *a, size_t size)
{
	return memset(take(a, size), 0, size);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *copy = take(a, n + 1);

	memcpy(copy, s, n);
	copy[n] = '\0';
	return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *format, ...)
{
	va_list ap, again;
	va_start(ap, format);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	assert(n >= 0);
	char *text = arena_alloc(a, (size_t)n + 1);
	vsnprintf(text, (size_t)n + 1, format, again);
	va_end(again);
	return text;
}
