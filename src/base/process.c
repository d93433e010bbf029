/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/metrics.h"

#define STAT_MAX 1024
#define USEC 1e-6

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec * USEC;
}

/* A file of /proc as text; empty when it cannot be read. */
static void read_proc(const char *path, char out[STAT_MAX])
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(out, 1, STAT_MAX - 1, f) : 0;

	out[n] = '\0';
	if (f)
		fclose(f);
}

static double boot_seconds(void)
{
	FILE *f = fopen("/proc/stat", "re");
	char line[STAT_MAX];
	double at = 0;

	while (f && at == 0 && fgets(line, sizeof(line), f))
		if (strncmp(line, "btime ", 6) == 0)
			at = strtod(line + 6, NULL);
	if (f)
		fclose(f);
	return at;
}

/* Fields of /proc/self/stat are counted from the third, which follows the name in parentheses. */
enum { STAT_START = 22, STAT_VIRTUAL = 23, STAT_RESIDENT = 24 };

static void sample_stat(struct process_sample *s)
{
	char text[STAT_MAX];
	const char *p;
	int field = 2;

	read_proc("/proc/self/stat", text);
	p = strrchr(text, ')');
	for (; p && field <= STAT_RESIDENT; p = strchr(p + 1, ' ')) {
		if (field == STAT_START)
			s->start_seconds =
				boot_seconds() + strtod(p, NULL) / (double)sysconf(_SC_CLK_TCK);
		if (field == STAT_VIRTUAL)
			s->virtual_bytes = strtoll(p, NULL, 10);
		if (field == STAT_RESIDENT)
			s->resident_bytes = strtoll(p, NULL, 10) * sysconf(_SC_PAGESIZE);
		field++;
	}
}

static int64_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int64_t n = 0;

	if (!d)
		return 0;
	for (const struct dirent *e = readdir(d); e; e = readdir(d))
		n += e->d_name[0] != '.';
	closedir(d);
	return n - 1; /* not that of the directory itself */
}

void process_sample(struct process_sample *ret, const char *directory)
{
	struct rusage usage;
	struct rlimit limit;
	struct statvfs disk;

	assert(directory);
	*ret = (struct process_sample){ .disk_free_bytes = -1 };
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		ret->cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		ret->max_fds = (int64_t)limit.rlim_cur;
	if (statvfs(directory, &disk) == 0)
		ret->disk_free_bytes = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
	sample_stat(ret);
	ret->open_fds = count_fds();
}

int64_t process_file_bytes(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

static void put_count(struct buf *out, enum metric m, int64_t value)
{
	metrics_family(out, m);
	metrics_sample(out, m, "", value);
}

static void put_real(struct buf *out, enum metric m, double value)
{
	metrics_family(out, m);
	metrics_sample_exact(out, m, "", value);
}

void process_write_metrics(const struct process_sample *s, struct buf *out)
{
	put_real(out, METRIC_PROCESS_CPU, s->cpu_seconds);
	put_real(out, METRIC_PROCESS_START, s->start_seconds);
	put_count(out, METRIC_PROCESS_RESIDENT, s->resident_bytes);
	put_count(out, METRIC_PROCESS_VIRTUAL, s->virtual_bytes);
	put_count(out, METRIC_PROCESS_FDS, s->open_fds);
	put_count(out, METRIC_PROCESS_FDS_MAX, s->max_fds);
	if (s->disk_free_bytes >= 0)
		put_count(out, METRIC_DISK_FREE, s->disk_free_bytes);
}
