/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON in and out.
 *
 * In: text is parsed by jansson, which rejects duplicate keys, trailing garbage, invalid UTF-8 and
 * NUL; then a table of fields decodes the object into a struct. The same tables describe the
 * bodies in the OpenAPI document.
 *
 * Out: functions append to a buffer. A comma is written where the last byte says that a value came
 * before, so there is no writer state to carry around.
 */
#ifndef LAPSE_BASE_JSON_H
#define LAPSE_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

enum json_kind {
	FIELD_TEXT,   /* const char *: any text; min and max are bytes */
	FIELD_LABEL,  /* const char *: printable text; min and max are bytes */
	FIELD_ID,     /* const char *: an id given by a client */
	FIELD_INT,    /* int64_t: min and max are values */
	FIELD_BOOL,   /* bool */
	FIELD_TTL,    /* lapse_ms: an integer between min and max, or "infinity": LAPSE_NEVER */
	FIELD_TIME,   /* lapse_ms, from an ISO 8601 text */
	FIELD_OBJECT, /* json_t *: an object, borrowed from the body */
	FIELD_IDS,    /* json_t *: an array of distinct client ids; min and max are its length */
	FIELD_TEXTS,  /* json_t *: a string, or an array of strings; min and max are their number */
	FIELD_HEXES,  /* json_t *: an array of our own ids; min and max are its length */
};

#define TTL_INFINITY "infinity"

struct json_field {
	const char *name;
	enum json_kind kind;
	bool required;
	size_t offset; /* of the member in the struct that is filled */
	int64_t min, max;
	const char *help;
};

/* Parses one JSON document of `n` bytes that must be an object; a fresh reference. */
int json_parse_object(const char *text, size_t n, json_t **ret, struct problem *p);

/* The same for what a server wrote, which may be long: its texts, but no names, may hold NUL
 * (json_string_length()), and it may have JSON_FOREIGN_VALUES_MAX values, since each takes some
 * hundred bytes here however short it is there. */
#define JSON_FOREIGN_VALUES_MAX 500000
int json_parse_foreign(const char *text, size_t n, json_t **ret, struct problem *p);
int json_parse_array(const char *text, size_t n, json_t **ret, struct problem *p); /* an array */

/* Fills the members of `out` that the object has; others keep what the caller put there. What is
 * borrowed lives as long as `object`, which may be NULL: an empty body. `fields` ends with a row
 * without a name. Unknown fields, wrong types and values out of range are LAPSE_EINVAL. */
int json_decode(const json_t *object, const struct json_field *fields, void *out,
		struct problem *p);

void json_begin(struct buf *b, char bracket); /* '{' or '[' */
void json_end(struct buf *b, char bracket);   /* '}' or ']' */
void json_key(struct buf *b, const char *key);
void json_text(struct buf *b, const char *s); /* NULL is written as null */
void json_int(struct buf *b, int64_t n);
void json_bool(struct buf *b, bool v);
void json_raw(struct buf *b, const char *json); /* already JSON; NULL is written as null */
void json_time(struct buf *b, lapse_ms t);      /* LAPSE_NEVER is written as null */
void json_id(struct buf *b, int64_t id);

void json_put_text(struct buf *b, const char *key, const char *s);
void json_put_int(struct buf *b, const char *key, int64_t n);
void json_put_bool(struct buf *b, const char *key, bool v);
void json_put_time(struct buf *b, const char *key, lapse_ms t);
void json_put_id(struct buf *b, const char *key, int64_t id);
void json_put_ttl(struct buf *b, const char *key, lapse_ms ttl); /* as FIELD_TTL reads it */
void json_put_raw(struct buf *b, const char *key, const char *json);

static inline void json_freep(json_t **j)
{
	json_decref(*j);
}

#endif
