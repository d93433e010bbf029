/* SPDX-License-Identifier: Apache-2.0 */
/* The data directory: its lock, backups, and putting one of them back. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/backup.h"
#include "store/migrate.h"
#include "store/restore.h"
#include "unit.h"

static int64_t files_with(const char *dir, const char *part)
{
	DIR *d = opendir(dir);
	int64_t n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strstr(e->d_name, part) != NULL;
	closedir(d);
	return n;
}

/* The lock */

static void the_lock_is_for_one(void **state)
{
	struct world *w = *state;
	char path[TEMP_PATH_MAX], pid[32];
	struct datadir first, second;
	struct problem p = { 0 };
	struct stat st;

	path_join(path, w->dir, "fresh");
	assert_int_equal(datadir_lock(&first, path, &p), LAPSE_OK);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(datadir_lock(&second, path, &p), LAPSE_EBUSY);
	snprintf(pid, sizeof(pid), "process %ld:", (long)getpid());
	assert_non_null(strstr(p.message, pid));
	assert_non_null(strstr(p.message, "fresh"));
	datadir_unlock(&first);
	datadir_unlock(&first); /* harmless */
	assert_int_equal(datadir_lock(&second, path, &p), LAPSE_OK);
	datadir_unlock(&second);
}

static void a_file_is_no_directory(void **state)
{
	struct world *w = *state;
	struct problem p = { 0 };
	char path[TEMP_PATH_MAX];
	struct datadir d;

	path_join(path, w->dir, "file");
	file_write(path, "");
	assert_int_equal(datadir_lock(&d, path, &p), LAPSE_EIO);
	assert_string_equal(p.field, "data_dir");
	path_join(path, w->dir, "no/such/parent");
	assert_int_equal(datadir_lock(&d, path, &p), LAPSE_EIO);
	assert_string_equal(p.field, "data_dir");
}

static void a_second_engine_is_refused(void **state)
{
	struct world *w = *state;
	struct engine_config config = { .settings = &w->settings,
					.clock = &w->time.clock,
					.log = &w->log,
					.bounds = ROOM_BOUNDS,
					.schedulers = ROOM_SCHEDULERS,
					.cleanups = ROOM_CLEANUPS,
					.rooms = ROOMS };
	struct problem p = { 0 };
	struct engine second;

	assert_int_equal(engine_open(&second, &config, &p), LAPSE_EBUSY);
	send_message(w, "o", "a"); /* the first one goes on */
	world_close(w);
	assert_int_equal(engine_open(&second, &config, &p), LAPSE_OK);
	engine_close(&second);
}

static void long_paths_do_not_fit(void **state)
{
	char longest[DATADIR_PATH_MAX], out[DATADIR_PATH_MAX];

	(void)state;
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(datadir_file(longest, "a", out), LAPSE_EINVAL);
	longest[DATADIR_PATH_MAX - 3] = '\0'; /* with "/a" and the NUL it just fits */
	assert_int_equal(datadir_file(longest, "a", out), LAPSE_OK);
	assert_int_equal(strlen(out), DATADIR_PATH_MAX - 1);
}

/* Backups */

static struct backup make_backup(struct world *w)
{
	struct problem p = { 0 };
	struct backup b;

	if (store_backup(w->engine.store, &w->time.clock, &b, &p) < 0)
		fail_msg("%s", p.message);
	return b;
}

static void a_backup_is_whole(void **state)
{
	struct world *w = *state;
	char path[TEMP_PATH_MAX], dir[TEMP_PATH_MAX];
	struct stat st;

	int64_t id = send_message(w, "o", "a");
	struct backup b = make_backup(w);
	send_message(w, "o", "later");
	path_join(path, w->dir, b.name);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, b.bytes);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(b.created_at, NOW);
	assert_int_equal(strncmp(b.name, "backups/lapse-", 14), 0);
	path_join(dir, w->dir, DATADIR_BACKUPS);
	assert_int_equal(files_with(dir, ".part"), 0);
	assert_int_equal(files_with(dir, "lapse-"), 1);
	sqlite3_close(w->side);
	assert_int_equal(sqlite3_open(path, &w->side), SQLITE_OK);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages"), 1);
	assert_true(message_exists(w, id));
}

struct names {
	int n;
	char name[16][64];
};

static void note_name(void *arg, const char *name)
{
	struct names *names = arg;

	snprintf(names->name[names->n++], sizeof(names->name[0]), "%.63s", name);
}

