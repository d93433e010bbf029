/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: file < environment < flag, and every refusal names what it refuses. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/settings.h"
#include "unit.h"

struct desk {
	char dir[TEMP_PATH_MAX], config[TEMP_PATH_MAX];
	struct settings settings;
	struct problem problem;
};

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	temp_dir_make(d->dir);
	path_join(d->config, d->dir, "lapse.conf");
	settings_init(&d->settings);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct desk *d = *state;

	settings_done(&d->settings);
	temp_dir_remove(d->dir);
	free(d);
	return 0;
}

#define ARGV(...)                                                                                  \
	(char *const[])                                                                            \
	{                                                                                          \
		__VA_ARGS__, NULL                                                                  \
	}

static void starts_with_the_defaults(void **state)
{
	const struct settings *s = &((struct desk *)*state)->settings;

	assert_string_equal(s->listen, "127.0.0.1:7878");
	assert_int_equal(s->message_ttl_ms, 86400000);
	assert_int_equal(s->message_sweep_ms, 60000);
	assert_int_equal(s->event_keep_ms, 86400000);
	assert_false(s->behind_tls_proxy);
	assert_string_equal(s->sqlite_synchronous, "full");
}

/* The table itself: each default lies in its range, no name comes twice. */
static void the_table_is_sound(void **state)
{
	(void)state;
	for (size_t i = 0; i < SETTINGS_COUNT; i++) {
		const struct setting *row = &SETTINGS_TABLE[i];
		if (row->kind == SETTING_INT &&
		    (row->def_int < row->min || row->def_int > row->max || !row->unit[0]))
			fail_msg("%s", row->name);
		if (row->def_text && ((int64_t)strlen(row->def_text) < row->min ||
				      (int64_t)strlen(row->def_text) > row->max))
			fail_msg("%s", row->name);
		assert_true(row->help[0]);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(row->name, SETTINGS_TABLE[j].name);
	}
}

/* Every number takes its ends, and refuses one more and one less with its name. */
static void every_number_has_its_range(void **state)
{
	struct desk *d = *state;

	for (size_t i = 0; i < SETTINGS_COUNT; i++) {
		const struct setting *row = &SETTINGS_TABLE[i];
		const int64_t values[] = { row->min, row->max, row->min - 1, row->max + 1 };
		for (size_t k = 0; row->kind == SETTING_INT && k < ARRAY_LEN(values); k++) {
			struct buf CLEANUP(buf_done) now = { 0 };
			char text[32];
			snprintf(text, sizeof(text), "%" PRId64, values[k]);
			int r = settings_set(&d->settings, row->name, text, &d->problem);
			if (r != (k < 2 ? LAPSE_OK : LAPSE_EINVAL))
				fail_msg("%s = %s", row->name, text);
			setting_value(&d->settings, row, &now);
			if (k < 2)
				assert_string_equal(buf_text(&now), text);
			else
				assert_string_equal(d->problem.field, row->name);
		}
	}
}

/* Only a lifetime can be without end. */
static void infinity_is_a_lifetime(void **state)
{
	struct desk *d = *state;
	struct buf CLEANUP(buf_done) now = { 0 };

	assert_int_equal(settings_set(&d->settings, "attachment_ttl_ms", "infinity", &d->problem),
			 LAPSE_OK);
	assert_true(d->settings.attachment_ttl_ms == LAPSE_NEVER);
	setting_value(&d->settings, &SETTINGS_TABLE[SETTING_AT_attachment_ttl_ms], &now);
	assert_string_equal(buf_text(&now), "infinity");
	static const char *const refused[] = { "message_ttl_ms", "attachment_sweep_ms",
					       "attachment_max_bytes", "agents_max" };
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		assert_int_equal(settings_set(&d->settings, refused[i], "infinity", &d->problem),
				 LAPSE_EINVAL);
	assert_int_equal(
		settings_set(&d->settings, "attachment_ttl_ms", "9223372036854775807", &d->problem),
		LAPSE_EINVAL);
}

static void later_sources_win(void **state)
{
	struct desk *d = *state;
	char config[TEMP_PATH_MAX + 16];

	file_write(d->config, "message_ttl_ms = 1000\nevent_keep_ms = 1000\nsweep_keep_ms=1000\n");
	snprintf(config, sizeof(config), "--config=%s", d->config);
	assert_int_equal(settings_load(&d->settings, 2, ARGV(config, "--message-ttl-ms=3000"),
				       ARGV("LAPSE_MESSAGE_TTL_MS=2000", "LAPSE_EVENT_KEEP_MS=2000",
					    "HOME=x"),
				       &d->problem),
			 LAPSE_OK);
	assert_int_equal(d->settings.message_ttl_ms, 3000);
	assert_int_equal(d->settings.event_keep_ms, 2000);
	assert_int_equal(d->settings.sweep_keep_ms, 1000);
	assert_int_equal(d->settings.message_sweep_ms, 60000);
}

