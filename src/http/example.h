/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Examples for the OpenAPI document: one value for each name of a field, so that requests, answers
 * and parameters tell one story.
 *
 * To add an example: a row in example.c. A field without a row gets one of its kind.
 */
#ifndef LAPSE_HTTP_EXAMPLE_H
#define LAPSE_HTTP_EXAMPLE_H

#include "api/field.h"
#include "http/shape.h"

/* Append one JSON value. */
void example_of_field(struct buf *out, const struct json_field *f);
void example_of_member(struct buf *out, const struct shape_field *f);
void example_of_shape(struct buf *out, const struct shape *shape);
void example_of_fields(struct buf *out, const struct json_field *fields); /* an object of them */
void example_of_parameter(struct buf *out, const char *name, const char *fallback);

#endif