static void the_oldest_backups_are_surplus(void **state)
{
	struct world *w = *state;
	struct backup made[4];
	char other[TEMP_PATH_MAX];

	for (int i = 0; i < 4; i++) {
		made[i] = make_backup(w);
		fake_clock_advance(&w->time, 1);
	}
	path_join(other, w->dir, "backups/not-a-backup.db");
	file_write(other, "");
	for (int keep = 1; keep <= 6; keep++) {
		struct names names = { 0 };
		assert_int_equal(backup_surplus(w->dir, keep, note_name, &names), LAPSE_OK);
		assert_int_equal(names.n, keep < 4 ? 4 - keep : 0);
		for (int i = 0; i < names.n; i++)
			assert_string_equal(names.name[i], made[i].name);
	}
}

static void two_backups_of_one_moment_are_two(void **state)
{
	struct world *w = *state;
	struct backup a = make_backup(w), b = make_backup(w);

	assert_string_not_equal(a.name, b.name);
}

/* Restoring */

static void a_restore_brings_the_old_state_back(void **state)
{
	struct world *w = *state;
	char path[TEMP_PATH_MAX], kept[TEMP_PATH_MAX];
	struct problem p = { 0 };

	int64_t old = send_message(w, "o", "a");
	struct backup b = make_backup(w);
	int64_t newer = send_message(w, "o", "a");
	path_join(path, w->dir, b.name);
	world_close(w);
	assert_int_equal(store_restore(w->dir, path, kept, sizeof(kept), &p), LAPSE_OK);
	assert_int_equal(access(kept, F_OK), 0);
	world_open(w);
	assert_true(message_exists(w, old));
	assert_false(message_exists(w, newer));
	assert_true(w->engine.restored_at > 0);
	world_check_counters(w);
	sqlite3_close(w->side);
	assert_int_equal(sqlite3_open(kept, &w->side), SQLITE_OK);
	assert_true(message_exists(w, newer));
	assert_int_equal(side_int(w, "SELECT count(*) FROM meta WHERE key = 'restored_at'"), 0);
}

/* The last writes of a daemon that was killed are in the log, which is kept with its database. */
static void a_restore_keeps_the_old_log_too(void **state)
{
	struct world *w = *state;
	char from[TEMP_PATH_MAX], path[TEMP_PATH_MAX], kept[TEMP_PATH_MAX];
	struct problem p = { 0 };
	sqlite3 *pin;

	struct backup b = make_backup(w);
	int64_t id = send_message(w, "o", "a");
	path_join(from, w->dir, DATADIR_DATABASE);
	assert_int_equal(sqlite3_open(from, &pin), SQLITE_OK); /* so that closing leaves the log */
	assert_int_equal(sqlite3_exec(pin, "BEGIN; SELECT * FROM meta", NULL, NULL, NULL),
			 SQLITE_OK);
	world_close(w);
	path_join(path, w->dir, b.name);
	assert_int_equal(store_restore(w->dir, path, kept, sizeof(kept), &p), LAPSE_OK);
	sqlite3_close(pin);
	world_open(w);
	assert_false(message_exists(w, id));
	sqlite3_close(w->side);
	assert_int_equal(sqlite3_open(kept, &w->side), SQLITE_OK);
	assert_true(message_exists(w, id));
}

static void a_restore_into_nothing_keeps_nothing(void **state)
{
	struct world *w = *state;
	char path[TEMP_PATH_MAX], fresh[TEMP_PATH_MAX], kept[TEMP_PATH_MAX] = "unset";
	struct problem p = { 0 };

	int64_t id = send_message(w, "o", "a");
	struct backup b = make_backup(w);
	path_join(path, w->dir, b.name);
	path_join(fresh, w->dir, "fresh");
	assert_int_equal(store_restore(fresh, path, kept, sizeof(kept), &p), LAPSE_OK);
	assert_string_equal(kept, "");
	sqlite3_close(w->side);
	path_join(path, fresh, DATADIR_DATABASE);
	assert_int_equal(sqlite3_open(path, &w->side), SQLITE_OK);
	assert_true(message_exists(w, id));
}

/* What a restore must refuse, each leaving the database where and as it was. */

static void spoil_nothing(struct world *w, const char *file)
{
	(void)w;
	remove(file);
}

static void spoil_with_text(struct world *w, const char *file)
{
	struct buf CLEANUP(buf_done) text = { 0 };

	(void)w;
	for (int i = 0; i < 1000; i++)
		buf_puts(&text, "no database ");
	file_write(file, buf_text(&text));
}

