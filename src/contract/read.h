/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding the mappings of a contract: each is a table of fields. read_field.c has what fields are
 * made of, read_bound.c the fields of a bound, read.c the file as a whole.
 */
#ifndef LAPSE_CONTRACT_READ_H
#define LAPSE_CONTRACT_READ_H

#include "contract/contract.h"

struct reader {
	struct contract *c;
	contract_env_fn *env;
	struct buf *error;
};

#define refuse(r, at, ...) document_refuse(&(r)->c->document, at, (r)->error, __VA_ARGS__)

typedef int decode_fn(struct reader *r, const struct node *n, void *member);

struct field {
	const char *name;
	decode_fn *decode;
	size_t offset;
	bool required;
};

#define FIELDS_MAX 24

/* NULL where there is none of that name. */
const struct field *reader_field(const struct field *fields, const char *name);

/* Decodes a mapping by its table; `what` is how messages call it: "a bound". */
int decode_map(struct reader *r, const struct node *map, const char *what,
	       const struct field *fields, void *out);

/* Refuses what is no single value, null, or empty. */
int need_text(struct reader *r, const struct node *n);

/* A name outside the database: a-z 0-9 _ -, and dots where `dots`. */
int decode_label(struct reader *r, const struct node *n, bool dots, const char **ret);
int decode_range(struct reader *r, const struct node *n, int64_t min, int64_t max, int64_t *ret);

/* For tables of fields; each says what its member is. */
decode_fn decode_node;       /* const struct node *: as it is */
decode_fn decode_identifier; /* const char *: a name of the database */
decode_fn decode_name;       /* const char *: a label */
decode_fn decode_bound_name; /* const char *: a label with dots */
decode_fn decode_flag;       /* bool */
decode_fn decode_duration;   /* lapse_ms */
decode_fn decode_slice;      /* int64_t, each of these */
decode_fn decode_rate;
decode_fn decode_rows;
decode_fn decode_percent;
decode_fn decode_columns; /* struct contract_columns */

/* The pace of a contract without `defaults`, and the fields of those. */
extern const struct contract_pace PACE_DEFAULT;
extern const struct field DEFAULTS_FIELDS[];

int decode_bounds(struct reader *r, const struct node *n, const struct contract_pace *pace);

#endif
