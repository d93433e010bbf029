/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions. `lapse completion SHELL` prints a short script that asks `lapse complete -- WORDS`
 * for every Tab; what may come next is decided here, from the tables of commands and options, with
 * names that the daemon knows now.
 *
 * An answer is one candidate per line, a tab and a few words about it. The line ":files" means that
 * the shell should offer files.
 */
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "base/json.h"
#include "base/settings.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define ASK_MS 1000 /* a Tab must not hang on a daemon that is slow */
#define FILES ":files"

/* What was typed, as far as it says what comes next. */
struct typed {
	struct cli *cli;
	const struct command *command; /* NULL: none yet */
	bool has_verb;
	const char *operands[4]; /* the first of them */
	size_t operand_count;
	enum option_id option; /* whose value is being typed; OPTIONS_COUNT: none */
	const char *last;      /* the word under the cursor; may be empty */
	json_t *seen;          /* candidates that were printed */
};

static void offer(struct typed *t, const char *word, const char *about)
{
	struct buf CLEANUP(buf_done) safe = { 0 };
	struct buf CLEANUP(buf_done) text = { 0 };

	text_escape(&safe, word, strlen(word));
	/* A name that cannot be typed as it is shown is not offered. */
	if (strncmp(word, t->last, strlen(t->last)) != 0 || strcmp(buf_text(&safe), word) != 0 ||
	    json_object_get(t->seen, word))
		return;
	json_object_set_new(t->seen, word, json_true());
	if (about)
		text_escape(&text, about, strlen(about));
	printf("%s\t%s\n", word, buf_text(&text));
}

/* The option of a word like --url or --url=x that the command knows; OPTIONS_COUNT for none. */
static enum option_id option_of(const struct typed *t, const char *word)
{
	size_t n = strcspn(word, "=");

	for (enum option_id id = 0; id < OPTIONS_COUNT && strncmp(word, "--", 2) == 0; id++)
		if (strlen(OPTIONS_TABLE[id].spelling) == n - 2 &&
		    memcmp(OPTIONS_TABLE[id].spelling, word + 2, n - 2) == 0 &&
		    (options_have(GLOBAL_OPTIONS, id) ||
		     (t->command && (options_have(t->command->needs, id) ||
				     options_have(t->command->takes, id)))))
			return id;
	return OPTIONS_COUNT;
}

/* Where the daemon is, as typed before the word under the cursor. */
static void take_value(struct typed *t, enum option_id id, const char *value)
{
	struct args *args = &t->cli->args;

	if (id != OPT_URL && id != OPT_TOKEN_FILE && id != OPT_CA_FILE && id != OPT_OWNER)
		return;
	args->given[id] = true;
	args->text[id] = value;
}

static void take_word(struct typed *t, const char *word)
{
	if (!t->command) {
		t->command = command_find_word(word);
		t->has_verb = t->command &&
			      (strchr(t->command->name, ' ') || command_word_is_short(word));
		return;
	}
	const struct command *verb = NULL;
	if (!t->has_verb && t->operand_count == 0)
		verb = command_find_verb(t->command, word);
	if (verb) {
		t->command = verb;
		t->has_verb = true;
		return;
	}
	if (t->operand_count < ARRAY_LEN(t->operands))
		t->operands[t->operand_count] = word;
	t->operand_count++;
}

/* Reads all words but the last, which is being typed. */
static void read_words(struct typed *t)
{
	const struct args *args = &t->cli->args;
	size_t n = args->operand_count;

	t->option = OPTIONS_COUNT;
	t->last = n > 0 ? args->operands[n - 1] : "";
	for (size_t i = 0; i + 1 < n; i++) {
		const char *word = args->operands[i], *equals = strchr(word, '=');
		enum option_id id = option_of(t, word);
		if (word[0] != '-' || word[1] == '\0') {
			take_word(t, word);
		} else if (id != OPTIONS_COUNT && equals) {
			take_value(t, id, equals + 1);
		} else if (id != OPTIONS_COUNT && OPTIONS_TABLE[id].kind != KIND_FLAG) {
			if (i + 2 < n)
				take_value(t, id, args->operands[++i]);
			else
				t->option = id;
		}
	}
}

