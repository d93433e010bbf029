/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is loaded before the daemon's own (LD_PRELOAD) and stands between it and the
 * files of attachments: it ends the process, or lets a call fail, at a step that a test has named.
 *
 * FAULT_FILES is STEP:NUMBER:WHAT. STEP is one of create, write, link, sync, sync-dir,
 * unlink, read; NUMBER says at which of these calls (0 = at each one); WHAT is kill (before the
 * call), killed (after it), or the name of an errno. FAULT_FILES_TRACE names a file that gets a
 * line for each step. Only files below a directory called `files` are meant; SQLite's have a VFS of
 * their own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int calls;

struct plan {
	char step[16], what[16];
	int number;
};

static bool read_plan(struct plan *p)
{
	const char *text = getenv("FAULT_FILES");

	return text && sscanf(text, "%15[^:]:%d:%15s", p->step, &p->number, p->what) == 3;
}

static bool is_ours(const char *path)
{
	return strstr(path, "/files/") != NULL;
}

static bool fd_is_ours(int fd, bool *is_dir)
{
	char link[64], path[4096];
	struct stat st;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 2);
	if (n < 0 || fstat(fd, &st) < 0)
		return false;
	path[n] = '/'; /* files itself counts, too */
	path[n + 1] = '\0';
	*is_dir = S_ISDIR(st.st_mode);
	return is_ours(path);
}

static void trace(const char *step)
{
	const char *path = getenv("FAULT_FILES_TRACE");
	char line[32];
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	int n = snprintf(line, sizeof(line), "%s\n", step);
	if (write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}

static int number_of(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} all[] = { { "ENOSPC", ENOSPC }, { "EDQUOT", EDQUOT }, { "EIO", EIO },
		    { "EROFS", EROFS },   { "EACCES", EACCES }, { "EOPNOTSUPP", EOPNOTSUPP } };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].number;
	abort();
}

/* Whether the call must fail; errno is set. *ret_kill = end after it. */
static bool fails(const char *step, bool *ret_kill)
{
	struct plan p;

	*ret_kill = false;
	if (!read_plan(&p) || strcmp(p.step, step) != 0)
		return false;
	int now = atomic_fetch_add(&calls, 1) + 1;
	if (p.number != 0 && p.number != now)
		return false;
	if (strcmp(p.what, "kill") == 0)
		raise(SIGKILL);
	*ret_kill = strcmp(p.what, "killed") == 0;
	if (*ret_kill)
		return false;
	errno = number_of(p.what);
	return true;
}

static void after(const char *step, bool kill)
{
	trace(step);
	if (kill)
		raise(SIGKILL);
}

#define REAL(name)                                                                                 \
	static __typeof__(&name) real;                                                             \
	if (!real)                                                                                 \
	*(void **)&real = dlsym(RTLD_NEXT, #name)

int open(const char *path, int flags, ...)
{
	REAL(open);
	bool kill = false,
	     create = (flags & O_TMPFILE) == O_TMPFILE || ((flags & O_CREAT) && is_ours(path));
	va_list ap;

	va_start(ap, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (create && fails("create", &kill))
		return -1;
	int r = real(path, flags, mode);
	if (create)
		after("create", kill);
	return r;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
	REAL(pwrite);
	bool is_dir, kill = false, ours = fd_is_ours(fd, &is_dir);

	if (ours && fails("write", &kill))
		return -1;
	ssize_t r = real(fd, bytes, n, at);
	if (ours)
		after("write", kill);
	return r;
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
	REAL(pread);
	bool is_dir, kill = false, ours = fd_is_ours(fd, &is_dir);

	if (ours && fails("read", &kill))
		return -1;
	return real(fd, bytes, n, at);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	REAL(linkat);
	bool kill = false, ours = is_ours(to);

	if (ours && fails("link", &kill))
		return -1;
	int r = real(from_fd, from, to_fd, to, flags);
	if (ours)
		after(r == 0 ? "link" : "link-failed", kill);
	return r;
}

int fsync(int fd)
{
	REAL(fsync);
	bool is_dir = false, kill = false, ours = fd_is_ours(fd, &is_dir);
	const char *step = is_dir ? "sync-dir" : "sync";

	if (ours && fails(step, &kill))
		return -1;
	int r = real(fd);
	if (ours)
		after(step, kill);
	return r;
}

int unlink(const char *path)
{
	REAL(unlink);
	bool kill = false, ours = is_ours(path);

	if (ours && fails("unlink", &kill))
		return -1;
	int r = real(path);
	if (ours)
		after("unlink", kill);
	return r;
}

int unlinkat(int dir, const char *name, int flags)
{
	REAL(unlinkat);
	bool is_dir, kill = false, ours = fd_is_ours(dir, &is_dir);

	if (ours && fails("unlink", &kill))
		return -1;
	int r = real(dir, name, flags);
	if (ours)
		after("unlink", kill);
	return r;
}
