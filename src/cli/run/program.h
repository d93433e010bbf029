/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another program, run while the command keeps something alive for it: an agent, a claim, a lease.
 *
 * program_run() starts it, waits, calls `tick` every `every_ms` meanwhile, and passes signals on.
 * The terminal gives Ctrl-C to the program itself; SIGTERM and SIGHUP, and an interrupt that
 * another process sent, are passed to it. The command outlives the program, so that it can tidy up.
 */
#ifndef LAPSE_CLI_PROGRAM_H
#define LAPSE_CLI_PROGRAM_H

#include "base/buf.h"
#include "cli/cli.h"

#define PROGRAM_ENV_MAX 8

struct program {
	const char *const *argv; /* ends with NULL */
	const struct buf *input; /* its standard input; NULL: the command's own */
	struct {
		const char *name, *value;
	} env[PROGRAM_ENV_MAX]; /* set for it, up to the first without a name; a NULL value is left
				   out */
	lapse_ms every_ms;
	/* Keeps alive what the program works under. False when that is lost: the program is ended
	 * with SIGTERM. */
	bool (*tick)(void *arg);
	void *arg;
};

/* How a program ended. */
struct program_end {
	int code; /* its exit code; 128 + the signal that ended it; 126 or 127: it did not start */
	bool was_interrupted; /* Ctrl-C, SIGTERM or SIGHUP came while it ran */
	bool was_lost;        /* `tick` ended it */
};

enum outcome program_run(struct cli *cli, const struct program *program, struct program_end *ret);

#endif