static void finds_the_file_in_flag_or_environment(void **state)
{
	struct desk *d = *state;
	char env[TEMP_PATH_MAX + 16], other[TEMP_PATH_MAX];

	file_write(d->config, "message_ttl_ms = 1000\n");
	path_join(other, d->dir, "other.conf");
	file_write(other, "message_ttl_ms = 7000\n");
	snprintf(env, sizeof(env), "LAPSE_CONFIG=%s", d->config);
	assert_int_equal(settings_load(&d->settings, 0, NULL, ARGV(env), &d->problem), LAPSE_OK);
	assert_int_equal(d->settings.message_ttl_ms, 1000);
	assert_int_equal(
		settings_load(&d->settings, 2, ARGV("--config", other), ARGV(env), &d->problem),
		LAPSE_OK);
	assert_int_equal(d->settings.message_ttl_ms, 7000);
}

static void reads_files(void **state)
{
	struct desk *d = *state;

	file_write(d->config, "# a comment\n\n   \t\n  message_ttl_ms=5000\r\n"
			      "behind_tls_proxy = true\n\tlisten =  unix:/run/a = b  \n"
			      "tls_cert =\nevent_keep_ms = 1\nevent_keep_ms = 2");
	assert_int_equal(settings_read_file(&d->settings, d->config, &d->problem), LAPSE_OK);
	assert_int_equal(d->settings.message_ttl_ms, 5000);
	assert_true(d->settings.behind_tls_proxy);
	assert_string_equal(d->settings.listen, "unix:/run/a = b");
	assert_string_equal(d->settings.tls_cert, "");
	assert_int_equal(d->settings.event_keep_ms, 2);
}

static void refuses_bad_files(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *text, *first, *second;
	} cases[] = {
		{ "message_ttl_ms 5000\n", ":1:", "name = value" },
		{ "\n\nmesage_ttl_ms = 5000\n", ":3:", "mesage_ttl_ms" },
		{ "message_ttl_ms = 1 s\n", ":1:", "a duration like" },
		{ "message_ttl_ms =\n", ":1:", "message_ttl_ms" },
		{ "message_ttl_ms = 0\n", ":1:", "message_ttl_ms" },
		{ "message_ttl_ms = 99999999999999999999\n", ":1:", "message_ttl_ms" },
		{ "message_ttl_ms = 1.5\n", ":1:", "message_ttl_ms" },
		{ "# fine\nbehind_tls_proxy = yes\n", ":2:", "behind_tls_proxy" },
		{ "listen =\n", ":1:", "listen" },
		{ "= 5\n", ":1:", "unknown setting" },
		{ "MESSAGE_TTL_MS = 5\n", ":1:", "MESSAGE_TTL_MS" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		file_write(d->config, cases[i].text);
		if (settings_read_file(&d->settings, d->config, &d->problem) != LAPSE_EINVAL)
			fail_msg("taken: %s", cases[i].text);
		if (!strstr(d->problem.message, "lapse.conf") ||
		    !strstr(d->problem.message, cases[i].first) ||
		    !strstr(d->problem.message, cases[i].second))
			fail_msg("%s gave: %s", cases[i].text, d->problem.message);
	}
}

