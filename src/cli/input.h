/* SPDX-License-Identifier: Apache-2.0 */
/* What the body of a request is made of: texts of the command line, files, standard input. Any of
 * them may hold anything, and JSON holds UTF-8 only: whoever is wrong is named. */
#ifndef LAPSE_CLI_INPUT_H
#define LAPSE_CLI_INPUT_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/cli.h"

/* body[key] becomes the option's text, where it was given. */
enum outcome input_text(const struct cli *cli, json_t *body, const char *key, enum option_id id);

/* Appends all texts of an option that may be repeated to an array. */
enum outcome input_texts(const struct cli *cli, json_t *array, enum option_id id);

/* Reads a whole file, or standard input where `path` is "-"; messages call it `what`. */
enum outcome input_file(const struct cli *cli, const char *path, const char *what, struct buf *out);

#endif
