/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite's page cache, with a cheaper end of a transaction.
 *
 * A commit drops the pages beyond the end of the database. Normally there are none, and the cache
 * sees that by the largest number a page ever had. But while a B-tree is balanced a page gets a
 * number far beyond the end for a moment, and after that the commit looks at every page of the
 * cache: 100 us and more, in nearly every commit that inserts rows in the middle of a table.
 *
 * This cache is SQLite's own with one more number, which such a moment does not move.
 */
#ifndef LAPSE_STORE_SQLITE_PAGECACHE_H
#define LAPSE_STORE_SQLITE_PAGECACHE_H

/* Once per process, before SQLite is used; otherwise the cache stays as it is. */
void pagecache_install(void);

#endif
