/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight bytes of a text looked at together. A test gives a mask: 0 when no byte is meant, else the
 * first byte that is meant is that of the lowest bit (word_first()). Higher bits may be wrong.
 */
#ifndef LAPSE_BASE_WORD_H
#define LAPSE_BASE_WORD_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WORD_BYTES 8
#define WORD_EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

static inline uint64_t word_at(const char *eight)
{
	uint64_t w;

	memcpy(&w, eight, sizeof(w));
	return le64toh(w);
}

static inline size_t word_first(uint64_t mask)
{
	return (size_t)__builtin_ctzll(mask) / 8;
}

/* Bytes below `least`, which is at most 128. */
static inline uint64_t word_below(uint64_t w, unsigned char least)
{
	return (w - WORD_EACH(least)) & ~w & WORD_EACH(0x80);
}

static inline uint64_t word_holds(uint64_t w, unsigned char byte)
{
	return word_below(w ^ WORD_EACH(byte), 1);
}

/* What a JSON text cannot hold as it is: a control character, a quote, a backslash. */
static inline uint64_t word_json_special(uint64_t w)
{
	return word_below(w, ' ') | word_holds(w, '"') | word_holds(w, '\\');
}

#endif
