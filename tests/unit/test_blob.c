/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs: written, copied, named, discarded. */
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "store/blob.h"
#include "unit.h"

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define LARGE ((size_t)(5 << 20) + 12345) /* several pieces of a copy, and a rest */

static int setup(void **state)
{
	static char dir[TEMP_PATH_MAX];
	struct problem p;

	temp_dir_make(dir);
	*state = dir;
	return blob_prepare(dir, &p);
}

static int teardown(void **state)
{
	temp_dir_remove(*state);
	return 0;
}

static void assert_file(const char *dir, const struct blob *b, bool there)
{
	int64_t size = -1;
	int r = blob_stat(dir, b->checksum, b->id, &size);

	assert_int_equal(r, there ? LAPSE_OK : LAPSE_ENOTFOUND);
	if (there)
		assert_int_equal(size, b->size);
}

static void what_is_written_is_hashed_and_named(void **state)
{
	struct problem p;
	struct blob b;
	char path[BLOB_PATH_MAX], bytes[4] = { 0 };
	int fd = -1;

	blob_init(&b, *state, 7, 100, true);
	assert_int_equal(blob_write(&b, "a", 1, &p), LAPSE_OK);
	assert_int_equal(blob_write(&b, "bc", 2, &p), LAPSE_OK);
	assert_int_equal(blob_finish(&b, &p), LAPSE_OK);
	assert_string_equal(b.checksum, ABC);
	assert_int_equal(b.size, 3);
	blob_path(b.checksum, b.id, path);
	assert_string_equal(path, "files/ba/" ABC "-0000000000000007");
	b.kept = true;
	blob_discard(&b);
	assert_int_equal(blob_open(*state, ABC, 7, &fd, &p), LAPSE_OK);
	assert_int_equal(read(fd, bytes, 4), 3);
	assert_memory_equal(bytes, "abc", 3);
	close(fd);
}

static void what_nobody_keeps_goes(void **state)
{
	struct problem p;
	struct blob b, copy;

	blob_init(&b, *state, 8, 100, true);
	assert_int_equal(blob_write(&b, "abc", 3, &p), LAPSE_OK);
	assert_int_equal(blob_finish(&b, &p), LAPSE_OK);
	copy = b;
	assert_file(*state, &copy, true);
	blob_discard(&b);
	assert_file(*state, &copy, false);
	blob_discard(&b); /* again is harmless */
}

static void the_same_bytes_twice_are_two_files(void **state)
{
	struct problem p;
	struct blob a, b, second;

	blob_init(&a, *state, 1, 100, true);
	blob_init(&b, *state, 2, 100, true);
	blob_write(&a, "abc", 3, &p);
	blob_write(&b, "abc", 3, &p);
	assert_int_equal(blob_finish(&a, &p), LAPSE_OK);
	assert_int_equal(blob_finish(&b, &p), LAPSE_OK);
	second = b;
	blob_discard(&a);
	assert_file(*state, &second, true);
	blob_discard(&b);
}

static void too_much_is_refused(void **state)
{
	struct problem p;
	struct blob b;

	blob_init(&b, *state, 1, 3, true);
	assert_int_equal(blob_write(&b, "abc", 3, &p), LAPSE_OK);
	assert_int_equal(blob_write(&b, "d", 1, &p), LAPSE_ETOOLARGE);
	blob_discard(&b);
}

static char *make_source(const char *dir, char path[TEMP_PATH_MAX], size_t n)
{
	char *bytes = mem_alloc(n);

	path_join(path, dir, "source");
	random_bytes(bytes, n < 4096 ? n : 4096);
	for (size_t i = 4096; i < n; i++)
		bytes[i] = (char)(bytes[i - 4096] + 1);
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	close(fd);
	return bytes;
}

static void check_copy(const char *dir, size_t n)
{
	char path[TEMP_PATH_MAX], checksum[65];
	unsigned char digest[32];
	struct problem p = { 0 };
	struct blob b;
	char *bytes = make_source(dir, path, n);
	int fd = open(path, O_RDONLY);

	blob_init(&b, dir, 9, (int64_t)LARGE, true);
	assert_int_equal(blob_copy(&b, fd, &p), LAPSE_OK);
	assert_int_equal(blob_finish(&b, &p), LAPSE_OK);
	hex_encode(SHA256((unsigned char *)bytes, n, digest), 32, checksum);
	assert_string_equal(b.checksum, checksum);
	assert_int_equal(b.size, n);
	char *back = mem_alloc(n + 1);
	assert_int_equal(pread(b.fd, back, n + 1, 0), (ssize_t)n);
	assert_memory_equal(back, bytes, n);
	free(back);
	free(bytes);
	close(fd);
	blob_discard(&b);
}