static void offer_options(struct typed *t)
{
	for (enum option_id id = 0; id < OPTIONS_COUNT; id++) {
		char word[64];
		snprintf(word, sizeof(word), "--%s", OPTIONS_TABLE[id].spelling);
		if (option_of(t, word) == id)
			offer(t, word, OPTIONS_TABLE[id].help);
	}
}

static void offer_commands(struct typed *t)
{
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (!strchr(COMMANDS[i].name, ' '))
			offer(t, COMMANDS[i].name, COMMANDS[i].summary);
	for (size_t i = 0; i < ALIASES_COUNT; i++)
		if (ALIASES[i].is_short)
			offer(t, ALIASES[i].word, command_find(ALIASES[i].means)->summary);
}

static void offer_verbs(struct typed *t, const struct command *noun)
{
	for (size_t i = 0; i < COMMANDS_COUNT; i++) {
		const char *verb = strchr(COMMANDS[i].name, ' ');
		if (verb && command_of_noun(&COMMANDS[i], noun))
			offer(t, verb + 1, COMMANDS[i].summary);
	}
}

/* Operands whose values the daemon knows. To complete another one: a row. */
static const struct live {
	const char *operand, *noun; /* NULL: of any noun */
	const char *path;           /* a % is the operand before */
	const char *key, *about;
} LIVE[] = {
	{ "AGENT", NULL, "/v1/agents", "agent_id", "cluster_id" },
	{ "ID", "mailbox", "/v1/mailboxes", "id", "address" },
	{ "ID", "dead-letter", "/v1/dead-letters", "id", "target" },
	{ "ID", "message", "/v1/agents/%/messages", "id", "content" },
	{ "MESSAGE", "mailbox", "/v1/mailboxes/%/messages", "id", "subject" },
	{ "CHECKSUM", NULL, "/v1/attachments", "checksum", "name" },
	{ "SCHEDULER", NULL, "/v1/matrix", "scheduler", NULL },
	{ "TABLE", NULL, "/v1/matrix", "table", "action" },
	{ "PREFIX", NULL, "/v1/tokens", "prefix", "owner" },
	{ "NAME", "capability", "/v1/capabilities", "capability", NULL },
	{ "KEY", "lease", "/v1/leases/%", "key", "holder" },
	{ "KEY", "entry", "/v1/tables/%", "key", "expires_at" },
	{ "ID", "queue", "/v1/queues/%", "id", "status" },
	{ "OWNER", "quota", "/v1/quotas", "owner", NULL },
	{ "CONSUMER", "outbox", "/v1/outbox/consumers", "name", "cursor" },
};

/* Operands and values of options whose words do not change. Found here, the daemon is not asked. */
static const struct fixed {
	const char *operand, *noun;
	const char *words[7];
} FIXED[] = {
#define LEASE_TABLES                                                                               \
	{                                                                                          \
		"conversation_leases", "workspace_leases", "oauth_refresh_leases",                 \
			"models_dev_refresh_leases"                                                \
	}
	{ "TABLE", "lease", LEASE_TABLES },
	{ "TABLE", "lock", LEASE_TABLES },
	{ "TABLE", "entry", { "presence_entries", "connections" } },
	{ "TABLE", "queue", { "channel_inbox", "channel_outbox" } },
	{ "LIMIT",
	  "quota",
	  { "agents=", "mailboxes=", "inboxes=", "streams=", "stored_bytes=",
	    "attachment_bytes=" } },
	{ "STATUS", "queue", { "queued", "processing", "completed", "failed" } },
};

