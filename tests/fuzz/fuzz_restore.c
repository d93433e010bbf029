/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restoring a mutated backup. The input is a list of changes to a good database of this very
 * version, which the target makes at its start: four bytes of position, one of value. It must be
 * refused, or be a database that an engine can open.
 */
#include <assert.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "fuzz.h"
#include "store/db.h"
#include "store/migrate.h"
#include "store/restore.h"

#define CHANGE_BYTES 5
#define CHANGES_MAX 64

static struct {
	char dir[64], good[96], bad[96], data[96];
	uint8_t *bytes;
	size_t size;
} world;

static void read_good(void)
{
	FILE *f = fopen(world.good, "rb");
	struct stat st;

	assert(f && fstat(fileno(f), &st) == 0 && st.st_size > 0);
	world.size = (size_t)st.st_size;
	world.bytes = malloc(world.size);
	assert(world.bytes && fread(world.bytes, 1, world.size, f) == world.size);
	fclose(f);
}

static void world_init(void)
{
	struct db_config config = { .path = world.good, .clock = &CLOCK_SYSTEM };
	struct problem p = { 0 };
	struct db *db = NULL;

	snprintf(world.dir, sizeof(world.dir), "/dev/shm/fuzz_restore.XXXXXX");
	assert(mkdtemp(world.dir));
	snprintf(world.good, sizeof(world.good), "%s/good.db", world.dir);
	snprintf(world.bad, sizeof(world.bad), "%s/bad.db", world.dir);
	snprintf(world.data, sizeof(world.data), "%s/data", world.dir);
	db_process_init();
	assert(db_open(&config, &db, &p) == LAPSE_OK);
	assert(migrate(db, &p) == LAPSE_OK);
	db_close(db);
	read_good();
}

static void write_bad(const uint8_t *data, size_t size)
{
	uint8_t *bytes = malloc(world.size);
	FILE *f = fopen(world.bad, "wb");

	assert(bytes && f);
	memcpy(bytes, world.bytes, world.size);
	for (size_t i = 0; i + CHANGE_BYTES <= size && i < CHANGE_BYTES * CHANGES_MAX;
	     i += CHANGE_BYTES) {
		uint32_t at;
		memcpy(&at, data + i, sizeof(at));
		bytes[at % world.size] = data[i + 4];
	}
	assert(fwrite(bytes, 1, world.size, f) == world.size);
	fclose(f);
	free(bytes);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

static void remove_data(void)
{
	assert(access(world.data, F_OK) < 0 ||
	       nftw(world.data, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char kept[512];
	struct problem p = { 0 };

	if (!world.bytes)
		world_init();
	write_bad(data, size);
	remove_data();
	if (store_restore(world.data, world.bad, kept, sizeof(kept), &p) < 0)
		assert(p.message[0]);
	return 0;
}
