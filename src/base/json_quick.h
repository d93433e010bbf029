/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quick ways into plain JSON, which nearly every request is: into a jansson tree, or, when it is an
 * object without objects or arrays in it, into a list of its members.
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
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A fresh reference to the document, which is an object or an array and nested at most `depth`
 * deep; NULL = ask jansson. */
json_t *json_quick_load(const char *text, size_t n, int depth);

/* A flat object: names are distinct, names and texts are ASCII and hold no NUL. */
#define JSON_FLAT_MAX 8

struct json_flat_member {
	const char *name, *text; /* in the document, not ended by NUL */
	size_t name_len, text_len;
	json_type type; /* JSON_STRING, JSON_INTEGER, JSON_TRUE, JSON_FALSE or JSON_NULL */
	int64_t number;
};

struct json_flat {
	size_t count;
	struct json_flat_member members[JSON_FLAT_MAX];
};

/* False = ask json_quick_load() or jansson; *ret may have been written to. */
bool json_flat_load(const char *text, size_t n, struct json_flat *ret);

/* The member of that name; NULL = there is none. */
const struct json_flat_member *json_flat_find(const struct json_flat *f, const char *name);

#endif
