/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of an operation for the OpenAPI document: its success with headers and schema, and every
 * error that its row in the route table can cause.
 *
 * To add an error: a row in answers.c and its condition in route_fails().
 */
#ifndef LAPSE_HTTP_ANSWERS_H
#define LAPSE_HTTP_ANSWERS_H

#include "base/buf.h"
#include "http/route.h"

/* Appends the member "responses" of an operation. */
void answers_of_route(struct buf *out, const struct route *r);

/* Append what the operations refer to: the members "responses" and "headers" of "components", and
 * the schemas of errors. */
void answers_components(struct buf *out);
void answers_error_schemas(struct buf *out);

#endif
