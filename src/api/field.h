/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields: what a caller may say, and how it is checked. The rules are the same for a JSON body, for
 * a query, for a header and for an argument of the library; each says what is wrong in the words
 * `name` gives it. 0, or LAPSE_EINVAL with the field and the reason in `p`.
 *
 * Bodies and queries are decoded by tables of fields. The OpenAPI document describes them by the
 * same tables.
 */
#ifndef LAPSE_API_FIELD_H
#define LAPSE_API_FIELD_H

#include "base/json.h"
#include "base/json_quick.h"

struct arena;

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

struct json_field {
	const char *name;
	enum json_kind kind;
	bool required;
	size_t offset; /* of the member in the struct that is filled */
	int64_t min, max;
	const char *help;
};

/* Fills the members of `out` that the object has; others keep what the caller put there. What is
 * borrowed lives as long as `object`, which may be NULL: an empty body. `fields` ends with a row
 * without a name. Unknown fields, wrong types and values out of range are LAPSE_EINVAL. */
int fields_decode(const json_t *object, const struct json_field *fields, void *out,
		  struct problem *p);

/* The same for a flat object, whose texts are copied to the arena. False = ask fields_decode(): the
 * object is not as the table wants it, or has values of a kind that this does not know. */
bool fields_decode_flat(const struct json_flat *object, const struct json_field *fields, void *out,
			struct arena *arena);

/* The field of that name; NULL = there is none. */
const struct json_field *field_find(const struct json_field *fields, const char *name);

/* One value of a query, for the kinds that a query can have: text, label, id, integer, boolean and
 * lifetime. */
int field_decode_text(const struct json_field *f, const char *text, void *member,
		      struct problem *p);

/* The rules. A text that is NULL was not given, and is required. */
int field_id(const char *text, const char *name, struct problem *p);
int field_length(size_t n, int64_t min, int64_t max, const char *name, struct problem *p);
int field_label(const char *text, int64_t min, int64_t max, const char *name, struct problem *p);
int field_range(int64_t value, int64_t min, int64_t max, const char *name, struct problem *p);
int field_count(size_t n, int64_t min, int64_t max, const char *name, struct problem *p);
int field_ids(const char *const *ids, size_t n, const char *name, struct problem *p); /* distinct */

/* An idempotency key: 1 to ID_MAX_BYTES bytes of printable UTF-8. */
int field_key(const char *text, const char *name, struct problem *p);

#endif
