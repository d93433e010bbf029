/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the library share. They see include/lapse.h and nothing else of lapse, and are
 * linked with the shared library, like any program that embeds it.
 */
#ifndef LAPSE_TESTS_LIB_H
#define LAPSE_TESTS_LIB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lapse.h"

#define NOW INT64_C(1800000000000) /* 2027-01-15T08:00:00Z, where every test's clock starts */
#define SECOND_MS INT64_C(1000)
#define HOUR_MS INT64_C(3600000)
#define DAY_MS (24 * HOUR_MS)

#define PATH_SIZE 256
#define TEXT_SIZE 128
#define SEEN_MAX 2100

/* A directory, a clock the test owns, and a store that is open in it. */
struct world {
	char dir[PATH_SIZE];
	lapse_ms wall;
	lapse_us mono;
	char log[8192]; /* the lines, one after another */
	struct lapse_options options;
	struct lapse_store *store;
};

int world_setup(void **state);      /* with both hands of the clock */
int world_setup_bare(void **state); /* the directory only: nothing is open */
int world_teardown(void **state);
void world_open(struct world *w);
void world_reopen(struct world *w);
void world_pass(struct world *w, lapse_ms ms); /* both hands */

#define assert_ok(w, call) check_ok((w)->store, (call), #call, __FILE__, __LINE__)
void check_ok(struct lapse_store *store, int r, const char *what, const char *file, int line);

/* Fails with this code, this field to blame, and a message. */
#define assert_error(w, call, err, field)                                                          \
	check_error((w)->store, (call), (err), (field), #call, __FILE__, __LINE__)
void check_error(struct lapse_store *store, int r, int err, const char *field, const char *what,
		 const char *file, int line);

/* What callbacks saw. */
struct seen {
	size_t count;
	struct {
		int64_t id, claim_id;
		lapse_ms at, read_at;
		char text[TEXT_SIZE]; /* content, kind, key, agent or table */
	} items[SEEN_MAX];
};

void see_message(void *seen, const struct lapse_message *m);
void see_event(void *seen, const struct lapse_event *e);
void see_hold(void *seen, const struct lapse_hold *h);
void see_inbox(void *seen, const struct lapse_inbox *i);
void see_bound(void *seen, const struct lapse_bound *b);

int64_t send_to(struct world *w, const char *agent, const char *content);
int64_t send_read(struct world *w, const char *agent, const char *content);
size_t count_messages(struct world *w, const char *agent);

/* Ticks until nothing is due now. */
void tick_until_idle(struct world *w);

int64_t swept(struct world *w, const char *scheduler, bool dry_run);

#endif
