/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the daemon in the words of the command line. */
#ifndef LAPSE_CLI_WORDS_H
#define LAPSE_CLI_WORDS_H

#include "base/buf.h"
#include "cli/cli.h"

/* Appends the message with fields as flags and durations as people write them: "ttl_ms must be
 * between 300000 and 604800000" becomes "--ttl must be between 5m and 7d" for a command that has
 * --ttl. */
void words_of_flags(const struct cli *cli, const char *message, struct buf *out);

#endif
