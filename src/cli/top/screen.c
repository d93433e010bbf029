/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/screen.h"

#include <assert.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/outcome.h"
#include "cli/show/show.h"

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* other screen, no cursor, no wrapping */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"

#define USUAL_COLUMNS 80
#define USUAL_LINES 24

/* For the signal handlers; not written while they can run. */
static struct {
	bool has_keys; /* standard input is the terminal, and `saved` how it was */
	struct termios saved;
	struct termios keys; /* without lines and echo */
	struct sigaction old[NSIG];
	sigset_t waiting; /* the mask of screen_wait(): ours can come */
} screen;
static volatile sig_atomic_t stale; /* the screen is not what we drew */

/* Async-signal-safe, like everything the handlers call. */
static void switch_terminal(const char *sequence, const struct termios *mode)
{
	for (size_t n = strlen(sequence); n > 0;) {
		ssize_t done = write(STDOUT_FILENO, sequence, n);
		if (done < 0)
			break;
		sequence += done;
		n -= (size_t)done;
	}
	if (screen.has_keys)
		tcsetattr(STDIN_FILENO, TCSANOW, mode);
}

static void screen_end(int number)
{
	switch_terminal(LEAVE, &screen.saved);
	if (number == SIGINT)
		_exit(OUTCOME_INTERRUPTED);
	signal(number, SIG_DFL);
	raise(number);
}

static void screen_stop(int number)
{
	(void)number;
	switch_terminal(LEAVE, &screen.saved);
	raise(SIGSTOP);
	switch_terminal(ENTER, &screen.keys);
	stale = 1;
}

static void screen_resize(int number)
{
	(void)number;
	stale = 1;
}

static const struct {
	int number;
	void (*handler)(int);
} SIGNALS[] = {
	{ SIGINT, screen_end },      { SIGTERM, screen_end }, { SIGHUP, screen_end },
	{ SIGQUIT, screen_end },     { SIGABRT, screen_end }, { SIGTSTP, screen_stop },
	{ SIGWINCH, screen_resize },
};

/* The handlers do not interrupt each other. A change of size, and a stop, come only while we
 * wait: no transfer is disturbed and none of them is missed. */
static void screen_install(void)
{
	struct sigaction ours = { 0 };
	sigset_t held;

	sigfillset(&ours.sa_mask);
	for (size_t i = 0; i < ARRAY_LEN(SIGNALS); i++) {
		int number = SIGNALS[i].number;
		assert(number > 0 && number < NSIG);
		sigaction(number, NULL, &screen.old[number]);
		/* nohup: what was ignored stays ignored. */
		if (screen.old[number].sa_handler == SIG_IGN)
			continue;
		ours.sa_handler = SIGNALS[i].handler;
		sigaction(number, &ours, NULL);
	}
	sigemptyset(&held);
	sigaddset(&held, SIGWINCH);
	sigaddset(&held, SIGTSTP);
	sigprocmask(SIG_BLOCK, &held, &screen.waiting);
	sigdelset(&screen.waiting, SIGWINCH);
	sigdelset(&screen.waiting, SIGTSTP);
}

bool screen_open(void)
{
	const char *term = getenv("TERM");

	if (!isatty(STDOUT_FILENO) || !term || !term[0] || strcmp(term, "dumb") == 0)
		return false;
	screen.has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.saved) == 0;
	screen.keys = screen.saved;
	screen.keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	screen.keys.c_cc[VMIN] = 0;
	screen.keys.c_cc[VTIME] = 0;
	screen_install();
	switch_terminal(ENTER, &screen.keys);
	return true;
}

void screen_close(void)
{
	switch_terminal(LEAVE, &screen.saved);
	for (size_t i = 0; i < ARRAY_LEN(SIGNALS); i++)
		sigaction(SIGNALS[i].number, &screen.old[SIGNALS[i].number], NULL);
	sigprocmask(SIG_SETMASK, &screen.waiting, NULL);
}

void screen_size(int *ret_columns, int *ret_lines)
{
	struct winsize size = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
		size = (struct winsize){ 0 };
	*ret_columns = size.ws_col ? size.ws_col : USUAL_COLUMNS;
	*ret_lines = size.ws_row ? size.ws_row : USUAL_LINES;
}

static int count_lines(const char *text)
{
	int n = 0;

	for (; (text = strchr(text, '\n')); text++)
		n++;
	return n;
}

bool screen_draw(const struct buf *text)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	const char *line = buf_text(text);
	int columns, lines, total = count_lines(line);

	screen_size(&columns, &lines);
	assert(columns > 0 && lines > 0);
	bool fits = total <= lines;
	buf_puts(&out, HOME);
	for (int y = 0; y < (fits ? total : lines - 1); y++) {
		size_t n = strcspn(line, "\n");
		text_clip(&out, line, n, (size_t)columns);
		/* No newline on the last line: it would scroll. */
		buf_puts(&out, y + 1 < lines ? CLEAR_LINE "\r\n" : CLEAR_LINE);
		line += n + 1;
	}
	if (!fits) {
		struct buf CLEANUP(buf_done) more = { 0 };
		buf_printf(&more, "... %d more lines", total - lines + 1);
		text_clip(&out, buf_text(&more), more.len, (size_t)columns);
		buf_puts(&out, CLEAR_LINE);
	}
	buf_puts(&out, CLEAR_BELOW);
	return show_now(&out);
}

/* The event of a key; SCREEN_TIME for one that means nothing. */
static enum screen_event event_of_key(char key)
{
	static const struct {
		const char *keys;
		enum screen_event event;
	} meanings[] = {
		{ "qQ", SCREEN_QUIT },
		{ " pP", SCREEN_PAUSE },
		{ "+=", SCREEN_FASTER },
		{ "-_", SCREEN_SLOWER },
	};

	for (size_t i = 0; key && i < ARRAY_LEN(meanings); i++)
		if (strchr(meanings[i].keys, key))
			return meanings[i].event;
	return SCREEN_TIME;
}

/* Reads what was typed. The last key that means something counts; the end of input quits. */
static enum screen_event read_keys(void)
{
	enum screen_event event = SCREEN_TIME;
	char keys[64];
	ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

	if (n <= 0)
		return SCREEN_QUIT;
	for (ssize_t i = 0; i < n && event != SCREEN_QUIT; i++)
		if (event_of_key(keys[i]) != SCREEN_TIME)
			event = event_of_key(keys[i]);
	return event;
}

enum screen_event screen_wait(const struct clock *clock, lapse_us until)
{
	for (;;) {
		struct pollfd keys = { .fd = screen.has_keys ? STDIN_FILENO : -1,
				       .events = POLLIN };
		lapse_us left = until - clock_mono(clock);
		left = left > 0 ? left : 0;
		struct timespec wait = { .tv_sec = left / 1000000,
					 .tv_nsec = left % 1000000 * 1000 };
		int n = ppoll(&keys, 1, &wait, &screen.waiting);
		if (stale) {
			stale = 0;
			return SCREEN_SIZED;
		}
		enum screen_event typed = n > 0 ? read_keys() : SCREEN_TIME;
		if (typed != SCREEN_TIME)
			return typed;
		if (n == 0)
			return SCREEN_TIME;
	}
}
