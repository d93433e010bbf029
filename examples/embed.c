/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lapse inside another program: a store in a temporary directory, with a clock of our own, so that
 * a day passes in no time.
 *
 *	cc embed.c $(pkg-config --cflags --libs lapse) -o embed && ./embed
 */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <inttypes.h>
#include <lapse.h>
#include <stdio.h>
#include <stdlib.h>

#define HOUR_MS 3600000

static lapse_ms our_time(void *clock_arg)
{
	return *(lapse_ms *)clock_arg;
}

static void check(int r, const char *what, const char *why)
{
	if (r == LAPSE_OK)
		return;
	fprintf(stderr, "%s: %s (%s)\n", what, why, lapse_error_name(r));
	exit(1);
}

static void print_message(void *arg, const struct lapse_message *m)
{
	(void)arg;
	printf("  %s -> %s: %s%s\n", m->from, m->to, m->content,
	       m->read_at == LAPSE_NEVER ? " (unread)" : "");
}

static void print_mailbox(void *arg, const struct lapse_mailbox *m)
{
	(void)arg;
	printf("  %s is %s\n", m->address, m->expired ? "expired" : "active");
}

static void print_event(void *arg, const struct lapse_event *e)
{
	(void)arg;
	printf("  %s %s\n", e->kind, e->data);
}

static void sweep(struct lapse_store *store, bool dry_run)
{
	const struct lapse_sweep_result *result;

	check(lapse_sweep(store, "messages", dry_run, &result), "sweep",
	      lapse_error_message(store));
	printf("a sweep %s %" PRId64 " message(s)\n", dry_run ? "would remove" : "removed",
	       result->pruned);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

int main(void)
{
	char dir[] = "/tmp/lapse-embed-XXXXXX";
	lapse_ms now = INT64_C(1800000000000);
	struct lapse_options options;
	struct lapse_problem problem;
	struct lapse_store *store;
	struct lapse_draft draft = { .to = "bob",
				     .from = "alice",
				     .content = "the build is green" };
	int64_t id;

	lapse_options_init(&options, sizeof(options));
	options.data_dir = mkdtemp(dir);
	options.wall = our_time;
	options.clock_arg = &now;
	check(lapse_open(&options, &store, &problem), "open", problem.message);
	printf("liblapse %s\n", lapse_version());

	check(lapse_message_send(store, &draft, &id), "send", lapse_error_message(store));
	draft.content = "the deploy is done";
	check(lapse_message_send(store, &draft, NULL), "send", lapse_error_message(store));
	check(lapse_message_mark_read(store, "bob", id, LAPSE_NO_CLAIM), "read",
	      lapse_error_message(store));
	printf("bob's inbox:\n");
	lapse_message_list(store, "bob", false, 0, 10, print_message, NULL);
	printf("a mailbox for a day:\n");
	check(lapse_mailbox_create(store, "builds", NULL, 24 * HOUR_MS, print_mailbox, NULL),
	      "mailbox", lapse_error_message(store));

	now += 25 * HOUR_MS;
	printf("25 hours later:\n");
	lapse_message_list(store, "bob", false, 0, 10, print_message, NULL);
	lapse_mailbox_list(store, true, NULL, 10, print_mailbox, NULL);
	sweep(store, true);
	sweep(store, false);

	printf("what happened in the last 24 hours:\n");
	lapse_events(store, 0, 10, print_event, NULL);
	lapse_close(store);
	return nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