static void offer_live(struct typed *t, const struct live *live)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) ignored = { 0 };
	struct request request = { .method = "GET",
				   .path = live->path,
				   .segments = { t->operands[0] },
				   .timeout_ms = ASK_MS };
	const json_t *row;
	size_t i;

	if (strchr(live->path, '%') && t->operand_count == 0)
		return;
	t->cli->complaint = &ignored;
	enum outcome r = client_call(t->cli, &request, &answer);
	t->cli->complaint = NULL;
	if (r != OUTCOME_OK)
		return;
	json_array_foreach (json_object_get(answer.json, "data"), i, row) {
		const char *word = json_string_value(json_object_get(row, live->key));
		const char *about =
			live->about ? json_string_value(json_object_get(row, live->about)) : NULL;
		if (word)
			offer(t, word, about);
	}
}

/* The name of the n-th operand of "AGENT [ID]...", without brackets and dots; the last one when it
 * repeats. */
static void operand_at(const char *operands, size_t n, char *out, size_t room)
{
	size_t len = 0;

	for (; n > 0 && strchr(operands, ' '); n--)
		operands = strchr(operands, ' ') + 1;
	for (const char *c = operands; *c && *c != ' ' && len + 1 < room; c++)
		if (isupper((unsigned char)*c) || *c == '_')
			out[len++] = *c;
	out[len] = '\0';
}

/* Whether a row for the operand of that noun (NULL: of any) is meant here. */
static bool row_fits(const struct typed *t, const char *operand, const char *noun,
		     const char *wanted)
{
	const char *name = t->command ? t->command->name : "";
	size_t n = noun ? strlen(noun) : 0;

	return strcmp(operand, wanted) == 0 &&
	       (!noun || (strncmp(name, noun, n) == 0 && strchr(" ", name[n])));
}

static bool offer_fixed(struct typed *t, const char *operand)
{
	for (size_t i = 0; i < ARRAY_LEN(FIXED); i++) {
		if (!row_fits(t, FIXED[i].operand, FIXED[i].noun, operand))
			continue;
		for (const char *const *word = FIXED[i].words; *word; word++)
			offer(t, *word, NULL);
		return true;
	}
	return false;
}

static void offer_named(struct typed *t, const char *operand)
{
	if (offer_fixed(t, operand))
		return;
	for (size_t i = 0; i < ARRAY_LEN(LIVE); i++)
		if (row_fits(t, LIVE[i].operand, LIVE[i].noun, operand))
			offer_live(t, &LIVE[i]);
	if (strcmp(operand, "FILE") == 0 || strcmp(operand, "DIR") == 0 ||
	    strcmp(operand, "PROGRAM") == 0 || strcmp(operand, "ARG") == 0)
		puts(FILES);
	if (strcmp(operand, "SHELL") == 0)
		for (const char *const *s = COMPLETION_SHELLS; *s; s++)
			offer(t, *s, NULL);
}

static void offer_settings(struct typed *t)
{
	for (size_t i = 0; i < SETTINGS_COUNT; i++)
		offer(t, SETTINGS_TABLE[i].name, SETTINGS_TABLE[i].help);
}

static void offer_operands(struct typed *t)
{
	const struct command *c = t->command;
	char operand[32];

	assert(c);
	if (!t->has_verb && t->operand_count == 0)
		offer_verbs(t, c);
	if (t->operand_count >= (size_t)c->most)
		return;
	operand_at(c->operands, t->operand_count, operand, sizeof(operand));
	if (strcmp(c->name, "config") == 0)
		offer_settings(t);
	else if (strcmp(c->name, "help") == 0 && t->operand_count == 0)
		offer_commands(t);
	else if (strcmp(c->name, "help") == 0 && command_find_word(t->operands[0]))
		offer_verbs(t, command_find_word(t->operands[0]));
	else
		offer_named(t, operand);
}

enum outcome cmd_complete(struct cli *cli)
{
	json_t *CLEANUP(json_freep) seen = json_object();
	struct typed t = { .cli = cli, .seen = seen };

	read_words(&t);
	if (t.option != OPTIONS_COUNT)
		offer_named(&t, OPTIONS_TABLE[t.option].value);
	else if (t.last[0] == '-')
		offer_options(&t);
	else if (!t.command)
		offer_commands(&t);
	else
		offer_operands(&t);
	return OUTCOME_OK;
}
