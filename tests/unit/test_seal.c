/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed secrets: they open with the same key and context only, and the key's file is private. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/seal.h"
#include "base/secret.h"
#include "unit.h"

#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

struct desk {
	char dir[TEMP_PATH_MAX], path[TEMP_PATH_MAX];
	struct seal seal;
	struct problem problem;
};

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	temp_dir_make(d->dir);
	path_join(d->path, d->dir, SEAL_KEY_NAME);
	*state = d;
	return seal_load(&d->seal, d->path, true, &d->problem);
}

static int teardown(void **state)
{
	struct desk *d = *state;

	seal_done(&d->seal);
	temp_dir_remove(d->dir);
	free(d);
	return 0;
}

static void opens_what_it_closed(void **state)
{
	struct desk *d = *state;
	char long_one[4000];
	const char *const secrets[] = { "", "x", "5d1f8a", "pässwörd with spaces", long_one };

	memset(long_one, 'a', sizeof(long_one) - 1);
	long_one[sizeof(long_one) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
		struct buf CLEANUP(buf_done) sealed = { 0 };
		struct buf CLEANUP(secret_wipe) opened = { 0 };
		buf_puts(&sealed, "kept");
		assert_int_equal(seal_close(&d->seal, "mbx_1", secrets[i], &sealed), LAPSE_OK);
		assert_memory_equal(sealed.data, "keptv1:", 7);
		if (secrets[i][0] && strlen(secrets[i]) > 3)
			assert_null(strstr(sealed.data, secrets[i]));
		assert_int_equal(seal_open(&d->seal, "mbx_1", sealed.data + 4, &opened), LAPSE_OK);
		assert_string_equal(buf_text(&opened), secrets[i]);
	}
}

static void the_same_secret_never_looks_the_same(void **state)
{
	struct desk *d = *state;
	struct buf CLEANUP(buf_done) a = { 0 }, CLEANUP(buf_done) b = { 0 };

	seal_close(&d->seal, "c", "secret", &a);
	seal_close(&d->seal, "c", "secret", &b);
	assert_string_not_equal(a.data, b.data);
}

static void another_key_or_context_opens_nothing(void **state)
{
	struct desk *d = *state;
	struct buf CLEANUP(buf_done) sealed = { 0 }, CLEANUP(buf_done) out = { 0 };
	struct seal other = d->seal;

	other.key[31] ^= 1;
	seal_close(&d->seal, "mbx_1", "secret", &sealed);
	assert_int_equal(seal_open(&other, "mbx_1", sealed.data, &out), LAPSE_ECORRUPT);
	assert_int_equal(seal_open(&d->seal, "mbx_2", sealed.data, &out), LAPSE_ECORRUPT);
	assert_int_equal(seal_open(&d->seal, "", sealed.data, &out), LAPSE_ECORRUPT);
	assert_int_equal(seal_open(&d->seal, "mbx_1x", sealed.data, &out), LAPSE_ECORRUPT);
	assert_int_equal(out.len, 0);
	assert_int_equal(seal_open(&d->seal, "mbx_1", sealed.data, &out), LAPSE_OK);
}

/* Every character of the sealed text replaced by each other one it could be, and every prefix. */
static void any_damage_is_noticed(void **state)
{
	struct desk *d = *state;
	struct buf CLEANUP(buf_done) sealed = { 0 }, CLEANUP(buf_done) out = { 0 };

	seal_close(&d->seal, "c", "secret", &sealed);
	for (size_t i = 0; i < sealed.len; i++) {
		const char was = sealed.data[i];
		for (const char *c = "0123456789abcdefvx:AF \xff"; *c; c++) {
			sealed.data[i] = *c;
			if (*c != was &&
			    seal_open(&d->seal, "c", sealed.data, &out) != LAPSE_ECORRUPT)
				fail_msg("byte %zu as '%c' was taken", i, *c);
		}
		sealed.data[i] = '\0';
		assert_int_equal(seal_open(&d->seal, "c", sealed.data, &out), LAPSE_ECORRUPT);
		sealed.data[i] = was;
	}
	buf_puts(&sealed, "00");
	assert_int_equal(seal_open(&d->seal, "c", sealed.data, &out), LAPSE_ECORRUPT);
	assert_int_equal(out.len, 0);
}

static void refuses_what_is_too_large(void **state)
{
	struct desk *d = *state;
	char *CLEANUP(mem_freep) big = mem_zalloc(70000, 1);
	struct buf CLEANUP(buf_done) out = { 0 };

	memset(big, 'a', 69999);
	assert_int_equal(seal_close(&d->seal, "c", big, &out), LAPSE_ETOOLARGE);
	memcpy(big, "v1:", 3);
	assert_int_equal(seal_open(&d->seal, "c", big, &out), LAPSE_ECORRUPT);
}

/* The file */

