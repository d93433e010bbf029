/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: options are rows, parsed by their kind into one array each, so a command reads
 * args->text[OPT_FROM] or args->number[OPT_TTL] and never sees argv.
 *
 * To add an option: a row below, and OPT_NAME in the `needs` or `takes` of the commands that have
 * it (commands.c). Options that every command has are in GLOBAL_OPTIONS (args.c).
 */
#ifndef LAPSE_CLI_ARGS_H
#define LAPSE_CLI_ARGS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "cli/outcome.h"

enum option_kind {
	KIND_FLAG,   /* given or not */
	KIND_TEXT,   /* text[] */
	KIND_TEXTS,  /* lists[] and times[]: may be repeated */
	KIND_WHOLE,  /* number[]: at least 1 */
	KIND_SPAN,   /* number[]: a duration in ms */
	KIND_LIFE,   /* number[]: a duration in ms, or LAPSE_NEVER for infinity */
	KIND_PAST,   /* number[]: a time; a duration means that long ago */
	KIND_FUTURE, /* number[]: a time; a duration means that long from now */
};

#define DEFAULT_URL "http://127.0.0.1:7878"

/* clang-format off */
#define OPTIONS(X)                                                                                 \
	/* id, spelling, kind, value, help */                                                      \
	X(FROM, "from", TEXT, "NAME", "who sends the message")                                     \
	X(TO, "to", TEXTS, "AGENT", "one more recipient; may be repeated")                         \
	X(TYPE, "type", TEXT, "TYPE", "kind of message (text)")                                    \
	X(METADATA, "metadata", TEXT, "JSON", "a JSON object that travels with the message")       \
	X(UNREAD, "unread", FLAG, NULL, "only messages that are not marked read")                  \
	X(WAIT, "wait", SPAN, "DURATION", "wait this long for what is not there yet")      \
	X(CLAIM, "claim", TEXT, "AGENT", "run the program once for each message of AGENT")         \
	X(CLAIM_ID, "claim", TEXT, "CLAIM", "the claim that the message was given out with")       \
	X(HEARTBEAT, "heartbeat", TEXT, "AGENT", "let AGENT live while the program runs")          \
	X(VISIBILITY, "visibility", SPAN, "DURATION", "how long a claim lasts without being extended (30s)") \
	X(LEASE_TTL, "ttl", SPAN, "DURATION", "how long the lease lasts without being renewed (30s)") \
	X(HOLDER, "holder", TEXT, "NAME", "who holds the lease; this machine and process by default") \
	X(LEASE_HOLDER, "holder", TEXT, "NAME", "who holds the lease")                             \
	X(FENCING_TOKEN, "fencing-token", WHOLE, "N", "only while the lease still has this token")  \
	X(ENTRY_TTL, "ttl", SPAN, "DURATION", "how long it lives unless it is put again")          \
	X(STATE_TTL, "ttl", SPAN, "DURATION", "how long the sign-in may take")                     \
	X(WINDOW, "window", SPAN, "DURATION", "how long a repetition is recognized; the daemon's default without it") \
	X(STATUS, "status", TEXT, "STATUS", "only items that are queued, processing, completed or failed") \
	X(ITEM_KEY, "key", TEXT, "KEY", "your own name for what the item is about")                \
	X(INBOX_ID, "inbox-id", TEXT, "ITEM", "the channel_inbox item that this one answers; for channel_outbox") \
	X(DEDUPE_KEY, "dedupe-key", TEXT, "KEY", "add nothing while the queue has an item with this KEY") \
	X(WORKER, "worker", TEXT, "NAME", "who does the work")                                     \
	X(ATTEMPT, "attempt", WHOLE, "N", "the attempt that the claim said")                       \
	X(ITEM_LEASE, "lease", SPAN, "DURATION", "how long the item stays with the worker, from now on (30s)") \
	X(ERROR, "error", TEXT, "TEXT", "what went wrong")                                         \
	X(RETRY, "retry", FLAG, NULL, "put the item back into the queue while it has attempts left") \
	X(CONSUMER, "consumer", TEXT, "CONSUMER", "begin where this consumer stands")              \
	X(AFTER_CURSOR, "after", TEXT, "CURSOR", "begin after this cursor")                        \
	X(TOPIC, "topic", TEXT, "TOPIC", "only rows of this topic")                                \
	X(BACKWARDS, "force", FLAG, NULL, "also move the consumer back")                           \
	X(RUN_ONCE, "once", FLAG, NULL, "end after one message, with the program's exit code")     \
	X(LIMIT, "limit", WHOLE, "N", "stop after N rows; all by default")                         \
	X(BEFORE, "before", PAST, "TIME", "all messages sent before TIME, or a DURATION ago")      \
	X(ALL, "all", FLAG, NULL, "all messages there are")                                        \
	X(DRY_RUN, "dry-run", FLAG, NULL, "only tell what would be removed")                       \
	X(REASON, "reason", TEXT, "TEXT", "why the row must stay")                                 \
	X(UNTIL, "until", FUTURE, "TIME", "when the hold ends: a time or a DURATION; never by default") \
	X(TOKEN_OWNER, "owner", TEXT, "NAME", "the owner the token acts for")                      \
	X(TOKEN_NAME, "name", TEXT, "NAME", "what people call the token: who uses it, and for what") \
	X(SCOPE, "scope", TEXTS, "SCOPE", "read, write, ROOM:read or ROOM:write; may be repeated; everything without it") \
	X(ADMIN, "admin", FLAG, NULL, "the token may use the admin routes")                        \
	X(ADOPT_LOCAL, "adopt-local", FLAG, NULL, "also move what was made without a token to that owner") \
	X(ADOPT_FROM, "from", TEXT, "NAME", "the owner that has it now (local)")                   \
	X(TTL, "ttl", SPAN, "DURATION", "lifetime; without it the token does not expire")          \
	X(CONFIG, "config", TEXT, "FILE", "read this settings file (LAPSE_CONFIG), and ask no daemon") \
	X(OFFLINE, "offline", FLAG, NULL, "show what lapsed would use if it were started here")    \
	X(DATA_DIR, "data-dir", TEXT, "DIR", "the data directory of the daemon")           \
	X(MOVE_FROM, "from", TEXT, "sqlite:DIR", "the data directory of the stopped daemon")        \
	X(MOVE_TO, "to", TEXT, "URI", "an empty database: postgresql://…, or @FILE of a file with that") \
	X(STORE, "store", TEXT, "URI", "the database: postgresql://…, or @FILE of a file with that") \
	X(APPROVE, "approve", FLAG, NULL, "also remove what would wait for approval")                \
	X(LEASE_TABLE, "create-lease-table", FLAG, NULL, "first make the table lapse_leases there")  \
	X(ALL_LETTERS, "all", FLAG, NULL, "every dead letter there is")                            \
	X(KIND, "kind", TEXT, "KIND", "only deletions of this kind: mailbox, attachment or file")  \
	X(OLDER_THAN, "older-than", SPAN, "DURATION", "only deletions first wanted longer ago than this") \
	X(YES, "yes", FLAG, NULL, "do not ask")                                                    \
	X(MAN, "man", FLAG, NULL, "print the source of the manual page")                           \
	X(CLUSTER, "cluster", TEXT, "NAME", "only agents of this cluster")                         \
	X(CAPABILITY, "capability", TEXT, "NAME", "only agents that have this capability")         \
	X(INCLUDE_SUSPECT, "include-suspect", FLAG, NULL, "also suspects, whose record is still kept") \
	X(OWN_CLUSTER, "cluster", TEXT, "NAME", "the cluster the agent belongs to")                \
	X(OWN_CAPABILITY, "capability", TEXTS, "NAME", "what the agent can do; may be repeated")   \
	X(FOLLOW, "follow", FLAG, NULL, "wait for new events, until Ctrl-C")                       \
	X(EVENT_TYPE, "type", TEXTS, "TYPE", "only these events: agent.evicted, agent, or *.expired; may be repeated") \
	X(SINCE, "since", PAST, "TIME", "begin with events of this time, or a DURATION ago")       \
	X(AFTER, "after", TEXT, "ID", "begin after the event with this id")                        \
	X(INTERVAL, "interval", SPAN, "DURATION", "time between two frames, from 100ms (1s)")      \
	X(ONCE, "once", FLAG, NULL, "print one frame and end")                                     \
	X(USERNAME, "username", TEXT, "NAME", "the part before the @; a random one by default")    \
	X(DOMAIN, "domain", TEXT, "DOMAIN", "the part after the @; the daemon's own by default")   \
	X(MAILBOX_TTL, "ttl", SPAN, "DURATION", "lifetime from now on; the daemon's default without it") \
	X(KEY, "idempotency-key", TEXT, "KEY", "the same request with the same KEY again does nothing new") \
	X(INCLUDE_EXPIRED, "include-expired", FLAG, NULL, "also show expired ones")          \
	X(FOLDER, "folder", TEXT, "FOLDER", "inbox (the default), sent, drafts, junk or all")      \
	X(MAIL_FROM, "from", TEXT, "TEXT", "only a mail whose sender has TEXT in it")              \
	X(MAIL_SUBJECT, "subject", TEXT, "TEXT", "only a mail whose subject has TEXT in it")       \
	X(CODE, "code", FLAG, NULL, "print only the code in the mail, or its link when it has no code") \
	X(LINK, "link", FLAG, NULL, "print only the link in the mail")                             \
	X(MAIL_TO, "to", TEXTS, "ADDRESS", "who gets the mail; may be repeated")                   \
	X(CC, "cc", TEXTS, "ADDRESS", "who gets a copy; may be repeated")                          \
	X(BCC, "bcc", TEXTS, "ADDRESS", "who gets a copy unseen; may be repeated")                 \
	X(SUBJECT, "subject", TEXT, "TEXT", "the mail's subject")                                  \
	X(BODY, "body", TEXT, "TEXT", "the mail's text")                                           \
	X(BODY_FILE, "body-file", TEXT, "FILE", "file with the mail's text; - is standard input")  \
	X(HTML_FILE, "html-file", TEXT, "FILE", "file with the mail as HTML; - is standard input") \
	X(STAGE_TTL, "ttl", LIFE, "DURATION", "lifetime, or infinity; the daemon's default without it") \
	X(PERSIST, "persist", FLAG, NULL, "keep it until it is removed by hand")                     \
	X(NAME, "name", TEXT, "NAME", "what the attachment is called; the file's name by default") \
	X(OUTPUT, "output", TEXT, "FILE", "where it goes, also as -o FILE; - is standard output")  \
	X(FORCE, "force", FLAG, NULL, "replace a FILE that exists")                                \
	X(WIDE, "wide", FLAG, NULL, "print whole tables and values, however wide the terminal is") \
	X(COLUMNS, "columns", TEXT, "LIST", "only these columns of a table, in this order: names with commas between them") \
	X(URL, "url", TEXT, "URL", "HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH (LAPSE_URL, else " DEFAULT_URL ")") \
	X(TOKEN_FILE, "token-file", TEXT, "FILE", "file with the token (LAPSE_TOKEN)")             \
	X(CA_FILE, "ca-file", TEXT, "FILE", "certificates to trust for https, instead of the system's") \
	X(OWNER, "owner", TEXT, "NAME", "act for this owner; needs an admin token")                \
	X(JSON, "json", FLAG, NULL, "print the daemon's answer as it is, for programs")            \
	X(JSONL, "jsonl", FLAG, NULL, "print one JSON object per line, one for each row")          \
	X(HELP, "help", FLAG, NULL, "print this help")                                             \
	X(VERSION, "version", FLAG, NULL, "print the version")

