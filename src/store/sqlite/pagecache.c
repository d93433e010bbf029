/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/pagecache.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>

#define PAGECACHE_MAGIC 0x4c505043u

/* All pages have keys up to `max`, but for the one whose key is `parked`. */
struct pagecache {
	uint32_t magic;
	unsigned max, parked; /* 0 = none */
	sqlite3_pcache *real;
};

static sqlite3_pcache_methods2 real;

static struct pagecache *cache_of(sqlite3_pcache *cache)
{
	struct pagecache *c = (struct pagecache *)cache;

	assert(c->magic == PAGECACHE_MAGIC);
	return c;
}

static sqlite3_pcache *pagecache_create(int page_bytes, int extra_bytes, int purgeable)
{
	struct pagecache *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->real = real.xCreate(page_bytes, extra_bytes, purgeable);
	if (!c->real) {
		free(c);
		return NULL;
	}
	c->magic = PAGECACHE_MAGIC;
	return (sqlite3_pcache *)c;
}

static void pagecache_destroy(sqlite3_pcache *cache)
{
	struct pagecache *c = cache_of(cache);

	real.xDestroy(c->real);
	c->magic = 0;
	free(c);
}

static void pagecache_size(sqlite3_pcache *cache, int pages)
{
	real.xCachesize(cache_of(cache)->real, pages);
}

static int pagecache_count(sqlite3_pcache *cache)
{
	return real.xPagecount(cache_of(cache)->real);
}

static sqlite3_pcache_page *pagecache_fetch(sqlite3_pcache *cache, unsigned key, int create)
{
	struct pagecache *c = cache_of(cache);
	sqlite3_pcache_page *page = real.xFetch(c->real, key, create);

	if (page && key > c->max && key != c->parked)
		c->max = key;
	return page;
}

static void pagecache_unpin(sqlite3_pcache *cache, sqlite3_pcache_page *page, int discard)
{
	real.xUnpin(cache_of(cache)->real, page, discard);
}

static void pagecache_rekey(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned old_key,
			    unsigned new_key)
{
	struct pagecache *c = cache_of(cache);

	real.xRekey(c->real, page, old_key, new_key);
	if (old_key == c->parked)
		c->parked = 0;
	if (new_key <= c->max)
		return;
	if (c->parked)
		c->max = new_key;
	else
		c->parked = new_key;
}

static void pagecache_truncate(sqlite3_pcache *cache, unsigned limit)
{
	struct pagecache *c = cache_of(cache);

	if (limit > c->max && !c->parked)
		return;
	real.xTruncate(c->real, limit);
	c->max = limit > 0 && limit <= c->max ? limit - 1 : c->max;
	c->parked = c->parked < limit ? c->parked : 0;
}

static void pagecache_shrink(sqlite3_pcache *cache)
{
	real.xShrink(cache_of(cache)->real);
}

void pagecache_install(void)
{
	if (sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &real) != SQLITE_OK || real.iVersion < 1)
		return;
	sqlite3_pcache_methods2 ours = real; /* the beginning and the end are SQLite's */
	ours.iVersion = 1;
	ours.xCreate = pagecache_create;
	ours.xCachesize = pagecache_size;
	ours.xPagecount = pagecache_count;
	ours.xFetch = pagecache_fetch;
	ours.xUnpin = pagecache_unpin;
	ours.xRekey = pagecache_rekey;
	ours.xTruncate = pagecache_truncate;
	ours.xDestroy = pagecache_destroy;
	ours.xShrink = pagecache_shrink;
	sqlite3_config(SQLITE_CONFIG_PCACHE2, &ours);
}
