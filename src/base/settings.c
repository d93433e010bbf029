/* SPDX-License-Identifier: Apache-2.0 */
#include "base/settings.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/uri.h"

#define PREFIX "LAPSE_" /* of our names in the environment */

#define ROW(name, kind, number, text, min, max, unit, help, endless)                               \
	{                                                                                          \
		#name, kind,   offsetof(struct settings, name), number, text, min, max, unit,      \
		help,  endless                                                                     \
	},
#define ROW_INT(name, def, min, max, unit, help)                                                   \
	ROW(name, SETTING_INT, def, NULL, min, max, unit, help, false)
#define ROW_LIFE(name, def, min, max, unit, help)                                                  \
	ROW(name, SETTING_INT, def, NULL, min, max, unit, help, true)
#define ROW_FLAG(name, def, min, max, unit, help)                                                  \
	ROW(name, SETTING_FLAG, def, NULL, min, max, unit, help, false)
#define ROW_TEXT(name, def, min, max, unit, help)                                                  \
	ROW(name, SETTING_TEXT, 0, def, min, max, unit, help, false)
#define ROW_SECRET(name, def, min, max, unit, help)                                                \
	ROW(name, SETTING_SECRET, 0, def, min, max, unit, help, false)
#define ROW_URI(name, def, min, max, unit, help)                                                   \
	ROW(name, SETTING_URI, 0, def, min, max, unit, help, false)

const struct setting SETTINGS_TABLE[] = {
#define X(kind, name, def, min, max, unit, help) ROW_##kind(name, def, min, max, unit, help)
	SETTINGS(X)
#undef X
};
const size_t SETTINGS_COUNT = ARRAY_LEN(SETTINGS_TABLE);
_Static_assert(ARRAY_LEN(SETTINGS_TABLE) == SETTINGS_NUMBER,
	       "the index and the table are one list");

static void *member(const struct settings *s, const struct setting *row)
{
	assert(row >= SETTINGS_TABLE && row < SETTINGS_TABLE + SETTINGS_COUNT);
	return (char *)(uintptr_t)s + row->offset;
}

void settings_init(struct settings *s)
{
	memset(s->sources, SOURCE_DEFAULT, sizeof(s->sources));
	for (size_t i = 0; i < SETTINGS_COUNT; i++) {
		const struct setting *row = &SETTINGS_TABLE[i];
		switch (row->kind) {
		case SETTING_INT:
			*(int64_t *)member(s, row) = row->def_int;
			break;
		case SETTING_FLAG:
			*(bool *)member(s, row) = row->def_int != 0;
			break;
		case SETTING_TEXT:
		case SETTING_SECRET:
		case SETTING_URI:
			*(char **)member(s, row) = mem_strdup(row->def_text);
			break;
		}
	}
}

void settings_done(struct settings *s)
{
	for (size_t i = 0; i < SETTINGS_COUNT; i++)
		if (SETTINGS_TABLE[i].def_text) {
			char **text = member(s, &SETTINGS_TABLE[i]);
			free(*text);
			*text = NULL;
		}
}

/* A whole number, or with its unit as people write it. */
static int parse_int(const struct setting *row, const char *value, int64_t *ret, struct problem *p)
{
	bool is_span = strcmp(row->unit, "ms") == 0, is_size = strcmp(row->unit, "bytes") == 0;
	char *end;

	if (row->takes_infinity && strcmp(value, TTL_INFINITY) == 0) {
		*ret = LAPSE_NEVER;
		return LAPSE_OK;
	}
	errno = 0;
	int64_t n = strtoll(value, &end, 10);
	if (value[0] != '\0' && *end == '\0' && errno != ERANGE) {
		*ret = n;
		return LAPSE_OK;
	}
	if ((is_span && span_parse(value, ret)) || (is_size && bytes_parse(value, ret)))
		return LAPSE_OK;
	return problem_set(p, LAPSE_EINVAL, row->name, "%s: '%.60s' is not a whole number%s%s",
			   row->name, value, is_span || is_size ? " nor " : "",
			   is_span   ? SPAN_EXAMPLES
			   : is_size ? BYTES_EXAMPLES
				     : "");
}

static int set_int(int64_t *out, const struct setting *row, const char *value, struct problem *p)
{
	int64_t n = 0;
	int r = parse_int(row, value, &n, p);

	if (r < 0)
		return r;
	bool endless = row->takes_infinity && strcmp(value, TTL_INFINITY) == 0;
	if (!endless && (n < row->min || n > row->max))
		return problem_set(p, LAPSE_EINVAL, row->name,
				   "%s: %" PRId64 " is out of range, it must be between %" PRId64
				   " and %" PRId64 " %s",
				   row->name, n, row->min, row->max, row->unit);
	*out = n;
	return LAPSE_OK;
}