/* Units and names as people write them, and where each value came from. */
static void reads_units(void **state)
{
	struct desk *d = *state;

	file_write(d->config,
		   "message_ttl = 1h30m\nbody_max_bytes = 2MiB\nmessage_sweep_ms = 90s\n");
	assert_int_equal(settings_read_file(&d->settings, d->config, &d->problem), LAPSE_OK);
	assert_int_equal(d->settings.message_ttl_ms, 5400000);
	assert_int_equal(d->settings.body_max_bytes, 2097152);
	assert_int_equal(d->settings.message_sweep_ms, 90000);
	assert_int_equal(d->settings.sources[SETTING_AT_message_ttl_ms], SOURCE_FILE);
	assert_int_equal(d->settings.sources[SETTING_AT_agent_sweep_ms], SOURCE_DEFAULT);
	assert_int_equal(settings_read_env(&d->settings, ARGV("LAPSE_BODY_MAX=1KiB"), &d->problem),
			 LAPSE_OK);
	assert_int_equal(d->settings.body_max_bytes, 1024);
	assert_int_equal(d->settings.sources[SETTING_AT_body_max_bytes], SOURCE_ENVIRONMENT);
	assert_int_equal(
		settings_read_flags(&d->settings, 2, ARGV("--message-ttl", "2d"), &d->problem),
		LAPSE_OK);
	assert_int_equal(d->settings.message_ttl_ms, 172800000);
	assert_int_equal(d->settings.sources[SETTING_AT_message_ttl_ms], SOURCE_FLAG);
	/* A refused value leaves the value and its source alone. */
	assert_int_equal(settings_set(&d->settings, "message_ttl", "soon", &d->problem),
			 LAPSE_EINVAL);
	assert_int_equal(d->settings.message_ttl_ms, 172800000);
	assert_int_equal(d->settings.sources[SETTING_AT_message_ttl_ms], SOURCE_FLAG);
}

static void refuses_a_missing_file(void **state)
{
	struct desk *d = *state;

	assert_int_equal(settings_read_file(&d->settings, d->config, &d->problem), LAPSE_EINVAL);
	assert_non_null(strstr(d->problem.message, "lapse.conf"));
	assert_non_null(strstr(d->problem.message, "No such file"));
}

static void reads_the_environment(void **state)
{
	struct desk *d = *state;

	assert_int_equal(
		settings_read_env(&d->settings,
				  ARGV("LAPSE_MESSAGE_TTL_MS=42", "LAPSE_CONFIG=x", "LAPSE_URL=y",
				       "LAPSE_TOKEN=z", "LAPSEX=1", "XLAPSE_FOO=1",
				       "LAPSE_BEHIND_TLS_PROXY=true", "LAPSE_LISTEN=[::1]:1"),
				  &d->problem),
		LAPSE_OK);
	assert_int_equal(d->settings.message_ttl_ms, 42);
	assert_true(d->settings.behind_tls_proxy);
	assert_string_equal(d->settings.listen, "[::1]:1");
	assert_int_equal(settings_read_env(&d->settings, NULL, &d->problem), LAPSE_OK);
}

