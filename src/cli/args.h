/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: options are rows, parsed by their kind into one array each, so a command reads
 * args->text[OPT_FROM] or args->number[OPT_TTL] and never sees argv.
 *
 * To add an option: a row below, and OPT(NAME) in the `needs` or `takes` of the commands that have
 * it (commands.c). Options every command has are GLOBAL_OPTIONS.
 */
#ifndef LAPSE_CLI_ARGS_H
#define LAPSE_CLI_ARGS_H

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
	X(WAIT, "wait", SPAN, "DURATION", "when there is no message, wait this long for one")      \
	X(LIMIT, "limit", WHOLE, "N", "stop after N rows; all by default")                         \
	X(BEFORE, "before", PAST, "TIME", "all messages sent before TIME, or a DURATION ago")      \
	X(ALL, "all", FLAG, NULL, "all messages there are")                                        \
	X(DRY_RUN, "dry-run", FLAG, NULL, "only tell what would be removed")                       \
	X(REASON, "reason", TEXT, "TEXT", "why the row must stay")                                 \
	X(UNTIL, "until", FUTURE, "TIME", "when the hold ends: a time or a DURATION; never by default") \
	X(TOKEN_OWNER, "owner", TEXT, "NAME", "the owner the token acts for")                      \
	X(ADMIN, "admin", FLAG, NULL, "the token may use the admin routes")                        \
	X(TTL, "ttl", SPAN, "DURATION", "lifetime; without it the token does not expire")          \
	X(CONFIG, "config", TEXT, "FILE", "the daemon's settings file (LAPSE_CONFIG)")             \
	X(DATA_DIR, "data-dir", TEXT, "DIR", "the data directory of the stopped daemon")           \
	X(YES, "yes", FLAG, NULL, "do not ask")                                                    \
	X(MAN, "man", FLAG, NULL, "print the source of the manual page")                           \
	X(CLUSTER, "cluster", TEXT, "NAME", "only agents of this cluster")                         \
	X(CAPABILITY, "capability", TEXT, "NAME", "only agents that have this capability")         \
	X(OWN_CLUSTER, "cluster", TEXT, "NAME", "the cluster the agent belongs to")                \
	X(OWN_CAPABILITY, "capability", TEXTS, "NAME", "what the agent can do; may be repeated")   \
	X(FOLLOW, "follow", FLAG, NULL, "wait for new events, until Ctrl-C")                       \
	X(AFTER, "after", TEXT, "ID", "begin after the event with this id")                        \
	X(INTERVAL, "interval", SPAN, "DURATION", "time between two frames, from 100ms (1s)")      \
	X(ONCE, "once", FLAG, NULL, "print one frame and end")                                     \
	X(USERNAME, "username", TEXT, "NAME", "the part before the @; a random one by default")    \
	X(DOMAIN, "domain", TEXT, "DOMAIN", "the part after the @; the daemon's own by default")   \
	X(MAILBOX_TTL, "ttl", SPAN, "DURATION", "lifetime from now on; the daemon's default without it") \
	X(KEY, "idempotency-key", TEXT, "KEY", "the same request with the same KEY again does nothing new") \
	X(INCLUDE_EXPIRED, "include-expired", FLAG, NULL, "also those that have expired")          \
	X(FOLDER, "folder", TEXT, "FOLDER", "inbox (the default), sent, drafts, junk or all")      \
	X(MAIL_TO, "to", TEXTS, "ADDRESS", "who gets the mail; may be repeated")                   \
	X(CC, "cc", TEXTS, "ADDRESS", "who gets a copy; may be repeated")                          \
	X(BCC, "bcc", TEXTS, "ADDRESS", "who gets a copy unseen; may be repeated")                 \
	X(SUBJECT, "subject", TEXT, "TEXT", "the mail's subject")                                  \
	X(BODY, "body", TEXT, "TEXT", "the mail's text")                                           \
	X(BODY_FILE, "body-file", TEXT, "FILE", "file with the mail's text; - is standard input")  \
	X(HTML_FILE, "html-file", TEXT, "FILE", "file with the mail as HTML; - is standard input") \
	X(STAGE_TTL, "ttl", LIFE, "DURATION", "lifetime, or infinity; the daemon's default without it") \
	X(PERSIST, "persist", FLAG, NULL, "keep it until somebody removes it")                     \
	X(NAME, "name", TEXT, "NAME", "what the attachment is called; the file's name by default") \
	X(OUTPUT, "output", TEXT, "FILE", "where it goes, also as -o FILE; - is standard output")  \
	X(FORCE, "force", FLAG, NULL, "replace a FILE that exists")                                \
	X(URL, "url", TEXT, "URL", "http://HOST:PORT, https://HOST:PORT or unix:PATH (LAPSE_URL, else " DEFAULT_URL ")") \
	X(TOKEN_FILE, "token-file", TEXT, "FILE", "file with the token (LAPSE_TOKEN)")             \
	X(CA_FILE, "ca-file", TEXT, "FILE", "certificates to trust for https, instead of the system's") \
	X(OWNER, "owner", TEXT, "NAME", "act for this owner; needs an admin token")                \
	X(JSON, "json", FLAG, NULL, "print the daemon's answer as it is, for programs")            \
	X(HELP, "help", FLAG, NULL, "print this help")                                             \
	X(VERSION, "version", FLAG, NULL, "print the version")

enum option_id {
#define X(id, spelling, kind, value, help) OPT_##id,
	OPTIONS(X)
#undef X
	OPTIONS_COUNT
};
/* clang-format on */

#define OPT(id) (UINT64_C(1) << OPT_##id)
#define GLOBAL_OPTIONS                                                                             \
	(OPT(URL) | OPT(TOKEN_FILE) | OPT(CA_FILE) | OPT(OWNER) | OPT(JSON) | OPT(HELP) |          \
	 OPT(VERSION))

struct option {
	const char *spelling; /* without the dashes */
	enum option_kind kind;
	const char *value; /* what --help calls it; NULL for a flag */
	const char *help;
};

extern const struct option OPTIONS_TABLE[OPTIONS_COUNT];

/* What the user typed. Texts are borrowed from argv, lists from the run's arena. */
struct args {
	const struct command *command; /* NULL: none was named */
	const char *group;             /* "hold" in `lapse hold place`; NULL outside a group */
	const char **operands;
	size_t operand_count;
	uint64_t given; /* OPT(…) of every option that was there */
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
	return args->given >> id & 1;
}

/* "500ms", "30s", "5m", "2h", "7d". */
bool span_parse(const char *text, int64_t *ret_ms);

#endif
