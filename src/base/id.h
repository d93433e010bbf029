/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifiers: the ones we make and the ones clients give us.
 *
 * A 64-bit id is 42 bits of milliseconds, 13 bits of counter and 8 bits of replica. So the ids of
 * one replica grow with time, an index on them is append-only, no two replicas make the same id,
 * and the id of a moment is a lower bound of all ids made from then on. More than 8192 ids of one
 * millisecond borrow from the next one. In JSON an id is 16 hex digits.
 */
#ifndef LAPSE_BASE_ID_H
#define LAPSE_BASE_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

#define ID_TEXT_LEN 16
#define ID_MAX_BYTES 128 /* of an id given by a client */

struct idgen {
	int64_t last;    /* the largest id given out or found in the store */
	uint8_t replica; /* 0 for the only process of a store */
};

/* An id of this replica above `last`, even when the clock went back. */
int64_t id_next(struct idgen *g, lapse_ms now);

/* The smallest id that can belong to the moment `t`. */
int64_t id_floor(lapse_ms t);

/* The moment an id was made at, or a later one when its millisecond had to borrow; and by whom. */
lapse_ms id_time(int64_t id);
uint8_t id_replica(int64_t id);

void id_format(int64_t id, char out[ID_TEXT_LEN + 1]);
bool id_parse(const char *text, int64_t *ret);

/* 64 random bits from the kernel, positive; and `n` random bytes. */
int64_t id_random(void);
void random_bytes(void *out, size_t n);
void hex_encode(const void *bytes, size_t n, char *out); /* 2n digits and a NUL */

/* The bytes of lower-case hex digits, and a NUL; false when the text is something else. */
bool hex_decode(const char *text, char *out);

/* Makes text valid UTF-8 by putting '?' in the place of bytes that are not. */
void utf8_repair(char *text);

/* Whether a client may use this as the name of an agent, a key, a holder: 1–128 bytes of
 * printable UTF-8 without control characters and '/'. On false `*ret_why` says what is wrong. */
bool id_is_valid(const char *text, const char **ret_why);

/* Valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF, and with `printable` no
 * C0, C1 or DEL. */
bool utf8_is_valid(const char *bytes, size_t n, bool printable);

#endif
