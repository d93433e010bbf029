/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing: options, settings, errors, the lock, owners, the log. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib.h"

static void refuse(struct world *w, int err, const char *field)
{
	struct lapse_store *untouched = (struct lapse_store *)(uintptr_t)w;
	struct lapse_problem p = { .message = "" };

	assert_int_equal(lapse_open(&w->options, &untouched, &p), err);
	assert_ptr_equal(untouched, w);
	assert_string_equal(p.field, field);
	assert_true(p.message[0]);
	assert_int_equal(lapse_open(&w->options, &untouched, NULL), err);
}

static void test_names_and_texts_of_errors(void **state)
{
	(void)state;
	assert_string_equal(lapse_error_name(LAPSE_EBUSY), "EBUSY");
	assert_string_equal(lapse_error_text(LAPSE_EBUSY), "in use by another process");
	assert_string_equal(lapse_error_name(LAPSE_OK), "OK");
	assert_string_equal(lapse_error_name(-9999), "unknown error");
	assert_string_equal(lapse_error_name(7), "unknown error");
	assert_int_equal(LAPSE_EINVAL, -1);
	assert_true(lapse_version()[0]);
}

static void test_ids_as_text(void **state)
{
	char text[LAPSE_ID_SIZE];
	int64_t id = 7;

	(void)state;
	lapse_id_format(255, text);
	assert_string_equal(text, "00000000000000ff");
	assert_int_equal(lapse_id_parse(text, &id), LAPSE_OK);
	assert_int_equal(id, 255);
	assert_int_equal(lapse_id_parse("ff", &id), LAPSE_EINVAL);
	assert_int_equal(lapse_id_parse(NULL, &id), LAPSE_EINVAL);
	assert_int_equal(id, 255);
	assert_int_equal(lapse_id_parse(text, NULL), LAPSE_OK);
}

static void test_options_must_be_made_and_name_a_directory(void **state)
{
	struct world *w = *state;

	w->options.data_dir = NULL;
	refuse(w, LAPSE_EINVAL, "data_dir");
	w->options.data_dir = "";
	refuse(w, LAPSE_EINVAL, "data_dir");
	w->options.data_dir = "/dev/null/x";
	refuse(w, LAPSE_EIO, "data_dir");
	w->options.data_dir = w->dir;
	w->options.owner = "a/b";
	refuse(w, LAPSE_EINVAL, "owner");
	w->options.owner = NULL;
	w->options.wall = NULL;
	refuse(w, LAPSE_EINVAL, "wall");
	memset(&w->options, 0, sizeof(w->options));
	refuse(w, LAPSE_EINVAL, "size");
}

/* A program that was compiled against another version of the header. */
static void test_options_of_another_size(void **state)
{
	struct world *w = *state;
	struct {
		struct lapse_options options;
		long more[2];
	} newer;
	struct lapse_problem p;

	lapse_options_init(&newer.options, sizeof(newer));
	newer.options.data_dir = w->dir;
	assert_int_equal(lapse_open(&newer.options, &w->store, &p), LAPSE_OK);
	lapse_close(w->store);
	w->store = NULL;
	newer.more[1] = 1;
	assert_int_equal(lapse_open(&newer.options, &w->store, &p), LAPSE_EINVAL);
	assert_non_null(strstr(p.message, "does not know"));
	assert_null(w->store);

	w->options.size = offsetof(struct lapse_options, owner); /* older: no clock, no log */
	w->options.owner = (const char *)(uintptr_t)1;           /* not there in such a program */
	world_open(w);
	assert_true(send_to(w, "bob", "hello") > 0);
	assert_string_equal(w->log, "");
}

