/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VFS that writes the frames of a commit in one call.
 *
 * SQLite writes each page of a commit to the write-ahead log in two pieces, a header of 24 bytes
 * and the page. Both cost a system call and the file system's care for the page of the cache they
 * end in. This VFS holds the pieces back while each follows the one before, and writes them
 * together when the frame is the last one of its commit, which its header says.
 *
 * It stands on the VFS that was the default at its first use, and hands everything else down.
 * Nothing is held back once SQLite has written the last frame of a commit, so readers of the log,
 * and a sync of it through another file, find everything there. Frames of a transaction that has
 * not committed may be held back; they are written before anything else happens to the file.
 */
#ifndef LAPSE_STORE_SQLITE_FRAMES_H
#define LAPSE_STORE_SQLITE_FRAMES_H

#include <sqlite3.h>

/* Registers it at the first call; the name for sqlite3_open_v2(). NULL = it cannot be registered.
 */
const char *frames_vfs(void);

/* For each connection that was opened with it: what a transaction has held back is forgotten when
 * it is rolled back. Written later it could come after what another connection has committed in its
 * place. Takes the connection's rollback hook. */
void frames_watch(sqlite3 *handle);

#endif
