/* SPDX-License-Identifier: Apache-2.0 */
#include "message/known.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/mem.h"

#define PLACES 65536 /* half a megabyte, once messages are sent */

void known_done(struct known *k)
{
	free(k->names);
	k->names = NULL;
}

uint64_t known_name(const char *owner, const char *agent)
{
	uint64_t name =
		XXH3_64bits_withSeed(agent, strlen(agent), XXH3_64bits(owner, strlen(owner)));

	return name ? name : 1;
}

static uint64_t *place_of(const struct known *k, uint64_t name)
{
	assert(k->names && name != 0);
	return &k->names[name % PLACES];
}

bool known_has(const struct known *k, uint64_t name)
{
	return k->names && *place_of(k, name) == name;
}

void known_add(struct known *k, uint64_t name)
{
	if (!k->names)
		k->names = mem_zalloc(PLACES, sizeof(*k->names));
	*place_of(k, name) = name;
}

void known_drop(struct known *k, uint64_t name)
{
	if (known_has(k, name))
		*place_of(k, name) = 0;
}