static int set_text(char **out, const struct setting *row, const char *value, struct problem *p)
{
	size_t n = strlen(value);

	if ((int64_t)n < row->min || (int64_t)n > row->max)
		return problem_set(p, LAPSE_EINVAL, row->name,
				   "%s: must be %" PRId64 " to %" PRId64 " bytes long", row->name,
				   row->min, row->max);
	free(*out);
	*out = mem_strdup(value);
	return LAPSE_OK;
}

static int set_flag(bool *out, const struct setting *row, const char *value, struct problem *p)
{
	bool yes = strcmp(value, "true") == 0;

	if (!yes && strcmp(value, "false") != 0)
		return problem_set(p, LAPSE_EINVAL, row->name,
				   "%s: must be true or false, not '%.60s'", row->name, value);
	*out = yes;
	return LAPSE_OK;
}

bool setting_is(const char *full, const char *name, size_t n)
{
	static const char *const units[] = { "", "_ms", "_bytes" };

	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strncmp(full, name, n) == 0 && strcmp(full + n, units[i]) == 0)
			return true;
	return false;
}

static const struct setting *find_setting(const char *name)
{
	for (size_t i = 0; i < SETTINGS_COUNT; i++)
		if (setting_is(SETTINGS_TABLE[i].name, name, strlen(name)))
			return &SETTINGS_TABLE[i];
	return NULL;
}

const int64_t *settings_int(const struct settings *s, const char *name)
{
	const struct setting *row = find_setting(name);

	assert(s && name);
	if (!row || row->kind != SETTING_INT)
		return NULL;
	return (const int64_t *)(const void *)((const char *)s + row->offset);
}

static int set_value(struct settings *s, const struct setting *row, const char *value,
		     struct problem *p)
{
	switch (row->kind) {
	case SETTING_INT:
		return set_int(member(s, row), row, value, p);
	case SETTING_FLAG:
		return set_flag(member(s, row), row, value, p);
	case SETTING_TEXT:
	case SETTING_SECRET:
	case SETTING_URI:
		return set_text(member(s, row), row, value, p);
	}
	return LAPSE_EINTERNAL;
}

static int set_row(struct settings *s, const struct setting *row, const char *value,
		   enum setting_source source, struct problem *p)
{
	size_t index = (size_t)(row - SETTINGS_TABLE);
	int r = set_value(s, row, value, p);

	assert(index < SETTINGS_NUMBER);
	if (r == LAPSE_OK)
		s->sources[index] = (unsigned char)source;
	return r;
}

static int set_named(struct settings *s, const char *name, const char *value,
		     enum setting_source source, struct problem *p)
{
	const struct setting *row = find_setting(name);

	if (!row)
		return problem_set(p, LAPSE_EINVAL, name, "unknown setting '%.60s'", name);
	return set_row(s, row, value, source, p);
}

int settings_set(struct settings *s, const char *name, const char *value, struct problem *p)
{
	assert(name && value);
	return set_named(s, name, value, SOURCE_PROGRAM, p);
}

static char *trim(char *s)
{
	s += strspn(s, " \t");
	size_t n = strlen(s);
	while (n > 0 && strchr(" \t\r\n", s[n - 1]))
		s[--n] = '\0';
	return s;
}

/* Keeps the message, puts where it came from in front of it. */
static int blame(struct problem *p, int err, const char *source, int line)
{
	char message[sizeof(p->message)];

	snprintf(message, sizeof(message), "%s", p->message);
	if (line)
		snprintf(p->message, sizeof(p->message), "%.80s:%d: %.160s", source, line, message);
	else
		snprintf(p->message, sizeof(p->message), "%.80s: %.160s", source, message);
	return err;
}

static int read_line(struct settings *s, char *line, struct problem *p)
{
	char *name = trim(line);

	if (name[0] == '\0' || name[0] == '#')
		return LAPSE_OK;
	char *equals = strchr(name, '=');
	if (!equals)
		return problem_set(p, LAPSE_EINVAL, NULL, "expected 'name = value'");
	*equals = '\0';
	return set_named(s, trim(name), trim(equals + 1), SOURCE_FILE, p);
}

