/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a run can end. The enum, --help and the manual page come from the rows below; scripts rely on
 * the numbers, so a row never changes its number.
 */
#ifndef LAPSE_CLI_OUTCOME_H
#define LAPSE_CLI_OUTCOME_H

#define OUTCOMES(X)                                                                                \
	X(OK, 0, "done")                                                                           \
	X(REFUSED, 1, "refused; the reason is on standard error")                                  \
	X(USAGE, 2, "the command line, or a file it names, is wrong")                              \
	X(UNREACHABLE, 3, "no daemon answers at the URL")                                          \
	X(UNAVAILABLE, 4, "the daemon cannot do it now; try again")                                \
	X(NOT_FOUND, 5, "what was named does not exist")                                           \
	X(DENIED, 6, "the token is missing, wrong, or not allowed to do this")                     \
	X(EMPTY, 7, "nothing came in time (--wait)")                                               \
	X(INTERRUPTED, 130, "interrupted, for example with Ctrl-C")

enum outcome {
#define X(name, number, text) OUTCOME_##name = (number),
	OUTCOMES(X)
#undef X
};

/* How a run ends that failed with a LAPSE_E… of this machine (a setting, a restore). */
enum outcome outcome_of_error(int err);

/* How a run ends that got this HTTP status. */
enum outcome outcome_of_status(long status);

#endif
