/* SPDX-License-Identifier: Apache-2.0 */
/* Help for people, made from the tables of commands, options and outcomes. */
#ifndef LAPSE_CLI_HELP_H
#define LAPSE_CLI_HELP_H

#include <stddef.h>

#include "base/buf.h"
#include "cli/commands.h"

/* "lapse hold place TABLE KEY --reason TEXT [--until TIME]". */
void help_synopsis(struct buf *out, const struct command *c);

/* Everything; the commands of one group; one command. */
void help_all(struct buf *out);
void help_group(struct buf *out, const char *group);
void help_command(struct buf *out, const struct command *c);

/* The source of lapse(1). */
void man_page(struct buf *out);

struct variable {
	const char *name, *help;
};

extern const struct variable ENVIRONMENT[];
extern const size_t ENVIRONMENT_COUNT;

#endif