int settings_read_file(struct settings *s, const char *path, struct problem *p)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	int r = LAPSE_OK;

	if (!f)
		return problem_set(p, LAPSE_EINVAL, "config", "cannot read %.120s: %s", path,
				   strerror(errno));
	for (int number = 1; r == LAPSE_OK && getline(&line, &cap, f) >= 0; number++) {
		r = read_line(s, line, p);
		if (r < 0)
			blame(p, r, path, number);
	}
	free(line);
	fclose(f);
	return r;
}

/* Names with this prefix that are no settings. */
static bool is_program_variable(const char *name, size_t n)
{
	static const char *const ours[] = {
		"LAPSE_CONFIG",
		"LAPSE_URL",
		"LAPSE_TOKEN",
		/* What `lapse run` and `lapse lock` give to the programs they run. */
		"LAPSE_AGENT",
		"LAPSE_CLAIM_ID",
		"LAPSE_MESSAGE_ID",
		"LAPSE_MESSAGE_FROM",
		"LAPSE_MESSAGE_TYPE",
		"LAPSE_MESSAGE_TIMESTAMP",
		"LAPSE_MESSAGE_METADATA",
		"LAPSE_LEASE_TABLE",
		"LAPSE_LEASE_KEY",
		"LAPSE_LEASE_HOLDER",
		"LAPSE_FENCING_TOKEN",
	};

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (strlen(ours[i]) == n && memcmp(ours[i], name, n) == 0)
			return true;
	return false;
}

static bool env_name_matches(const struct setting *row, const char *name, size_t n)
{
	char small[64];

	if (n >= sizeof(small))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (name[i] >= 'a' && name[i] <= 'z')
			return false;
		small[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
	}
	return setting_is(row->name, small, n);
}

static int read_variable(struct settings *s, const char *entry, struct problem *p)
{
	const size_t prefix = strlen(PREFIX);
	const char *equals = strchr(entry, '=');

	if (strncmp(entry, PREFIX, prefix) != 0 || !equals)
		return LAPSE_OK;
	size_t n = (size_t)(equals - entry);
	if (is_program_variable(entry, n))
		return LAPSE_OK;
	for (size_t i = 0; i < SETTINGS_COUNT; i++)
		if (env_name_matches(&SETTINGS_TABLE[i], entry + prefix, n - prefix)) {
			int r = set_row(s, &SETTINGS_TABLE[i], equals + 1, SOURCE_ENVIRONMENT, p);
			return r < 0 ? blame(p, r, "environment", 0) : LAPSE_OK;
		}
	return problem_set(p, LAPSE_EINVAL, NULL, "environment: unknown setting %.*s", (int)n,
			   entry);
}

/* The value of a variable, or NULL; with `row` the one of a setting's own name. */
static const char *find_variable(char *const *env, const char *name, const struct setting *row)
{
	for (; env && *env; env++) {
		size_t n = strcspn(*env, "=");
		bool ours = strncmp(*env, PREFIX, strlen(PREFIX)) == 0;
		if ((*env)[n] != '=')
			continue;
		if (row ? ours && env_name_matches(row, *env + strlen(PREFIX), n - strlen(PREFIX))
			: strlen(name) == n && memcmp(*env, name, n) == 0)
			return *env + n + 1;
	}
	return NULL;
}

const struct setting_alias SETTING_ALIASES[] = {
	{ "RELAY_DEFAULT_TTL_MS", "mailbox_default_ttl_ms" },
	{ "RELAY_MIN_TTL_MS", "mailbox_min_ttl_ms" },
	{ "RELAY_MAX_TTL_MS", "mailbox_max_ttl_ms" },
	{ "RELAY_SWEEP_INTERVAL_MS", "mailbox_sweep_ms" },
	{ "RELAY_SWEEP_BATCH_SIZE", "mailbox_sweep_batch" },
	{ "RELAY_CLEANUP_MAX_RETRIES", "mailbox_cleanup_max_retries" },
	{ 0 },
};

static int read_alias(struct settings *s, char *const *env, const struct setting_alias *a,
		      struct problem *p)
{
	const struct setting *row = find_setting(a->name);
	const char *value = find_variable(env, a->variable, NULL);
	const char *own = find_variable(env, NULL, row);

	if (!value)
		return LAPSE_OK;
	if (own && strcmp(own, value) != 0)
		return problem_set(p, LAPSE_EINVAL, a->name,
				   "environment: %s is %.40s, but LAPSE_… says that %s is %.40s: "
				   "set one of them",
				   a->variable, value, a->name, own);
	int r = set_row(s, row, value, SOURCE_ENVIRONMENT, p);
	return r < 0 ? blame(p, r, a->variable, 0) : LAPSE_OK;
}

