/* SPDX-License-Identifier: Apache-2.0 */
/* lapsed: reads the settings and runs the daemon. Exit codes: 0 ended by a signal, 1 could not
 * start, 2 the settings are wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/daemon.h"

#define EXIT_SETTINGS 2

static void print_help(void)
{
	struct buf out = { 0 };

	buf_puts(&out,
		 "Usage: lapsed [OPTION…]\n\n"
		 "Gives everything an agent fleet leaves behind a lifetime, and enforces it.\n"
		 "Runs in the foreground, logs JSON lines to standard error, prints one line with\n"
		 "its address when it is ready, and ends cleanly on SIGTERM.\n\nOptions:\n"
		 "  --config FILE                        lines 'name = value'; file < environment "
		 "< option\n"
		 "  --help, --version\n");
	settings_help(&out);
	buf_puts(&out,
		 "\nEvery option is also an environment variable (--message-ttl-ms is\n"
		 "LAPSE_MESSAGE_TTL_MS) and a line of the file (message_ttl_ms = 86400000).\n");
	fputs(buf_text(&out), stdout);
	buf_done(&out);
}

static int start(int argc, char **argv)
{
	struct settings settings;
	struct problem p = { 0 };
	int status = EXIT_SUCCESS;

	settings_init(&settings);
	if (settings_load(&settings, argc - 1, argv + 1, environ, &p) < 0) {
		fprintf(stderr, "lapsed: %s\n", p.message);
		status = EXIT_SETTINGS;
	} else {
		int r = daemon_run(&settings, &p);
		if (r < 0) {
			fprintf(stderr, "lapsed: %s\n", problem_text(&p, r));
			status = r == LAPSE_EINVAL ? EXIT_SETTINGS : EXIT_FAILURE;
		}
	}
	settings_done(&settings);
	return status;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help();
			return EXIT_SUCCESS;
		}
		if (strcmp(argv[i], "--version") == 0) {
			puts("lapsed " LAPSE_VERSION);
			return EXIT_SUCCESS;
		}
	}
	return start(argc, argv);
}
