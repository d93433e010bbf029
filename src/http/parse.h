/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long JSON bodies, which workers parse: a megabyte takes up to ten milliseconds, and the loop
 * would serve no one else meanwhile. The request is STORING until its body is parsed, and then goes
 * into the next turn like any other. Giving back the memory of many values takes as long as a third
 * of parsing them, so a worker does that as well.
 */
#ifndef LAPSE_HTTP_PARSE_H
#define LAPSE_HTTP_PARSE_H

#include <stdbool.h>

struct request;

/* Whether the body is one for a worker. */
bool parse_is_long(const struct request *r);

/* The request is suspended and STORING: parses, then queues it or answers the error. */
void parse_start(struct request *r);

/* Takes the parsed body of a request that ends, if it is a long one. */
void parse_release(struct request *r);

#endif