enum option_id {
#define X(id, spelling, kind, value, help) OPT_##id,
	OPTIONS(X)
#undef X
	OPTIONS_COUNT
};
/* clang-format on */

/* A list of options, as rows of commands have it. */
#define OPTIONS_NONE NULL
#define OPTIONS_OF(...) ((const uint8_t[]){ __VA_ARGS__, OPTIONS_COUNT })
_Static_assert(OPTIONS_COUNT < UINT8_MAX, "lists of options are bytes");

extern const uint8_t GLOBAL_OPTIONS[]; /* what every command takes */

struct option {
	const char *spelling; /* without the dashes */
	enum option_kind kind;
	const char *value; /* what --help calls it; NULL for a flag */
	const char *help;
};

extern const struct option OPTIONS_TABLE[OPTIONS_COUNT];

/* Whether a list has the option; NULL is the empty list. */
bool options_have(const uint8_t *list, enum option_id id);

/* What the user typed. Texts are borrowed from argv, lists from the run's arena. */
struct args {
	const struct command *command; /* NULL: none was named */
	bool has_verb;                 /* `lapse agent show`, and not the bare noun */
	const char **operands;
	size_t operand_count;
	bool given[OPTIONS_COUNT];
	const char *text[OPTIONS_COUNT];
	int64_t number[OPTIONS_COUNT];
	const char **lists[OPTIONS_COUNT];
	size_t times[OPTIONS_COUNT];
};

struct cli;

/* Fills cli->args from the words after the program's name. With --help or --version nothing is
 * missing yet; otherwise operands and needed options are checked. */
enum outcome args_parse(struct cli *cli, int argc, char *const *argv);

static inline bool args_has(const struct args *args, enum option_id id)
{
	return args->given[id];
}

/* An operand that must be there: the row of the command says so in `least`, or the caller has
 * counted. */
static inline const char *args_operand(const struct args *args, size_t i)
{
	assert(i < args->operand_count);
	return args->operands[i];
}

/* Usage errors that name the nearest command, or the nearest verb of a noun. */
enum outcome args_unknown_command(const struct cli *cli, const char *word);
enum outcome args_unknown_verb(const struct cli *cli, const struct command *noun, const char *word);

/* Reads the value of an option by its kind (values.c). Says what is wrong with it. */
enum outcome args_take_value(struct cli *cli, enum option_id id, const char *value);

#endif
