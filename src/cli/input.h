/* SPDX-License-Identifier: Apache-2.0 */
/* What the body of a request is made of: texts of the command line, files, standard input. Any of
 * them may hold any bytes, but JSON must be UTF-8: an error names the one that is not. */
#ifndef LAPSE_CLI_INPUT_H
#define LAPSE_CLI_INPUT_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/cli.h"

/* body[key] becomes the option's text, where it was given. */
enum outcome input_text(const struct cli *cli, json_t *body, const char *key, enum option_id id);

/* Appends all texts of an option that may be repeated to an array. */
enum outcome input_texts(const struct cli *cli, json_t *array, enum option_id id);

/* body[key] becomes the option's number, where it was given. */
void input_number(const struct cli *cli, json_t *body, const char *key, enum option_id id);

/* body[key] becomes the JSON object that an operand holds; "-", or no such operand, means standard
 * input. Messages call it `name`. */
enum outcome input_object(const struct cli *cli, json_t *body, const char *key, size_t operand,
			  const char *name);

/* Reads a whole file, or standard input where `path` is "-"; messages call it `what`. */
enum outcome input_file(const struct cli *cli, const char *path, const char *what, struct buf *out);

#endif