static void test_settings(void **state)
{
	struct world *w = *state;
	struct lapse_setting settings[] = { { "unread_max_per_agent", "2" },
					    { "message_ttl_ms", "1000" } };

	w->options.settings = settings;
	w->options.settings_count = 2;
	settings[1].value = "0";
	refuse(w, LAPSE_EINVAL, "message_ttl_ms");
	settings[1].value = NULL;
	refuse(w, LAPSE_EINVAL, "settings");
	settings[1] = (struct lapse_setting){ "mesage_ttl_ms", "1000" };
	refuse(w, LAPSE_EINVAL, "mesage_ttl_ms");
	settings[1] = (struct lapse_setting){ "log_level", "loud" };
	refuse(w, LAPSE_EINVAL, "log_level");
	settings[1] = (struct lapse_setting){ "mailbox_provider", "stalwart" };
	refuse(w, LAPSE_EINVAL, "mailbox_provider");
	settings[1] = (struct lapse_setting){ "mailbox_provider", "elsewhere" };
	refuse(w, LAPSE_EINVAL, "mailbox_provider");
	settings[1] = (struct lapse_setting){ "sqlite_synchronous", "maybe" };
	refuse(w, LAPSE_EINVAL, "sqlite_synchronous");
	settings[1] =
		(struct lapse_setting){ "listen", "unix:/nowhere" }; /* the daemon's: ignored */
	world_open(w);
	memset(settings, 0, sizeof(settings)); /* they were copied */
	struct lapse_draft d = { .to = "bob", .from = "x", .content = "c" };
	send_to(w, "bob", "1");
	send_to(w, "bob", "2");
	assert_error(w, lapse_message_send(w->store, &d, NULL), LAPSE_ELIMIT, "to");
	assert_non_null(strstr(lapse_error_message(w->store), "unread_max_per_agent"));
}

static void test_two_handles_of_one_directory(void **state)
{
	struct world *w = *state;
	struct lapse_store *second = NULL;
	struct lapse_problem p;

	world_open(w);
	assert_int_equal(lapse_open(&w->options, &second, &p), LAPSE_EBUSY);
	assert_null(second);
	assert_non_null(strstr(p.message, "in use by process"));
	send_to(w, "bob", "the first one is as it was");
	lapse_close(w->store);
	w->store = NULL;
	world_open(w);
	assert_int_equal(count_messages(w, "bob"), 1);
}

static void test_two_directories_at_once(void **state)
{
	struct world *w = *state;
	struct world *other;

	world_open(w);
	world_setup((void **)&other);
	send_to(w, "bob", "one");
	send_to(other, "bob", "two");
	send_to(other, "bob", "three");
	assert_int_equal(count_messages(w, "bob"), 1);
	assert_int_equal(count_messages(other, "bob"), 2);
	world_teardown((void **)&other);
}

/* lapsed on the directory; its first line says that it is ready. *ret_line gets that, or is empty
 * when it ended before. */
