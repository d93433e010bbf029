/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quick way into a jansson tree, for the plain JSON that nearly every request is.
 *
 * jansson takes each byte through three functions and copies it twice. This reader takes runs of
 * bytes, but only what it is sure of: objects, arrays, texts without escapes, integers from 0 to
 * 18 digits, true, false and null, all properly closed and not deeper than its limit. For anything
 * else it gives no tree, and jansson reads the text from its beginning. So there is one judge of
 * what is valid, and one source of error messages: jansson. Texts that are not ASCII are checked by
 * it too.
 */
#ifndef LAPSE_BASE_JSON_QUICK_H
#define LAPSE_BASE_JSON_QUICK_H

#include <jansson.h>
#include <stddef.h>

/* A fresh reference to the document, which is an object or an array and nested at most `depth`
 * deep; NULL = ask jansson. */
json_t *json_quick_load(const char *text, size_t n, int depth);

#endif
