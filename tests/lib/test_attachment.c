/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of attachments: staging in three ways, reading, removing, figures, and what they
 * refuse. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib.h"

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

struct shown {
	int count;
	struct lapse_attachment last;
	char checksum[LAPSE_CHECKSUM_SIZE], name[300];
};

static void show(void *arg, const struct lapse_attachment *a)
{
	struct shown *s = arg;

	s->count++;
	s->last = *a;
	snprintf(s->checksum, sizeof(s->checksum), "%s", a->checksum);
	snprintf(s->name, sizeof(s->name), "%s", a->name);
}

static struct shown stage(struct world *w, const char *text, const struct lapse_terms *terms)
{
	struct shown s = { 0 };

	assert_ok(w, lapse_attachment_stage_bytes(w->store, text, strlen(text), terms, show, &s));
	assert_int_equal(s.count, 1);
	return s;
}

static int count_files(const struct world *w)
{
	char command[PATH_SIZE + 64], text[32] = "";

	snprintf(command, sizeof(command), "find %s/files -type f | wc -l", w->dir);
	FILE *f = popen(command, "r");
	assert_non_null(fgets(text, sizeof(text), f));
	pclose(f);
	return atoi(text);
}

static void tick(struct world *w)
{
	for (int i = 0; i < 50 && lapse_next_us(w->store) == 0; i++)
		assert_ok(w, lapse_tick(w->store));
}

static void assert_content(struct world *w, const char *checksum, const char *text)
{
	char buffer[64] = "";
	int fd = -1;

	assert_ok(w, lapse_attachment_open(w->store, checksum, &fd));
	assert_int_equal(read(fd, buffer, sizeof(buffer)), (ssize_t)strlen(text));
	assert_string_equal(buffer, text);
	close(fd);
}

static void test_bytes_come_back_with_their_terms(void **state)
{
	struct world *w = *state;
	struct lapse_terms terms = { .name = "a.txt", .ttl_ms = 5000 };
	struct shown s = stage(w, "abc", &terms), got = { 0 };

	assert_string_equal(s.checksum, ABC);
	assert_string_equal(s.name, "a.txt");
	assert_int_equal(s.last.size, 3);
	assert_int_equal(s.last.inserted_at, NOW);
	assert_int_equal(s.last.expires_at, NOW + 5000);
	assert_false(s.last.cached || s.last.persist);
	assert_content(w, ABC, "abc");
	assert_ok(w, lapse_attachment_get(w->store, ABC, show, &got));
	assert_int_equal(got.last.id, s.last.id);
}

static void test_defaults(void **state)
{
	struct world *w = *state;
	struct shown s = stage(w, "abc", NULL);

	assert_int_equal(s.last.ttl_ms, DAY_MS);
	assert_string_equal(s.name, "attachment");
}

static void test_a_path_is_staged_under_its_own_name(void **state)
{
	struct world *w = *state;
	char path[PATH_SIZE + 16];
	struct shown s = { 0 };

	snprintf(path, sizeof(path), "%s/report.txt", w->dir);
	FILE *f = fopen(path, "w");
	fputs("abc", f);
	fclose(f);
	assert_ok(w, lapse_attachment_stage_path(w->store, path, NULL, show, &s));
	assert_string_equal(s.name, "report.txt");
	assert_string_equal(s.checksum, ABC);
	unlink(path);
	assert_content(w, ABC, "abc");
}

struct source {
	const char *text;
	int left, fail_at;
};

static ptrdiff_t give(void *arg, void *buffer, size_t size)
{
	struct source *s = arg;

	assert_true(size >= 1);
	if (s->left == 0 || s->left == s->fail_at)
		return s->left == 0 ? 0 : -1;
	s->left--;
	memcpy(buffer, s->text++, 1);
	return 1;
}

