/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON in and out.
 *
 * In: text is parsed by jansson, which rejects duplicate keys, trailing garbage, invalid UTF-8 and
 * NUL; plain text takes a shorter way to the same tree (base/json_quick.h). Tables of fields
 * (api/field.h) decode the object into a struct.
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

#define TTL_INFINITY "infinity" /* a lifetime without end, in JSON and in a query */

/* Parses one JSON document of `n` bytes that must be an object; a fresh reference. */
int json_parse_object(const char *text, size_t n, json_t **ret, struct problem *p);

/* LAPSE_ETOOLARGE when the text has more than `max` values: each takes some hundred bytes and half
 * a microsecond here, however short it is there. Counts without parsing. */
int json_check_values(const char *text, size_t n, int64_t max, struct problem *p);

/* The same as json_parse_object() for what a server wrote, which may be long: its texts, but no
 * names, may hold NUL (json_string_length()), and it may have JSON_FOREIGN_VALUES_MAX values, since
 * each takes some hundred bytes here however short it is there. */
#define JSON_FOREIGN_VALUES_MAX 500000
int json_parse_foreign(const char *text, size_t n, json_t **ret, struct problem *p);
int json_parse_array(const char *text, size_t n, json_t **ret, struct problem *p); /* an array */

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
void json_put_ttl(struct buf *b, const char *key, lapse_ms ttl); /* LAPSE_NEVER is "infinity" */
void json_put_raw(struct buf *b, const char *key, const char *json);

static inline void json_freep(json_t **j)
{
	json_decref(*j);
}

#endif
