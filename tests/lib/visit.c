/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: visit DIR: a program that embeds lapse comes to a directory that a daemon has left. It
 * looks at all mailboxes, prints them, and ticks and sweeps more often than a deletion may fail.
 * tests/api/test_mailbox_library.py says what must be left afterwards.
 */
#include <lapse.h>
#include <stdio.h>

#define ROUNDS 5

static void print(void *arg, const struct lapse_mailbox *m)
{
	static const char *const cleanups[] = { "clean", "pending", "dead_letter" };

	(void)arg;
	printf("%s %s %s %s\n", m->id, m->provider, m->expired ? "expired" : "active",
	       cleanups[m->cleanup]);
}

static int visit(struct lapse_store *store)
{
	int r = lapse_mailbox_list(store, true, NULL, 100, print, NULL);

	for (int i = 0; r == LAPSE_OK && i < ROUNDS; i++) {
		r = lapse_sweep(store, "mailboxes", false, NULL);
		for (int j = 0; r == LAPSE_OK && j < 100 && lapse_next_us(store) == 0; j++)
			r = lapse_tick(store);
	}
	if (r < 0)
		fprintf(stderr, "%s\n", lapse_error_message(store));
	return r;
}

int main(int argc, char **argv)
{
	struct lapse_options options;
	struct lapse_problem problem;
	struct lapse_store *store;

	if (argc != 2)
		return 2;
	lapse_options_init(&options, sizeof(options));
	options.data_dir = argv[1];
	if (lapse_open(&options, &store, &problem) < 0) {
		fprintf(stderr, "%s\n", problem.message);
		return 1;
	}
	int r = visit(store);
	lapse_close(store);
	return r < 0;
}
