/* SPDX-License-Identifier: Apache-2.0 */
/* Settings files. One that is taken leaves every number inside its range. */
#include <assert.h>
#include <stdio.h>
#include <unistd.h>

#include "base/settings.h"
#include "fuzz.h"

static void check_ranges(const struct settings *s)
{
	for (size_t i = 0; i < SETTINGS_COUNT; i++) {
		const struct setting *row = &SETTINGS_TABLE[i];
		if (row->kind != SETTING_INT)
			continue;
		int64_t n = *settings_int(s, row->name);
		assert((n >= row->min && n <= row->max) || (row->takes_infinity && n == INT64_MAX));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	struct problem p = { 0 };
	struct settings s;

	snprintf(path, sizeof(path), "/dev/shm/fuzz_settings.%d", (int)getpid());
	FILE *f = fopen(path, "wb");
	assert(f && fwrite(data, 1, size, f) == size);
	assert(fclose(f) == 0);
	settings_init(&s);
	if (settings_read_file(&s, path, &p) < 0)
		assert(p.message[0]);
	else
		check_ranges(&s);
	settings_done(&s);
	unlink(path);
	return 0;
}
