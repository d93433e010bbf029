/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: the list of words below is a table */
/*
 * What the disk does to us: the control file of the fault VFS, parsed.
 *
 * The environment variable FAULT_VFS_CONTROL names a small text file. It is looked at before every
 * operation (one stat), so a test switches a running daemon by renaming a new file into its place.
 * Words, separated by white space, in any order:
 *
 *   pass | power-loss | torn       what happens to a write before it is synced
 *   full | ioerr-write | ioerr-sync | ioerr-read
 *                                  which operation fails
 *   after=N                        the first N of these operations still work (0)
 *   for=K                          then K of them fail (all)
 *   only=db | wal | journal        only on that file (any)
 *   seed=S percent=P               torn: the random choice, and how many writes it touches (1, 50)
 *
 * An empty or missing file is `pass`. An unknown word ends the process: a typo must not be a passed
 * test.
 * The caller holds one lock around every call here.
 */
/* clang-format on */
#ifndef FAULT_PLAN_H
#define FAULT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum loss_mode {
	LOSS_NONE,  /* a write reaches the file at once */
	LOSS_POWER, /* a write reaches the file when it is synced, and not before */
	LOSS_TORN,  /* the same, but some sectors of some writes are early */
};

enum fault_kind {
	FAULT_NONE,
	FAULT_FULL,  /* a write that makes the file longer: SQLITE_FULL */
	FAULT_WRITE, /* any write or truncate: SQLITE_IOERR_WRITE */
	FAULT_SYNC,  /* a sync: SQLITE_IOERR_FSYNC, and what it should have synced is lost */
	FAULT_READ,  /* a read: SQLITE_IOERR_READ */
};

enum file_role {
	ROLE_OTHER, /* temporary files: they outlive nothing, so nothing happens to them */
	ROLE_DB,
	ROLE_WAL,
	ROLE_JOURNAL,
};

/* Look at the control file, take over what changed, and say how unsynced writes behave now. */
enum loss_mode plan_refresh(void);

/* Count one operation of this kind and say whether it fails. */
bool plan_strikes(enum fault_kind kind, enum file_role role);

/* Torn mode's dice: true for `percent` of the calls, reproducible from the seed. */
bool plan_tears_write(void);
bool plan_tears_sector(void);

#endif
