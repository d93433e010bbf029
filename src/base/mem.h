/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: allocation that does not fail, cleanup of locals, and the arena of a request.
 *
 * Running out of memory ends the process (docs/adr/0006): every buffer a client can grow has a
 * limit, and everything that was answered is already on the disk.
 */
#ifndef LAPSE_BASE_MEM_H
#define LAPSE_BASE_MEM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))

/* Never return NULL; calloc's arguments are checked for overflow. Free with free(). */
void *mem_alloc(size_t size);
void *mem_zalloc(size_t count, size_t size);
void *mem_realloc(void *p, size_t size);
char *mem_strdup(const char *s);
void *mem_aligned(size_t alignment, size_t size);

/* Asks the kernel for huge pages wherever the memory has room for one; it may decline. */
#define HUGE_PAGE ((size_t)2 << 20)
void mem_prefer_huge(void *p, size_t size);

/* For CLEANUP(mem_freep) on a local pointer. */
static inline void mem_freep(void *p)
{
	free(*(void **)p);
}

/*
 * An arena hands out memory that lives until the whole arena goes. Small requests never leave the
 * first block, which is part of the arena itself.
 */
struct arena_block;
struct arena {
	struct arena_block *blocks; /* newest first; NULL while `first` is enough */
	size_t used;                /* of the newest block */
	_Alignas(16) char first[2048];
};

void arena_init(struct arena *a);
void arena_done(struct arena *a); /* takes an arena that never allocated */
void arena_reset(struct arena *a);
void *arena_alloc(struct arena *a, size_t size); /* zeroed, aligned to 16 */
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
