/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of an id instead of the whole: looks it up in a list of the daemon. */
#ifndef LAPSE_CLI_RESOLVE_H
#define LAPSE_CLI_RESOLVE_H

#include "cli/cli.h"

#define RESOLVE_MIN 4 /* characters; fewer would soon mean several */

struct resolve {
	const char *noun;   /* for messages: "mailbox" */
	const char *key;    /* of a row: the id */
	const char *prefix; /* that may be left out: "mbx_"; NULL for none */
	size_t whole;       /* characters of a whole id, with its prefix */
	size_t least;       /* that must be given; 0: RESOLVE_MIN */
	const char *only_key,
		*only;       /* rows whose `only_key` is not `only` do not count; NULL: all do */
	struct request list; /* gives the rows */
};

void resolve_done(struct resolve *what); /* releases the query of its list */

/* The whole id. What is as long as one, or no id at all, comes back as it is and is the daemon's to
 * judge; so no request is made for it. Nothing found is OUTCOME_NOT_FOUND, several are
 * OUTCOME_REFUSED. */
enum outcome resolve_id(struct cli *cli, const struct resolve *what, const char *typed,
			const char **ret);

#endif