static void test_what_a_callback_gives_is_staged(void **state)
{
	struct world *w = *state;
	struct source source = { "abc", 3, -1 }, broken = { "xyz", 3, 1 };

	assert_ok(w, lapse_attachment_stage_from(w->store, give, &source, NULL, NULL, NULL));
	assert_content(w, ABC, "abc");
	assert_error(w, lapse_attachment_stage_from(w->store, give, &broken, NULL, NULL, NULL),
		     LAPSE_EIO, "read");
	assert_int_equal(count_files(w), 1);
}

static void test_staging_again_refreshes_and_only_gives(void **state)
{
	struct world *w = *state;
	struct lapse_terms longer = { .ttl_ms = 9000 }, shorter = { .ttl_ms = 10, .persist = true };

	stage(w, "abc", &longer);
	world_pass(w, 1000);
	struct shown s = stage(w, "abc", &shorter);
	assert_true(s.last.cached && s.last.persist);
	assert_int_equal(s.last.ttl_ms, 9000);
	assert_int_equal(s.last.inserted_at, NOW + 1000);
	assert_int_equal(s.last.expires_at, LAPSE_NEVER);
	assert_int_equal(count_files(w), 1);
}

static void test_expiry_at_its_boundary_and_cleanup(void **state)
{
	struct world *w = *state;
	struct lapse_terms terms = { .ttl_ms = 1000 }, kept = { .ttl_ms = LAPSE_NEVER };
	int64_t count = -1, bytes = -1;

	stage(w, "abc", &terms);
	stage(w, "kept", &kept);
	world_pass(w, 999);
	assert_ok(w, lapse_attachment_get(w->store, ABC, NULL, NULL));
	world_pass(w, 1);
	assert_error(w, lapse_attachment_get(w->store, ABC, NULL, NULL), LAPSE_EEXPIRED,
		     "checksum");
	assert_ok(w, lapse_attachment_cleanup(w->store, &count, &bytes));
	assert_int_equal(count, 1);
	assert_int_equal(bytes, 3);
	tick(w);
	assert_int_equal(count_files(w), 1);
	assert_error(w, lapse_attachment_get(w->store, ABC, NULL, NULL), LAPSE_ENOTFOUND,
		     "checksum");
}

static void test_delete_and_holds(void **state)
{
	struct world *w = *state;
	int fd = -1;
	char byte;

	stage(w, "abc", NULL);
	assert_ok(w, lapse_hold_place(w->store, "attachments", ABC, "audit", LAPSE_NEVER));
	assert_error(w, lapse_attachment_delete(w->store, ABC), LAPSE_ECONFLICT, "checksum");
	assert_ok(w, lapse_hold_release(w->store, "attachments", ABC));
	assert_ok(w, lapse_attachment_open(w->store, ABC, &fd));
	assert_ok(w, lapse_attachment_delete(w->store, ABC));
	tick(w);
	assert_int_equal(count_files(w), 0);
	assert_int_equal(read(fd, &byte, 1), 1); /* a reader keeps its bytes */
	close(fd);
	assert_error(w, lapse_attachment_open(w->store, ABC, &fd), LAPSE_ENOTFOUND, "checksum");
}

static void test_lists_and_figures_are_the_owners(void **state)
{
	struct world *w = *state;
	struct lapse_terms kept = { .persist = true, .ttl_ms = 0 };
	struct lapse_attachment_metrics m;
	struct shown s = { 0 };

	stage(w, "abc", NULL);
	stage(w, "defgh", &kept);
	assert_ok(w, lapse_attachment_list(w->store, 0, 10, show, &s));
	assert_int_equal(s.count, 2);
	assert_ok(w, lapse_attachment_metrics(w->store, &m));
	assert_int_equal(m.total_count, 2);
	assert_int_equal(m.total_bytes, 8);
	assert_int_equal(m.persistent_bytes, 5);
	assert_int_equal(m.expirable_count, 1);
	assert_ok(w, lapse_set_owner(w->store, "other"));
	assert_ok(w, lapse_attachment_metrics(w->store, &m));
	assert_int_equal(m.total_count, 0);
	assert_error(w, lapse_attachment_get(w->store, ABC, NULL, NULL), LAPSE_ENOTFOUND,
		     "checksum");
}

