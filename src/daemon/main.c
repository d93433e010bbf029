/* SPDX-License-Identifier: Apache-2.0 */
/* lapsed: reads the settings and runs the daemon. Its exit codes are a table in daemon/help.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/help.h"
#include "http/openapi.h"

#define EXIT_SETTINGS 2

static int start_daemon(int argc, char **argv)
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

static int print(void (*write)(struct buf *out))
{
	struct buf out = { 0 };

	write(&out);
	fputs(buf_text(&out), stdout);
	buf_done(&out);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return print(help_write);
		if (strcmp(argv[i], "--man") == 0)
			return print(help_write_man);
		if (strcmp(argv[i], "--openapi") == 0)
			return print(openapi_write);
		if (strcmp(argv[i], "--version") == 0) {
			puts("lapsed " LAPSE_VERSION);
			return EXIT_SUCCESS;
		}
	}
	return start_daemon(argc, argv);
}
