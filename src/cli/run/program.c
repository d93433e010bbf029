/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/program.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CODE_NOT_EXECUTABLE 126 /* as shells and env(1) have it */
#define CODE_NOT_FOUND 127
#define CODE_SIGNAL 128

/* The signals that program_run() waits for. */
static void watched_signals(sigset_t *ret)
{
	static const int numbers[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP };

	sigemptyset(ret);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		sigaddset(ret, numbers[i]);
}

/* A file in memory with the text, at its beginning. -1 when there is no room for it. */
static int make_input(const struct buf *text)
{
	int fd = memfd_create("lapse-input", MFD_CLOEXEC);

	for (size_t done = 0; fd >= 0 && done < text->len;) {
		ssize_t n = write(fd, text->data + done, text->len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			close(fd);
			return -1;
		}
		done += (size_t)n;
	}
	if (fd >= 0)
		lseek(fd, 0, SEEK_SET);
	return fd;
}

/* In the child: never returns. Why it could not start goes into `report`. */
static void program_become(const struct program *p, const sigset_t *mask, int input, int report)
{
	int why;

	for (size_t i = 0; i < PROGRAM_ENV_MAX && p->env[i].name; i++)
		if (p->env[i].value)
			setenv(p->env[i].name, p->env[i].value, 1);
	if (input >= 0)
		dup2(input, STDIN_FILENO);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(p->argv[0], (char *const *)(uintptr_t)p->argv);
	why = errno;
	if (write(report, &why, sizeof(why)) < 0)
		why = 0; /* the exit code has to tell it alone */
	_exit(why == ENOENT ? CODE_NOT_FOUND : CODE_NOT_EXECUTABLE);
}

/* Starts it. `*ret_why` is the error that kept it from starting, or 0. */
static pid_t program_start(const struct program *p, const sigset_t *mask, int input, int *ret_why)
{
	int report[2];

	*ret_why = 0;
	if (pipe2(report, O_CLOEXEC) < 0)
		return -1;
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		program_become(p, mask, input, report[1]);
	close(report[1]);
	/* Closed by exec, or written when exec failed. */
	ssize_t n = child > 0 ? read(report[0], ret_why, sizeof(*ret_why)) : 0;
	assert(n <= (ssize_t)sizeof(*ret_why));
	close(report[0]);
	return child;
}

/* Waits for one of the signals, at most until `until`. 0 when the time is over. */
static int await_signal(const struct cli *cli, const sigset_t *set, lapse_us until, siginfo_t *ret)
{
	lapse_us left = until - clock_mono(cli->clock);

	left = left > 0 ? left : 0;
	struct timespec wait = { .tv_sec = left / 1000000, .tv_nsec = left % 1000000 * 1000 };
	int number = sigtimedwait(set, ret, &wait);
	return number < 0 ? 0 : number;
}

static bool has_ended(pid_t child, struct program_end *end)
{
	int status;
	pid_t done = waitpid(child, &status, WNOHANG);

	if (done == 0 || (done < 0 && errno == EINTR))
		return false;
	assert(done == child);
	end->code = WIFSIGNALED(status) ? CODE_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
	assert(end->code >= 0 && end->code < 256);
	return true;
}

/* Waits for the end of the program, keeping alive what it works under. */
static void program_watch(struct cli *cli, const struct program *p, pid_t child,
			  const sigset_t *set, struct program_end *end)
{
	const lapse_us every = p->every_ms * 1000;
	lapse_us next = clock_mono(cli->clock) + every;
	siginfo_t info = { 0 };

	assert(every > 0);
	while (!has_ended(child, end)) {
		int number = await_signal(cli, set, next, &info);
		if (number == 0 && clock_mono(cli->clock) >= next) {
			if (!end->was_lost && p->tick && !p->tick(p->arg)) {
				end->was_lost = true;
				kill(child, SIGTERM);
			}
			next = clock_mono(cli->clock) + every;
		}
		if (number == SIGINT || number == SIGTERM || number == SIGHUP) {
			end->was_interrupted = true;
			/* The terminal has given its Ctrl-C to the program too. */
			if (number != SIGINT || info.si_code == SI_USER)
				kill(child, number);
		}
	}
}

enum outcome program_run(struct cli *cli, const struct program *p, struct program_end *ret)
{
	struct program_end end = { 0 };
	sigset_t set, before;
	int why, input = p->input ? make_input(p->input) : -1;

	assert(p->argv && p->argv[0]);
	if (p->input && input < 0)
		return cli_fail(cli, OUTCOME_REFUSED, "no room for the program's input: %s",
				strerror(errno));
	watched_signals(&set);
	sigprocmask(SIG_BLOCK, &set, &before);
	assert(!sigismember(&before, SIGCHLD)); /* one program at a time */
	pid_t child = program_start(p, &before, input, &why);
	if (child > 0)
		program_watch(cli, p, child, &set, &end);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (input >= 0)
		close(input);
	if (child < 0)
		return cli_fail(cli, OUTCOME_REFUSED, "cannot start %s: %s", p->argv[0],
				strerror(errno));
	if (why)
		cli_fail(cli, OUTCOME_REFUSED, "cannot run %s: %s", p->argv[0], strerror(why));
	*ret = end;
	return OUTCOME_OK;
}
