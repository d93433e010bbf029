/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of any size on their way: a file to the daemon, an attachment from it. Memory does not
 * grow with them, and on a terminal progress.c shows how far they are.
 */
#ifndef LAPSE_CLI_TRANSFER_H
#define LAPSE_CLI_TRANSFER_H

#include "cli/cli.h"
#include "cli/part.h"

/* Sends a file, or standard input where `path` is "-", as the body of a POST. A file whose
 * connection broke is sent once more. */
enum outcome transfer_up(struct cli *cli, const char *path, struct request *request,
			 struct answer *ret);

/* What is fetched, and where it goes. */
struct download {
	const char *checksum; /* 64 digits: what it is and what it must turn out to be */
	int64_t size;
	const char *label; /* for the bar */
	struct part *part; /* gets the bytes, after those it has; NULL: `fd` does */
	int fd;
	int64_t resumed_at; /* set: bytes of the part that did not come again */
};

/* Fetches it and checks its SHA-256. A connection that breaks is made again and goes on after the
 * last byte that came. When it fails for good the part keeps what it has, unless that is wrong. */
enum outcome transfer_down(struct cli *cli, struct download *download);

#endif
