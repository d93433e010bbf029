/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands about mailboxes share. */
#ifndef LAPSE_CLI_CMD_MAILBOX_H
#define LAPSE_CLI_CMD_MAILBOX_H

#include <jansson.h>

#include "cli/cli.h"
#include "cli/client/client.h"
#include "cli/client/request.h"

/* Behind the daemon there may be a mail server that takes its time. */
#define MAIL_TIMEOUT_MS 180000

/* Puts the mailbox that the first operand names, by its id or the beginning of it, into the
 * request's first segment. */
enum outcome mailbox_resolve(struct cli *cli, struct request *request);

/* A mail with its text, as `mailbox messages ID MESSAGE` shows it. */
enum outcome mailbox_print_mail(const struct cli *cli, const json_t *mail);

#endif
