/* SPDX-License-Identifier: Apache-2.0 */
/* Help for people, made from the tables of commands, options and outcomes. */
#ifndef LAPSE_CLI_HELP_H
#define LAPSE_CLI_HELP_H

#include <stddef.h>

#include "base/buf.h"
#include "cli/line/commands.h"

/* "lapse hold place TABLE KEY --reason TEXT [--until TIME]". */
void help_synopsis(struct buf *out, const struct command *c);

/* Everything; one command, and the verbs of a noun with it. `columns` are those of the terminal, 0
 * where there is none. */
void help_all(struct buf *out, int columns);
void help_command(struct buf *out, int columns, const struct command *c);

/* The source of lapse(1). */
void man_page(struct buf *out);

struct variable {
	const char *name, *help;
};

extern const struct variable ENVIRONMENT[];
extern const size_t ENVIRONMENT_COUNT;

#endif