int settings_read_env(struct settings *s, char *const *env, struct problem *p)
{
	for (char *const *e = env; e && *e; e++) {
		int r = read_variable(s, *e, p);
		if (r < 0)
			return r;
	}
	for (const struct setting_alias *a = SETTING_ALIASES; a->variable; a++) {
		int r = read_alias(s, env, a, p);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

int settings_check(const struct settings *s, struct problem *p)
{
	const char *why;

	if (s->mailbox_min_ttl_ms > s->mailbox_default_ttl_ms ||
	    s->mailbox_default_ttl_ms > s->mailbox_max_ttl_ms)
		return problem_set(p, LAPSE_EINVAL, "mailbox_default_ttl_ms",
				   "mailbox_default_ttl_ms: %" PRId64
				   " must lie between mailbox_min_ttl_ms (%" PRId64
				   ") and mailbox_max_ttl_ms (%" PRId64 ")",
				   s->mailbox_default_ttl_ms, s->mailbox_min_ttl_ms,
				   s->mailbox_max_ttl_ms);
	if (!host_is_valid(s->mailbox_domain, &why))
		return problem_set(p, LAPSE_EINVAL, "mailbox_domain", "mailbox_domain: %s", why);
	return LAPSE_OK;
}

/* One flag: its name in the file's spelling, and its value or NULL. */
struct flag {
	char name[64];
	const char *value;
	int used; /* arguments it took */
};

static int take_flag(int argc, char *const *argv, struct flag *ret, struct problem *p)
{
	const char *arg = argv[0];
	size_t n = strcspn(arg, "=");

	if (strncmp(arg, "--", 2) != 0 || n <= 2 || n - 2 >= sizeof(ret->name))
		return problem_set(p, LAPSE_EINVAL, NULL,
				   "unexpected argument '%.80s' (see --help)", arg);
	snprintf(ret->name, sizeof(ret->name), "%.*s", (int)(n - 2), arg + 2);
	for (char *c = ret->name; *c; c++)
		if (*c == '-')
			*c = '_';
	const struct setting *row = find_setting(ret->name);
	if (!row && strcmp(ret->name, "config") != 0)
		return problem_set(p, LAPSE_EINVAL, NULL, "unknown option '%.*s' (see --help)",
				   (int)n, arg);
	ret->used = 1;
	if (arg[n] == '=')
		ret->value = arg + n + 1;
	else if (row && row->kind == SETTING_FLAG)
		ret->value = "true";
	else if (argc < 2)
		return problem_set(p, LAPSE_EINVAL, NULL, "option '%s' needs a value", arg);
	else {
		ret->value = argv[1];
		ret->used = 2;
	}
	return LAPSE_OK;
}

/* `repeated` = a contract was named before: another one is added to it. */
static int set_flagged(struct settings *s, const struct flag *f, bool *repeated, struct problem *p)
{
	const struct setting *row = find_setting(f->name);

	bool secret = row && (row->kind == SETTING_SECRET ||
			      (row->kind == SETTING_URI && uri_has_password(f->value)));

	if (secret && f->value[0] != '@')
		return problem_set(p, LAPSE_EINVAL, row->name,
				   "%s: an argument can be read by everybody on this machine: give "
				   "@PATH of a file here, or use the environment",
				   row->name);
	if (row && *repeated && strcmp(row->name, "contract") == 0) {
		struct buf CLEANUP(buf_done) both = { 0 };
		buf_printf(&both, "%s:%s", s->contract, f->value);
		return set_named(s, f->name, buf_text(&both), SOURCE_FLAG, p);
	}
	*repeated = *repeated || strcmp(f->name, "contract") == 0;
	return set_named(s, f->name, f->value, SOURCE_FLAG, p);
}

int settings_read_flags(struct settings *s, int argc, char *const *argv, struct problem *p)
{
	struct flag f = { .value = "" };
	bool repeated = false;

	for (int i = 0; i < argc; i += f.used) {
		int r = take_flag(argc - i, argv + i, &f, p);
		if (r == LAPSE_OK && strcmp(f.name, "config") != 0)
			r = set_flagged(s, &f, &repeated, p);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

static int find_config(int argc, char *const *argv, char *const *env, const char **ret,
		       struct problem *p)
{
	struct flag f = { .value = "" };

	for (; env && *env; env++)
		if (strncmp(*env, "LAPSE_CONFIG=", 13) == 0)
			*ret = *env + 13;
	for (int i = 0; i < argc; i += f.used) {
		int r = take_flag(argc - i, argv + i, &f, p);
		if (r < 0)
			return r;
		if (strcmp(f.name, "config") == 0)
			*ret = f.value;
	}
	return LAPSE_OK;
}

int settings_load(struct settings *s, int argc, char *const *argv, char *const *env,
		  struct problem *p)
{
	const char *config = NULL;
	int r = find_config(argc, argv, env, &config, p);

	if (r == LAPSE_OK && config)
		r = settings_read_file(s, config, p);
	if (r == LAPSE_OK)
		r = settings_read_env(s, env, p);
	if (r == LAPSE_OK)
		r = settings_read_flags(s, argc, argv, p);
	if (r == LAPSE_OK)
		r = settings_check(s, p);
	return r;
}

void setting_value(const struct settings *s, const struct setting *row, struct buf *out)
{
	switch (row->kind) {
	case SETTING_INT:
		if (*(int64_t *)member(s, row) == LAPSE_NEVER)
			buf_puts(out, TTL_INFINITY);
		else
			buf_int(out, *(int64_t *)member(s, row));
		break;
	case SETTING_FLAG:
		buf_puts(out, *(bool *)member(s, row) ? "true" : "false");
		break;
	case SETTING_TEXT:
		buf_puts(out, *(char **)member(s, row));
		break;
	case SETTING_SECRET:
		buf_puts(out, (*(char **)member(s, row))[0] ? "(set)" : "");
		break;
	case SETTING_URI:
		uri_put_public(out, *(char **)member(s, row));
		break;
	}
}

const char *setting_source_name(enum setting_source source)
{
	switch (source) {
	case SOURCE_DEFAULT:
		return "default";
	case SOURCE_FILE:
		return "file";
	case SOURCE_ENVIRONMENT:
		return "environment";
	case SOURCE_FLAG:
		return "flag";
	case SOURCE_PROGRAM:
		return "program";
	}
	return "default";
}

static void write_uri(const char *uri, struct buf *out)
{
	struct buf CLEANUP(buf_done) shown = { 0 };

	uri_put_public(&shown, uri);
	json_text(out, buf_text(&shown));
}

void setting_write_json(const struct settings *s, const struct setting *row, struct buf *out)
{
	switch (row->kind) {
	case SETTING_INT:
		if (*(int64_t *)member(s, row) == LAPSE_NEVER)
			json_text(out, TTL_INFINITY);
		else
			json_int(out, *(int64_t *)member(s, row));
		break;
	case SETTING_FLAG:
		json_bool(out, *(bool *)member(s, row));
		break;
	case SETTING_TEXT:
		json_text(out, *(char **)member(s, row));
		break;
	case SETTING_SECRET:
		json_text(out, (*(char **)member(s, row))[0] ? "set" : NULL);
		break;
	case SETTING_URI:
		write_uri(*(char **)member(s, row), out);
		break;
	}
}

static void write_setting(const struct settings *s, const struct settings *defaults,
			  const struct setting *row, struct buf *out)
{
	json_begin(out, '{');
	json_put_text(out, "name", row->name);
	json_key(out, "value");
	setting_write_json(s, row, out);
	json_key(out, "default");
	setting_write_json(defaults, row, out);
	json_put_text(out, "source", setting_source_name(s->sources[row - SETTINGS_TABLE]));
	if (row->kind == SETTING_INT) {
		json_put_int(out, "min", row->min);
		json_put_int(out, "max", row->max);
	}
	json_put_text(out, "unit", row->unit);
	json_put_text(out, "help", row->help);
	json_end(out, '}');
}

void settings_write_json(const struct settings *s, struct buf *out)
{
	struct settings CLEANUP(settings_done) defaults;

	settings_init(&defaults);
	json_begin(out, '{');
	json_key(out, "data");
	json_begin(out, '[');
	for (size_t i = 0; i < SETTINGS_COUNT; i++)
		write_setting(s, &defaults, &SETTINGS_TABLE[i], out);
	json_end(out, ']');
	json_end(out, '}');
}

void settings_help(struct buf *out)
{
	for (size_t i = 0; i < SETTINGS_COUNT; i++) {
		const struct setting *row = &SETTINGS_TABLE[i];
		char flag[64];
		snprintf(flag, sizeof(flag), "--%s%s%s", row->name, row->unit[0] ? " " : "",
			 row->unit);
		for (char *c = flag; *c && *c != ' '; c++)
			if (*c == '_')
				*c = '-';
		buf_printf(out, "  %-36s %s", flag, row->help);
		if (row->kind == SETTING_INT)
			buf_printf(out, " (%" PRId64 ")", row->def_int);
		else if (row->def_text && row->def_text[0])
			buf_printf(out, " (%s)", row->def_text);
		buf_putc(out, '\n');
	}
}
