/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands about attachments share. */
#ifndef LAPSE_CLI_ATTACHMENT_H
#define LAPSE_CLI_ATTACHMENT_H

#include "cli/cli.h"

/* The checksum the user means: 64 digits as they are, fewer (8 at least) if one attachment begins
 * with them. It lives as long as the run. */
enum outcome attachment_resolve(struct cli *cli, const char *typed, const char **ret);

/* Asks the daemon about the attachment that the first operand means. The checksum is the one that
 * was asked for, whatever the answer says. */
enum outcome attachment_look_up(struct cli *cli, const char **ret_checksum, struct answer *ret);

#endif
