/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON Schemas for the OpenAPI document: of the fields that bodies and queries are decoded by, and
 * of the shapes of answers. Bodies are closed, because an unknown field is an error; answers are
 * open, because a new field must not break a client.
 */
#ifndef LAPSE_HTTP_SCHEMA_H
#define LAPSE_HTTP_SCHEMA_H

#include "api/field.h"
#include "http/shape.h"

/* Append one schema. */
void schema_of_field(struct buf *out, const struct json_field *f);
void schema_of_fields(struct buf *out, const struct json_field *fields); /* an object of them */
void schema_of_shape(struct buf *out, const struct shape *shape);

/* The same without references and examples: shapes inside it are written out. */
void schema_of_shape_whole(struct buf *out, const struct shape *shape);

/* Appends {"$ref": …} to the named schema. */
void schema_ref(struct buf *out, const char *name);

#endif