static pid_t start_daemon(const struct world *w, char line[TEXT_SIZE])
{
	int out[2];
	assert_int_equal(pipe(out), 0);
	pid_t pid = fork();

	if (pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		close(out[0]);
		close(out[1]);
		dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
		execl(LAPSED, LAPSED, "--data-dir", w->dir, "--listen", "127.0.0.1:0",
		      (char *)NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	close(out[1]);
	size_t n = 0;
	while (n < TEXT_SIZE - 1 && read(out[0], line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = '\0';
	close(out[0]);
	return pid;
}

static void test_a_daemon_has_the_directory(void **state)
{
	struct world *w = *state;
	char line[TEXT_SIZE];
	int status;
	pid_t pid = start_daemon(w, line);

	assert_non_null(strstr(line, "lapsed ready on "));
	refuse(w, LAPSE_EBUSY, "");
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 0);
	w->options.wall = NULL; /* the daemon has left the machine's time in the store */
	w->options.mono = NULL;
	world_open(w);
	send_to(w, "bob", "now it is ours");
}

static void test_we_have_the_directory_and_a_daemon_comes(void **state)
{
	struct world *w = *state;
	char line[TEXT_SIZE];
	int status;

	world_open(w);
	pid_t pid = start_daemon(w, line);
	assert_string_equal(line, "");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 127);
	send_to(w, "bob", "still ours");
}

static void test_what_belongs_to_another_owner(void **state)
{
	struct world *w = *state;

	world_open(w);
	int64_t id = send_to(w, "bob", "of local");
	assert_ok(w, lapse_set_owner(w->store, "acme"));
	assert_int_equal(count_messages(w, "bob"), 0);
	assert_error(w, lapse_message_get(w->store, "bob", id, NULL, NULL), LAPSE_ENOTFOUND, "id");
	assert_error(w, lapse_set_owner(w->store, "a/b"), LAPSE_EINVAL, "owner");
	assert_error(w, lapse_set_owner(w->store, NULL), LAPSE_EINVAL, "owner");
	send_to(w, "bob", "of acme");
	assert_int_equal(count_messages(w, "bob"), 1);
	w->options.owner = "acme";
	world_reopen(w);
	assert_int_equal(count_messages(w, "bob"), 1);
	assert_ok(w, lapse_set_owner(w->store, "local"));
	assert_ok(w, lapse_message_get(w->store, "bob", id, NULL, NULL));
}

static void test_the_log_goes_to_the_callback(void **state)
{
	struct world *w = *state;

	world_open(w);
	send_read(w, "bob", "x");
	world_pass(w, DAY_MS + 1);
	assert_int_equal(swept(w, "messages", false), 1);
	assert_non_null(strstr(w->log, "\"event\":\"sweep.pruned\""));
	assert_int_equal(w->log[0], '{');
	assert_null(strstr(w->log, "\n\n"));
	w->options.log = NULL; /* and without one, nowhere */
	w->log[0] = '\0';
	world_reopen(w);
	assert_int_equal(swept(w, "messages", false), 0);
	assert_string_equal(w->log, "");
}

static void test_closing_nothing(void **state)
{
	(void)state;
	lapse_close(NULL);
}

/* The directory is private whatever the umask is, and our umask stays ours. */
static void test_the_directory_is_private(void **state)
{
	struct world *w = *state;
	char dir[PATH_SIZE + 8];
	struct stat st;
	mode_t mask = umask(0);

	snprintf(dir, sizeof(dir), "%s/data", w->dir);
	w->options.data_dir = dir;
	world_open(w);
	assert_int_equal(umask(mask), 0);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	lapse_close(w->store);
	w->store = NULL;
}

static volatile sig_atomic_t signals;
static pthread_t signalled;

static void note_signal(int number)
{
	(void)number;
	signals++;
	signalled = pthread_self();
}

/* Signals of the process are handled by the program's threads, never by the library's. */
static void test_signals_stay_with_the_program(void **state)
{
	struct world *w = *state;
	struct sigaction ours = { .sa_handler = note_signal }, before;
	sigset_t mask;

	world_open(w);
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	assert_false(sigismember(&mask, SIGUSR1));
	sigaction(SIGUSR1, &ours, &before);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	kill(getpid(), SIGUSR1); /* nobody can take it now */
	usleep(20000);
	assert_int_equal(signals, 0);
	pthread_sigmask(SIG_UNBLOCK, &mask, NULL);
	assert_int_equal(signals, 1);
	assert_true(pthread_equal(signalled, pthread_self()));
	sigaction(SIGUSR1, &before, NULL);
}

#define BARE(test) cmocka_unit_test_setup_teardown(test, world_setup_bare, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_and_texts_of_errors),
		cmocka_unit_test(test_ids_as_text),
		cmocka_unit_test(test_closing_nothing),
		BARE(test_options_must_be_made_and_name_a_directory),
		BARE(test_options_of_another_size),
		BARE(test_settings),
		BARE(test_two_handles_of_one_directory),
		BARE(test_two_directories_at_once),
		BARE(test_a_daemon_has_the_directory),
		BARE(test_we_have_the_directory_and_a_daemon_comes),
		BARE(test_what_belongs_to_another_owner),
		BARE(test_the_log_goes_to_the_callback),
		BARE(test_the_directory_is_private),
		BARE(test_signals_stay_with_the_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