static void test_what_is_refused(void **state)
{
	struct world *w = *state;
	struct lapse_terms name = { .name = "a\nb", .ttl_ms = 1 }, ttl = { .ttl_ms = -2 };
	char path[PATH_SIZE + 16];

	snprintf(path, sizeof(path), "%s/fifo", w->dir);
	mkfifo(path, 0600);
	assert_error(w, lapse_attachment_stage_bytes(w->store, "x", 1, &name, NULL, NULL),
		     LAPSE_EINVAL, "name");
	assert_error(w, lapse_attachment_stage_bytes(w->store, "x", 1, &ttl, NULL, NULL),
		     LAPSE_EINVAL, "ttl_ms");
	assert_error(w, lapse_attachment_stage_path(w->store, path, NULL, NULL, NULL), LAPSE_EINVAL,
		     "path");
	assert_error(w, lapse_attachment_stage_path(w->store, "/no/such", NULL, NULL, NULL),
		     LAPSE_ENOTFOUND, "path");
	assert_error(w, lapse_attachment_stage_path(w->store, NULL, NULL, NULL, NULL), LAPSE_EINVAL,
		     "path");
	assert_error(w, lapse_attachment_get(w->store, "abc", NULL, NULL), LAPSE_EINVAL,
		     "checksum");
	assert_error(w, lapse_attachment_get(w->store, NULL, NULL, NULL), LAPSE_EINVAL, "checksum");
	assert_error(w, lapse_attachment_list(w->store, 0, 0, NULL, NULL), LAPSE_EINVAL, "limit");
	assert_int_equal(count_files(w), 0);
}

static void test_limits_are_settings(void **state)
{
	struct world *w = *state;
	static const struct lapse_setting settings[] = { { "attachment_max_bytes", "4" },
							 { "attachment_total_bytes", "6" } };

	lapse_close(w->store);
	w->options.settings = settings;
	w->options.settings_count = 2;
	world_open(w);
	assert_error(w, lapse_attachment_stage_bytes(w->store, "12345", 5, NULL, NULL, NULL),
		     LAPSE_ETOOLARGE, "body");
	stage(w, "1234", NULL);
	assert_error(w, lapse_attachment_stage_bytes(w->store, "123", 3, NULL, NULL, NULL),
		     LAPSE_ELIMIT, "");
	stage(w, "12", NULL);
}

static void test_attachments_survive_a_restart_and_lost_files_are_mended(void **state)
{
	struct world *w = *state;
	char command[PATH_SIZE + 64];

	stage(w, "abc", NULL);
	stage(w, "defg", NULL);
	snprintf(command, sizeof(command), "rm %s/files/ba/*", w->dir);
	world_reopen(w);
	assert_content(w, ABC, "abc");
	assert_int_equal(system(command), 0);
	world_reopen(w);
	for (int i = 0; i < 20; i++) {
		tick(w);
		world_pass(w, 10);
	}
	assert_error(w, lapse_attachment_get(w->store, ABC, NULL, NULL), LAPSE_ENOTFOUND,
		     "checksum");
	assert_non_null(strstr(w->log, "attachment.file_missing"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
		T(test_bytes_come_back_with_their_terms),
		T(test_defaults),
		T(test_a_path_is_staged_under_its_own_name),
		T(test_what_a_callback_gives_is_staged),
		T(test_staging_again_refreshes_and_only_gives),
		T(test_expiry_at_its_boundary_and_cleanup),
		T(test_delete_and_holds),
		T(test_lists_and_figures_are_the_owners),
		T(test_what_is_refused),
		T(test_limits_are_settings),
		T(test_attachments_survive_a_restart_and_lost_files_are_mended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
