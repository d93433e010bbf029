/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every part of the command shares: how a run can end, and the run itself.
 *
 * main.c makes one `struct cli`, line/args.c fills in what the user typed, then the function of the
 * command's row (line/commands.c) does its work with client/ (requests) and show/ (output) and
 * returns how it ended. The function that finds an error says it with cli_fail() and passes it up.
 */
#ifndef LAPSE_CLI_CLI_H
#define LAPSE_CLI_CLI_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/client/client.h"
#include "cli/line/args.h"
#include "cli/outcome.h"

struct cli {
	struct args args;
	struct client client;
	struct arena arena; /* lives as long as the run */
	const struct clock *clock;
	lapse_ms now; /* read once, so that all ages on a screen agree */
	int columns;  /* width of the terminal; 0 when standard output is none */
	bool colour;
	int exit_code; /* of a program that the command ran; counts when the outcome is OK */
	struct buf *complaint; /* what cli_fail() says goes here; NULL for standard error */
};

/* Prints "lapse: …" on standard error, with control characters escaped, and returns `how`. */
enum outcome cli_fail(const struct cli *cli, enum outcome how, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same for a wrong command line, followed by how the command is used. */
enum outcome cli_usage(const struct cli *cli, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Whether the person at the terminal says yes; with --yes, or without a terminal, the command line
 * has decided. */
bool cli_confirm(const struct cli *cli, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
