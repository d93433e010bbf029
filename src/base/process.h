/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says about this process and its disk, for /metrics. Reads files of /proc: on a
 * worker, never on the loop. */
#ifndef LAPSE_BASE_PROCESS_H
#define LAPSE_BASE_PROCESS_H

#include <stdint.h>

#include "base/buf.h"

struct process_sample {
	double cpu_seconds, start_seconds; /* the start is a Unix time */
	int64_t resident_bytes, virtual_bytes;
	int64_t open_fds, max_fds;
	int64_t disk_free_bytes; /* of the file system that holds the directory; -1 = not known */
};

void process_sample(struct process_sample *ret, const char *directory);
void process_write_metrics(const struct process_sample *s, struct buf *out);

/* The size of a file; 0 when there is none. */
int64_t process_file_bytes(const char *path);

#endif