static void copies_of_all_sizes(void **state)
{
	static const size_t sizes[] = {
		0, 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 4 << 20, (4 << 20) + 1, LARGE
	};

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		check_copy(*state, sizes[i]);
}

static void a_copy_too_large_is_refused(void **state)
{
	char path[TEMP_PATH_MAX];
	struct problem p;
	struct blob b;

	free(make_source(*state, path, 100));
	int fd = open(path, O_RDONLY);
	blob_init(&b, *state, 1, 99, true);
	assert_int_equal(blob_copy(&b, fd, &p), LAPSE_ETOOLARGE);
	assert_string_equal(p.field, "path");
	blob_discard(&b);
	close(fd);
}

static void names_are_read_back(void **state)
{
	char checksum[BLOB_CHECKSUM_LEN + 1];
	int64_t id = 0;

	(void)state;
	assert_true(blob_parse_name(ABC "-00000000000000ff", checksum, &id));
	assert_string_equal(checksum, ABC);
	assert_int_equal(id, 255);
	assert_false(blob_parse_name(ABC, checksum, &id));
	assert_false(blob_parse_name(ABC "-", checksum, &id));
	assert_false(blob_parse_name(ABC "_00000000000000ff", checksum, &id));
	assert_false(blob_parse_name(ABC "-00000000000000fg", checksum, &id));
	assert_false(blob_parse_name("X" ABC "-00000000000000f", checksum, &id));
	assert_false(blob_parse_name("..", checksum, &id));
}

static void keep_empty(const char *dir, char path[TEMP_PATH_MAX], struct blob *b)
{
	char name[BLOB_PATH_MAX];
	struct problem p;

	blob_init(b, dir, 7, 100, true);
	assert_int_equal(blob_finish(b, &p), LAPSE_OK);
	b->kept = true;
	blob_path(b->checksum, b->id, name);
	path_join(path, dir, name);
	assert_int_equal(unlink(path), 0);
}

static void assert_none(const char *dir, const struct blob *b)
{
	int64_t size = 0;
	struct problem p;
	int fd = -1;

	assert_int_equal(blob_stat(dir, b->checksum, b->id, &size), LAPSE_ENOTFOUND);
	assert_int_equal(blob_open(dir, b->checksum, b->id, &fd, &p), LAPSE_ENOTFOUND);
}

/* A pipe would be waited for, a symlink leads out, a directory has a length, too. */
static void only_a_regular_file_is_one(void **state)
{
	char path[TEMP_PATH_MAX], other[TEMP_PATH_MAX];
	struct blob b;

	keep_empty(*state, path, &b);
	path_join(other, *state, "other");
	file_write(other, "");
	assert_int_equal(symlink(other, path), 0);
	assert_none(*state, &b);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_none(*state, &b);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_none(*state, &b);
	blob_discard(&b);
}

static void a_directory_somebody_removed_is_made_again(void **state)
{
	char path[TEMP_PATH_MAX];
	struct problem p;
	struct blob b;

	path_join(path, *state, "files/ba");
	rmdir(path);
	path_join(path, *state, "files");
	temp_dir_remove(path);
	blob_init(&b, *state, 1, 100, true);
	assert_int_equal(blob_write(&b, "abc", 3, &p), LAPSE_OK);
	assert_int_equal(blob_finish(&b, &p), LAPSE_OK);
	blob_discard(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_hashed_and_named),
		cmocka_unit_test(what_nobody_keeps_goes),
		cmocka_unit_test(the_same_bytes_twice_are_two_files),
		cmocka_unit_test(too_much_is_refused),
		cmocka_unit_test(copies_of_all_sizes),
		cmocka_unit_test(a_copy_too_large_is_refused),
		cmocka_unit_test(names_are_read_back),
		cmocka_unit_test(only_a_regular_file_is_one),
		cmocka_unit_test(a_directory_somebody_removed_is_made_again),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