static void refuses_bad_environments(void **state)
{
	struct desk *d = *state;
	static const struct {
		char *entry;
		const char *message;
	} cases[] = {
		{ "LAPSE_X=1", "LAPSE_X" },
		{ "LAPSE_=1", "LAPSE_" },
		{ "LAPSE_message_ttl_ms=1", "LAPSE_message_ttl_ms" },
		{ "LAPSE_CONFIGS=1", "LAPSE_CONFIGS" },
		{ "LAPSE_MESSAGE_TTL_MSX=1", "LAPSE_MESSAGE_TTL_MSX" },
		{ "LAPSE_MESSAGE_TTL_MS=", "message_ttl_ms" },
		{ "LAPSE_MESSAGE_TTL_MS=-1", "message_ttl_ms" },
		{ "LAPSE_BEHIND_TLS_PROXY=1", "behind_tls_proxy" },
		{ "LAPSE_DATA_DIR=", "data_dir" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (settings_read_env(&d->settings, ARGV("A=b", cases[i].entry), &d->problem) !=
		    LAPSE_EINVAL)
			fail_msg("taken: %s", cases[i].entry);
		if (!strstr(d->problem.message, cases[i].message) ||
		    !strstr(d->problem.message, "environment"))
			fail_msg("%s gave: %s", cases[i].entry, d->problem.message);
	}
}

static void reads_flags(void **state)
{
	struct desk *d = *state;

	assert_int_equal(
		settings_read_flags(&d->settings, 9,
				    ARGV("--message-ttl-ms=1", "--event-keep-ms", "2",
					 "--behind-tls-proxy", "--config", "ignored",
					 "--listen=a=b", "--tls-cert=", "--sweep_keep_ms=3"),
				    &d->problem),
		LAPSE_OK);
	assert_int_equal(d->settings.message_ttl_ms, 1);
	assert_int_equal(d->settings.event_keep_ms, 2);
	assert_true(d->settings.behind_tls_proxy);
	assert_string_equal(d->settings.listen, "a=b");
	assert_string_equal(d->settings.tls_cert, "");
	assert_int_equal(d->settings.sweep_keep_ms, 3);
	assert_int_equal(
		settings_read_flags(&d->settings, 1, ARGV("--behind-tls-proxy=false"), &d->problem),
		LAPSE_OK);
	assert_false(d->settings.behind_tls_proxy);
}

static void refuses_bad_flags(void **state)
{
	struct desk *d = *state;
	static const struct {
		char *flag;
		const char *message;
	} cases[] = {
		{ "--no-such", "--no-such" },
		{ "--no-such=1", "--no-such" },
		{ "message-ttl-ms=1", "message-ttl-ms=1" },
		{ "-l", "-l" },
		{ "--", "--" },
		{ "--=1", "--=1" },
		{ "--message-ttl-ms", "needs a value" },
		{ "--config", "needs a value" },
		{ "--message-ttl-ms=", "message_ttl_ms" },
		{ "--message-ttl-ms=many", "message_ttl_ms" },
		{ "--behind-tls-proxy=maybe", "behind_tls_proxy" },
		{ "--a-name-that-is-far-longer-than-any-setting-that-we-would-ever-have-in-here",
		  "unexpected" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (settings_read_flags(&d->settings, 1, ARGV(cases[i].flag), &d->problem) !=
		    LAPSE_EINVAL)
			fail_msg("taken: %s", cases[i].flag);
		if (!strstr(d->problem.message, cases[i].message))
			fail_msg("%s gave: %s", cases[i].flag, d->problem.message);
	}
}

/* A secret is taken and never given out: not as a value, not in a refusal, not as an argument. */
static void secrets_stay_secret(void **state)
{
	struct desk *d = *state;
	struct buf CLEANUP(buf_done) value = { 0 };
	char long_one[1100];

	for (size_t i = 0; i < SETTINGS_COUNT; i++) {
		const struct setting *row = &SETTINGS_TABLE[i];
		if (row->kind != SETTING_SECRET)
			continue;
		value.len = 0;
		setting_value(&d->settings, row, &value);
		assert_int_equal(value.len, 0);
		assert_int_equal(
			settings_set(&d->settings, row->name, "admin:hunter2", &d->problem),
			LAPSE_OK);
		setting_value(&d->settings, row, &value);
		assert_string_equal(buf_text(&value), "(set)");
	}
	assert_string_equal(d->settings.stalwart_credentials, "admin:hunter2");
	assert_int_equal(settings_read_flags(&d->settings, 1,
					     ARGV("--stalwart-credentials=admin:hunter3"),
					     &d->problem),
			 LAPSE_EINVAL);
	assert_null(strstr(d->problem.message, "hunter3"));
	assert_non_null(strstr(d->problem.message, "@PATH"));
	assert_int_equal(settings_read_flags(&d->settings, 2,
					     ARGV("--stalwart-credentials", "@/etc/x"),
					     &d->problem),
			 LAPSE_OK);
	assert_string_equal(d->settings.stalwart_credentials, "@/etc/x");
	memset(long_one, 'h', sizeof(long_one) - 1);
	long_one[sizeof(long_one) - 1] = '\0';
	assert_int_equal(settings_set(&d->settings, "stalwart_credentials", long_one, &d->problem),
			 LAPSE_EINVAL);
	assert_null(strstr(d->problem.message, "hhh"));
}

static void a_refused_value_changes_nothing(void **state)
{
	struct desk *d = *state;

	settings_set(&d->settings, "message_ttl_ms", "77", &d->problem);
	settings_set(&d->settings, "message_ttl_ms", "0", &d->problem);
	settings_set(&d->settings, "listen", "", &d->problem);
	assert_int_equal(d->settings.message_ttl_ms, 77);
	assert_string_equal(d->settings.listen, "127.0.0.1:7878");
	assert_int_equal(settings_set(&d->settings, "nonsense", "1", &d->problem), LAPSE_EINVAL);
	assert_string_equal(d->problem.field, "nonsense");
}

static void help_names_every_setting(void **state)
{
	struct buf CLEANUP(buf_done) help = { 0 };

	(void)state;
	settings_help(&help);
	for (size_t i = 0; i < SETTINGS_COUNT; i++) {
		char flag[64];
		snprintf(flag, sizeof(flag), "--%s", SETTINGS_TABLE[i].name);
		for (char *c = flag; *c; c++)
			*c = (char)(*c == '_' ? '-' : *c);
		if (!strstr(buf_text(&help), flag) ||
		    !strstr(buf_text(&help), SETTINGS_TABLE[i].help))
			fail_msg("%s", flag);
	}
}

static void other_names_of_the_environment(void **state)
{
	static char *const alias[] = { "RELAY_DEFAULT_TTL_MS=600000", "RELAY_MIN_TTL_MS=1000",
				       "RELAY_MAX_TTL_MS=700000",     "RELAY_SWEEP_INTERVAL_MS=20",
				       "RELAY_SWEEP_BATCH_SIZE=7",    "RELAY_CLEANUP_MAX_RETRIES=4",
				       "RELAY_SOMETHING_ELSE=x",      NULL };
	static char *const agree[] = { "RELAY_SWEEP_BATCH_SIZE=7", "LAPSE_MAILBOX_SWEEP_BATCH=7",
				       NULL };
	static char *const differ[] = { "LAPSE_MAILBOX_SWEEP_BATCH=8", "RELAY_SWEEP_BATCH_SIZE=7",
					NULL };
	static char *const wrong[] = { "RELAY_SWEEP_BATCH_SIZE=0", NULL };
	struct problem p = { 0 };
	struct settings s;

	(void)state;
	settings_init(&s);
	assert_int_equal(settings_read_env(&s, alias, &p), LAPSE_OK);
	assert_int_equal(s.mailbox_default_ttl_ms, 600000);
	assert_int_equal(s.mailbox_min_ttl_ms, 1000);
	assert_int_equal(s.mailbox_max_ttl_ms, 700000);
	assert_int_equal(s.mailbox_sweep_ms, 20);
	assert_int_equal(s.mailbox_sweep_batch, 7);
	assert_int_equal(s.mailbox_cleanup_max_retries, 4);
	assert_int_equal(settings_read_env(&s, agree, &p), LAPSE_OK);
	assert_int_equal(settings_read_env(&s, differ, &p), LAPSE_EINVAL);
	assert_non_null(strstr(p.message, "RELAY_SWEEP_BATCH_SIZE"));
	assert_int_equal(settings_read_env(&s, wrong, &p), LAPSE_EINVAL);
	assert_non_null(strstr(p.message, "RELAY_SWEEP_BATCH_SIZE"));
	settings_done(&s);
}

/* min <= default <= max, and a domain that is one. */
static void how_settings_fit_together(void **state)
{
	struct problem p = { 0 };
	struct settings s;

	(void)state;
	settings_init(&s);
	assert_int_equal(settings_check(&s, &p), LAPSE_OK);
	s.mailbox_min_ttl_ms = s.mailbox_max_ttl_ms = s.mailbox_default_ttl_ms;
	assert_int_equal(settings_check(&s, &p), LAPSE_OK);
	s.mailbox_min_ttl_ms++;
	assert_int_equal(settings_check(&s, &p), LAPSE_EINVAL);
	s.mailbox_min_ttl_ms = 1;
	s.mailbox_max_ttl_ms = s.mailbox_default_ttl_ms - 1;
	assert_int_equal(settings_check(&s, &p), LAPSE_EINVAL);
	assert_string_equal(p.field, "mailbox_default_ttl_ms");
	s.mailbox_max_ttl_ms = s.mailbox_default_ttl_ms;
	assert_int_equal(settings_set(&s, "mailbox_domain", "not a domain", &p), LAPSE_OK);
	assert_int_equal(settings_check(&s, &p), LAPSE_EINVAL);
	assert_string_equal(p.field, "mailbox_domain");
	settings_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(starts_with_the_defaults, setup, teardown),
		cmocka_unit_test(the_table_is_sound),
		cmocka_unit_test_setup_teardown(every_number_has_its_range, setup, teardown),
		cmocka_unit_test_setup_teardown(infinity_is_a_lifetime, setup, teardown),
		cmocka_unit_test_setup_teardown(later_sources_win, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_the_file_in_flag_or_environment, setup,
						teardown),
		cmocka_unit_test_setup_teardown(reads_files, setup, teardown),
		cmocka_unit_test_setup_teardown(refuses_bad_files, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_units, setup, teardown),
		cmocka_unit_test_setup_teardown(refuses_a_missing_file, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_the_environment, setup, teardown),
		cmocka_unit_test_setup_teardown(refuses_bad_environments, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_flags, setup, teardown),
		cmocka_unit_test_setup_teardown(refuses_bad_flags, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refused_value_changes_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(secrets_stay_secret, setup, teardown),
		cmocka_unit_test(help_names_every_setting),
		cmocka_unit_test(other_names_of_the_environment),
		cmocka_unit_test(how_settings_fit_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
