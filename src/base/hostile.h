/* SPDX-License-Identifier: Apache-2.0 */
/* Characters that a terminal obeys instead of showing: they move the cursor, turn the text around,
 * hide, or start a sequence. Whatever a person may look at has none of them raw. */
#ifndef LAPSE_BASE_HOSTILE_H
#define LAPSE_BASE_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

bool hostile_is(uint32_t code_point);

/* The code point at `s` and its bytes; 0 bytes when it is no UTF-8. */
size_t utf8_decode(const char *s, size_t n, uint32_t *ret);

/* Appends JSON with every hostile character as \uXXXX. In valid JSON these stand in texts only, so
 * what it says stays the same. Line feeds between values stay. */
void hostile_escape_json(struct buf *out, const char *json, size_t n);

#endif
