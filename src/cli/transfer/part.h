/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that grows beside its name: FILE.part gets the bytes, and becomes FILE at the end, in one
 * step. Whatever happens in between, FILE is not there, or is what it was; FILE.part stays, and the
 *next one who opens it goes on after its last byte.
 *
 *	part_open, any number of part_add, then part_finish; part_done whatever happened.
 */
#ifndef LAPSE_CLI_PART_H
#define LAPSE_CLI_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/outcome.h"

struct cli;

struct part {
	int fd;           /* -1: not open; locked, so that one process writes it */
	char *path;       /* owned */
	const char *file; /* borrowed: what it becomes */
	int64_t size;
};

/* Opens FILE.part, or makes it. */
enum outcome part_open(const struct cli *cli, const char *file, struct part *ret);

/* Reads the bytes that are there, from the beginning to the end. */
enum outcome part_read(const struct cli *cli, struct part *p,
		       void (*take)(void *, const void *, size_t), void *arg);

/* 0, or the errno of a write that failed. */
int part_add(struct part *p, const void *bytes, size_t n);

/* Forgets all bytes. */
int part_truncate(struct part *p);

/* Makes it durable and gives it its name; without `replace` never over a file that is there. */
enum outcome part_finish(const struct cli *cli, struct part *p, bool replace);

/* Closes it. A part without a byte is removed: there is nothing to go on from. */
void part_done(struct part *p);

/* The whole of `n` bytes into a descriptor: 0, or an errno. */
int write_all(int fd, const void *bytes, size_t n);

#endif
