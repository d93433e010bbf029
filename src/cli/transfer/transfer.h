/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of any size on their way: a file to the daemon, an attachment from it. Memory does not
 * grow with them, and on a terminal progress.c shows how far they are.
 */
#ifndef LAPSE_CLI_TRANSFER_H
#define LAPSE_CLI_TRANSFER_H

#include "cli/cli.h"
#include "cli/transfer/part.h"

/* Bytes of a regular file that is long enough to be worth a question before it is sent; -1 for
 * anything else. */
int64_t transfer_size(const char *path);

/* The SHA-256 of a file as 64 digits. False when it cannot be read: transfer_up() will say why. */
bool transfer_checksum(const char *path, char ret[static 65]);

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
