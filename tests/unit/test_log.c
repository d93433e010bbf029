/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line of JSON a fact, in one write, and nothing below its level. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

struct desk {
	struct fake_clock time;
	struct log log;
	char text[4096];
};

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	fake_clock_init(&d->time);
	d->log = (struct log){ .clock = &d->time.clock,
			       .least = LOG_INFO,
			       .fd = memfd_create("log", MFD_CLOEXEC) };
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct desk *d = *state;

	close(d->log.fd);
	free(d);
	return 0;
}

static const char *written(struct desk *d)
{
	ssize_t n = pread(d->log.fd, d->text, sizeof(d->text) - 1, 0);

	assert_true(n >= 0);
	d->text[n] = '\0';
	return d->text;
}

static void a_line_has_time_level_and_event(void **state)
{
	struct desk *d = *state;
	struct buf line;

	log_open(&d->log, &line, LOG_WARN, "some.event");
	json_put_text(&line, "who", "a\nb");
	json_put_int(&line, "n", 3);
	log_close(&d->log, &line);
	assert_null(line.data);
	assert_string_equal(written(d), "{\"time\":\"2027-01-15T08:00:00.000Z\",\"level\":\"warn\","
					"\"event\":\"some.event\",\"who\":\"a\\nb\",\"n\":3}\n");
}

static void each_message_is_a_line(void **state)
{
	struct desk *d = *state;

	log_message(&d->log, LOG_INFO, "one", "%s %d", "x", 1);
	log_message(&d->log, LOG_ERROR, "two", "\"quoted\"");
	assert_string_equal(written(d),
			    "{\"time\":\"2027-01-15T08:00:00.000Z\",\"level\":\"info\","
			    "\"event\":\"one\",\"message\":\"x 1\"}\n"
			    "{\"time\":\"2027-01-15T08:00:00.000Z\",\"level\":\"error\","
			    "\"event\":\"two\",\"message\":\"\\\"quoted\\\"\"}\n");
}

static void drops_what_is_below_its_level(void **state)
{
	struct desk *d = *state;
	static const struct {
		enum log_level least, level;
		bool written;
	} cases[] = {
		{ LOG_DEBUG, LOG_DEBUG, true }, { LOG_INFO, LOG_DEBUG, false },
		{ LOG_INFO, LOG_INFO, true },   { LOG_WARN, LOG_INFO, false },
		{ LOG_WARN, LOG_ERROR, true },  { LOG_ERROR, LOG_WARN, false },
		{ LOG_ERROR, LOG_ERROR, true },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(ftruncate(d->log.fd, 0), 0);
		assert_int_equal(lseek(d->log.fd, 0, SEEK_SET), 0);
		d->log.least = cases[i].least;
		log_message(&d->log, cases[i].level, "e", "m");
		if ((strlen(written(d)) > 0) != cases[i].written)
			fail_msg("case %zu", i);
	}
}

static void a_long_message_is_cut_and_still_json(void **state)
{
	struct desk *d = *state;
	char longest[3000];

	memset(longest, 'y', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	log_message(&d->log, LOG_INFO, "e", "%s", longest);
	json_t *CLEANUP(json_freep) j = json_loads(written(d), 0, NULL);
	assert_int_equal(json_string_length(json_object_get(j, "message")), 511);
}

static void knows_its_levels(void **state)
{
	enum log_level level = LOG_ERROR;

	(void)state;
	assert_true(log_level_parse("debug", &level));
	assert_int_equal(level, LOG_DEBUG);
	assert_true(log_level_parse("warn", &level));
	assert_int_equal(level, LOG_WARN);
	assert_false(log_level_parse("WARN", &level));
	assert_false(log_level_parse("", &level));
	assert_false(log_level_parse("warning", &level));
	assert_int_equal(level, LOG_WARN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_line_has_time_level_and_event, setup, teardown),
		cmocka_unit_test_setup_teardown(each_message_is_a_line, setup, teardown),
		cmocka_unit_test_setup_teardown(drops_what_is_below_its_level, setup, teardown),
		cmocka_unit_test_setup_teardown(a_long_message_is_cut_and_still_json, setup,
						teardown),
		cmocka_unit_test(knows_its_levels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