static void spoil_empty(struct world *w, const char *file)
{
	(void)w;
	file_write(file, "");
}

static void spoil_pages(struct world *w, const char *file)
{
	FILE *f = fopen(file, "r+e");

	(void)w;
	assert_non_null(f);
	fseek(f, 4096 * 2, SEEK_SET);
	for (int i = 0; i < 4096 * 4; i++)
		fputc(0x5a, f);
	assert_int_equal(fclose(f), 0);
}

static void run_in(const char *file, const char *sql)
{
	sqlite3 *s;

	assert_int_equal(sqlite3_open(file, &s), SQLITE_OK);
	assert_int_equal(sqlite3_exec(s, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(s);
}

static void spoil_version(struct world *w, const char *file)
{
	(void)w;
	run_in(file, "UPDATE meta SET value = 4711 WHERE key = 'schema_version'");
}

static void spoil_stranger(struct world *w, const char *file)
{
	(void)w;
	remove(file);
	run_in(file, "CREATE TABLE mine (x); INSERT INTO mine VALUES (1)");
}

static void check_refused(struct world *w, void (*spoil)(struct world *, const char *), int want,
			  int other)
{
	char path[TEMP_PATH_MAX], kept[TEMP_PATH_MAX] = "unset";
	struct problem p = { 0 };

	int64_t id = send_message(w, "o", "a");
	struct backup b = make_backup(w);
	path_join(path, w->dir, b.name);
	spoil(w, path);
	world_close(w);
	int r = store_restore(w->dir, path, kept, sizeof(kept), &p);
	if (r != want && r != other)
		fail_msg("%d (%s), not %d", r, p.message, want);
	assert_true(problem_text(&p, r)[0]);
	assert_string_equal(kept, "unset");
	assert_int_equal(files_with(w->dir, "restore"), 0);
	world_open(w);
	assert_true(message_exists(w, id));
	assert_int_equal(w->engine.restored_at, 0);
}

static void refuses_a_missing_file(void **state)
{
	check_refused(*state, spoil_nothing, LAPSE_ENOTFOUND, LAPSE_ENOTFOUND);
}

static void refuses_a_text(void **state)
{
	check_refused(*state, spoil_with_text, LAPSE_EINVAL, LAPSE_ECORRUPT);
}

static void refuses_an_empty_file(void **state)
{
	check_refused(*state, spoil_empty, LAPSE_EINVAL, LAPSE_EINVAL);
}

static void refuses_a_damaged_file(void **state)
{
	check_refused(*state, spoil_pages, LAPSE_ECORRUPT, LAPSE_EINVAL);
}

static void refuses_a_newer_version(void **state)
{
	check_refused(*state, spoil_version, LAPSE_EVERSION, LAPSE_EVERSION);
}

static void refuses_somebody_elses_database(void **state)
{
	check_refused(*state, spoil_stranger, LAPSE_EINVAL, LAPSE_EINVAL);
}

static void refuses_while_in_use(void **state)
{
	struct world *w = *state;
	char path[TEMP_PATH_MAX], kept[TEMP_PATH_MAX] = "unset";
	struct problem p = { 0 };

	struct backup b = make_backup(w);
	int64_t id = send_message(w, "o", "a");
	path_join(path, w->dir, b.name);
	assert_int_equal(store_restore(w->dir, path, kept, sizeof(kept), &p), LAPSE_EBUSY);
	assert_true(message_exists(w, id));
	assert_int_equal(files_with(w->dir, "restore"), 0);
	send_message(w, "o", "a");
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(the_lock_is_for_one),
		WORLD_TEST(a_file_is_no_directory),
		WORLD_TEST(a_second_engine_is_refused),
		cmocka_unit_test(long_paths_do_not_fit),
		WORLD_TEST(a_backup_is_whole),
		WORLD_TEST(the_oldest_backups_are_surplus),
		WORLD_TEST(two_backups_of_one_moment_are_two),
		WORLD_TEST(a_restore_brings_the_old_state_back),
		WORLD_TEST(a_restore_keeps_the_old_log_too),
		WORLD_TEST(a_restore_into_nothing_keeps_nothing),
		WORLD_TEST(refuses_a_missing_file),
		WORLD_TEST(refuses_a_text),
		WORLD_TEST(refuses_an_empty_file),
		WORLD_TEST(refuses_a_damaged_file),
		WORLD_TEST(refuses_a_newer_version),
		WORLD_TEST(refuses_somebody_elses_database),
		WORLD_TEST(refuses_while_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