static void the_key_is_made_once_and_private(void **state)
{
	struct desk *d = *state;
	struct seal again;
	struct stat st;
	char *CLEANUP(mem_freep) text = file_read(d->path);

	assert_int_equal(strlen(text), 65);
	assert_int_equal(stat(d->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(seal_load(&again, d->path, true, &d->problem), LAPSE_OK);
	assert_memory_equal(again.key, d->seal.key, SEAL_KEY_BYTES);
}

static void a_missing_key_is_made_only_when_told(void **state)
{
	struct desk *d = *state;
	struct seal s;

	unlink(d->path);
	assert_int_equal(seal_load(&s, d->path, false, &d->problem), LAPSE_ENOTFOUND);
	assert_int_equal(access(d->path, F_OK), -1);
	assert_int_equal(seal_load(&s, d->path, true, &d->problem), LAPSE_OK);
	assert_memory_not_equal(s.key, d->seal.key, SEAL_KEY_BYTES);
}

static void *load_at_once(void *arg)
{
	struct desk *d = arg;
	struct seal *s = mem_zalloc(1, sizeof(*s));
	struct problem p = { 0 };

	if (seal_load(s, d->path, true, &p) < 0) {
		free(s);
		return NULL;
	}
	return s;
}

static void two_that_start_get_one_key(void **state)
{
	struct desk *d = *state;

	for (int round = 0; round < 20; round++) {
		pthread_t threads[4];
		struct seal *seals[4];
		unlink(d->path);
		for (size_t i = 0; i < ARRAY_LEN(threads); i++)
			pthread_create(&threads[i], NULL, load_at_once, d);
		for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
			pthread_join(threads[i], (void **)&seals[i]);
			assert_non_null(seals[i]);
			assert_memory_equal(seals[i]->key, seals[0]->key, SEAL_KEY_BYTES);
		}
		for (size_t i = 0; i < ARRAY_LEN(threads); i++)
			free(seals[i]);
	}
}

static void an_open_file_is_refused(void **state)
{
	struct desk *d = *state;
	static const mode_t bad[] = { 0644, 0640, 0604, 0620, 0601, 0660 };
	struct seal s;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		chmod(d->path, bad[i]);
		if (seal_load(&s, d->path, true, &d->problem) != LAPSE_EFORBIDDEN)
			fail_msg("%o was taken", (unsigned)bad[i]);
		assert_non_null(strstr(d->problem.message, "chmod 600"));
	}
	chmod(d->path, 0400);
	assert_int_equal(seal_load(&s, d->path, true, &d->problem), LAPSE_OK);
}

static void what_is_no_file_is_refused(void **state)
{
	struct desk *d = *state;
	char other[TEMP_PATH_MAX];
	struct seal s;

	path_join(other, d->dir, "other");
	rename(d->path, other);
	assert_int_equal(symlink(other, d->path), 0);
	assert_int_equal(seal_load(&s, d->path, true, &d->problem), LAPSE_EFORBIDDEN);
	assert_non_null(strstr(d->problem.message, "symbolic link"));
	unlink(d->path);
	assert_int_equal(symlink("nowhere", d->path), 0);
	assert_int_equal(seal_load(&s, d->path, true, &d->problem), LAPSE_EFORBIDDEN);
	unlink(d->path);
	assert_int_equal(mkdir(d->path, 0700), 0);
	assert_int_equal(seal_load(&s, d->path, true, &d->problem), LAPSE_EFORBIDDEN);
	rmdir(d->path);
	assert_int_equal(mkfifo(d->path, 0600), 0);
	assert_int_equal(seal_load(&s, d->path, true, &d->problem), LAPSE_EFORBIDDEN);
	unlink(d->path);
	path_join(other, d->dir, "no/such/directory");
	assert_int_equal(seal_load(&s, other, true, &d->problem), LAPSE_EIO);
}

static void what_is_no_key_is_refused(void **state)
{
	struct desk *d = *state;
	static const char *const bad[] = {
		"",          "\n",
		"secret",    "0011",
		KEY "00",    KEY "\n\n",
		KEY "\nx",   " " KEY,
		KEY " ",     "zz112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
		"x" KEY "x",
	};
	struct seal s = { .key = "untouched" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		file_write(d->path, bad[i]);
		chmod(d->path, 0600);
		if (seal_load(&s, d->path, true, &d->problem) != LAPSE_ECORRUPT)
			fail_msg("'%s' was taken", bad[i]);
		assert_null(strstr(d->problem.message, "0011"));
	}
	assert_string_equal((char *)s.key, "untouched");
	file_write(d->path, KEY);
	assert_int_equal(seal_load(&s, d->path, true, &d->problem), LAPSE_OK);
	assert_int_equal(s.key[1], 0x11);
}

static void the_service_managers_key_comes_first(void **state)
{
	struct desk *d = *state;
	char dir[TEMP_PATH_MAX], path[TEMP_PATH_MAX];
	struct seal s;

	path_join(dir, d->dir, "credentials");
	mkdir(dir, 0700);
	path_join(path, dir, SEAL_KEY_NAME);
	assert_int_equal(seal_find(&s, d->dir, dir, false, &d->problem), LAPSE_OK);
	assert_memory_equal(s.key, d->seal.key, SEAL_KEY_BYTES);
	file_write(path, KEY);
	chmod(path, 0400);
	assert_int_equal(seal_find(&s, d->dir, dir, false, &d->problem), LAPSE_OK);
	assert_int_equal(s.key[1], 0x11);
	file_write(path, "broken");
	assert_int_equal(seal_find(&s, d->dir, dir, true, &d->problem), LAPSE_ECORRUPT);
	unlink(d->path);
	assert_int_equal(seal_find(&s, d->dir, NULL, false, &d->problem), LAPSE_ENOTFOUND);
	assert_int_equal(seal_find(&s, d->dir, "", true, &d->problem), LAPSE_OK);
	assert_int_equal(access(d->path, F_OK), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(opens_what_it_closed),
		TEST(the_same_secret_never_looks_the_same),
		TEST(another_key_or_context_opens_nothing),
		TEST(any_damage_is_noticed),
		TEST(refuses_what_is_too_large),
		TEST(the_key_is_made_once_and_private),
		TEST(a_missing_key_is_made_only_when_told),
		TEST(two_that_start_get_one_key),
		TEST(an_open_file_is_refused),
		TEST(what_is_no_file_is_refused),
		TEST(what_is_no_key_is_refused),
		TEST(the_service_managers_key_comes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
