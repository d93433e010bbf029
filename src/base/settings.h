/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: one table gives the struct, the parser, the environment names, the flags, `lapse
 * config` and the manual page.
 *
 * File < environment < flag. A value out of range, an unknown name or a typo stops the start with
 * one clear line. The environment name is LAPSE_ + the name in capitals, the flag
 * --name-with-dashes, the line in the file `name = value`.
 *
 * To add a setting: a row below. Kinds: INT (a whole number between min and max), TEXT (bytes,
 * min and max are its length), FLAG (true or false; min and max are unused), SECRET (a text nobody
 * prints: `lapse config` only tells that it is set, and as a flag, which everybody on the machine
 * can read, it must name a file: @PATH).
 */
#ifndef LAPSE_BASE_SETTINGS_H
#define LAPSE_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define DAY_MS INT64_C(86400000)
#define YEAR_MS (366 * DAY_MS)

/* clang-format off */
#define SETTINGS(X)                                                                                \
	/* kind, name, default, min, max, unit, help */                                            \
	X(TEXT, listen, "127.0.0.1:7878", 1, 512, "address", "HOST:PORT, or unix:PATH")             \
	X(TEXT, data_dir, "lapse-data", 1, 1024, "path", "where the database and its backups live") \
	X(TEXT, log_level, "info", 1, 16, "level", "debug, info, warn or error")                    \
	X(TEXT, tls_cert, "", 0, 1024, "path", "certificate chain in PEM; with tls_key turns TLS on") \
	X(TEXT, tls_key, "", 0, 1024, "path", "private key in PEM")                                 \
	X(FLAG, behind_tls_proxy, false, 0, 0, "", "a proxy ends TLS: allow a public address without it") \
	X(INT, connections_max, 1024, 1, 60000, "connections", "more than that get 503")            \
	X(INT, request_timeout_ms, 60000, 10, 3600000, "ms", "time a connection has to complete its next request") \
	X(INT, body_max_bytes, 1048576, 1024, 67108864, "bytes", "a larger JSON body is 413")       \
	X(INT, headers_max_bytes, 8192, 1024, 1048576, "bytes", "larger headers are 431")          \
	X(INT, message_ttl_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "a read message older than this is removed") \
	X(INT, message_sweep_ms, 60000, 10, DAY_MS, "ms", "pause between two sweeps of messages")   \
	X(INT, unread_max_per_agent, 10000, 1, 1000000000, "messages", "unread messages an agent may have; more are 429") \
	X(INT, agent_evict_after_ms, 90000, 10, 100 * YEAR_MS, "ms", "an agent silent for longer is evicted") \
	X(INT, agent_sweep_ms, 30000, 10, DAY_MS, "ms", "pause between two whole checks of the agents") \
	X(INT, agents_max, 2000000, 1, 100000000, "agents", "agents that may be known at once; more are 429") \
	X(INT, attachment_ttl_ms, DAY_MS, 0, 100 * YEAR_MS, "ms", "lifetime of an attachment whose stager names none") \
	X(INT, attachment_sweep_ms, 60000, 10, DAY_MS, "ms", "pause between two sweeps of attachments") \
	X(FLAG, attachment_sweep_at_start, false, 0, 0, "", "sweep attachments as soon as the daemon runs") \
	X(INT, attachment_max_bytes, 4294967296, 1, 1125899906842624, "bytes", "a larger attachment is 413") \
	X(INT, attachment_total_bytes, 68719476736, 1, 1125899906842624, "bytes", "all attachments together; more are 429") \
	X(TEXT, attachment_stage_roots, "", 0, 4096, "paths", "directories, with : between them, below which files may be staged by path") \
	X(INT, transfers_max, 256, 1, 60000, "transfers", "uploads and downloads under way at once; more are 429") \
	X(INT, housekeeping_sweep_ms, 60000, 10, DAY_MS, "ms", "pause between two sweeps of lapse's own tables") \
	X(INT, event_keep_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "how long events can be replayed")    \
	X(INT, event_ring_bytes, 16777216, 65536, 17179869184, "bytes", "memory for the newest events, for streams")  \
	X(INT, streams_max, 1024, 1, 60000, "streams", "streams of events that may be open; more are 429") \
	X(INT, stream_keepalive_ms, 15000, 10, 3600000, "ms", "a stream without events says that it is alive") \
	X(INT, stream_backlog_max, 100000, 1, 1000000000, "events", "a stream further behind gets a gap") \
	X(INT, idempotency_keep_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "how long an Idempotency-Key is remembered") \
	X(INT, sweep_keep_ms, 7 * DAY_MS, 1, 100 * YEAR_MS, "ms", "how long the history of sweeps is kept") \
	X(INT, sweep_budget_ms, 1, 1, 1000, "ms", "time a slice of a sweep may hold the store")     \
	X(INT, clock_jump_max_ms, 60000, 100, 100 * YEAR_MS, "ms", "the wall clock may leap so far; more is not trusted") \
	X(INT, clock_accept_after_ms, 900000, 100, 7 * DAY_MS, "ms", "a leap of up to an hour that stays so long is accepted") \
	X(INT, holds_max, 10000, 1, 1000000, "holds", "holds that may exist at once; more are 429")  \
	X(INT, tokens_max, 10000, 1, 1000000, "tokens", "tokens that may exist at once; more are 429") \
	X(INT, backup_keep, 7, 1, 10000, "files", "newest backups that are kept")                   \
	X(INT, cleanup_max_attempts, 3, 1, 1000, "attempts", "attempts at a deletion outside before it is a dead letter") \
	X(INT, mailbox_default_ttl_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "lifetime of a mailbox that asks for none") \
	X(INT, mailbox_min_ttl_ms, 300000, 1, 100 * YEAR_MS, "ms", "the shortest lifetime a mailbox may ask for") \
	X(INT, mailbox_max_ttl_ms, 7 * DAY_MS, 1, 100 * YEAR_MS, "ms", "the longest lifetime a mailbox may ask for") \
	X(INT, mailbox_sweep_ms, 300000, 10, DAY_MS, "ms", "pause between two sweeps of mailboxes") \
	X(INT, mailbox_sweep_batch, 50, 1, 10000, "mailboxes", "that one sweep lets expire at most; deadlines take all") \
	X(INT, mailbox_cleanup_max_retries, 3, 1, 1000, "attempts", "attempts, in all, to delete a mail account before it is a dead letter") \
	X(INT, mailbox_keep_expired_ms, 30 * DAY_MS, 1, 100 * YEAR_MS, "ms", "how long an expired mailbox can be looked up") \
	X(INT, mailboxes_max, 1000000, 1, 100000000, "mailboxes", "live mailboxes that may exist at once; more are 429") \
	X(INT, mailbox_unread_max, 10000, 1, 1000000000, "mails", "unread mails a mailbox of the provider local may have; more are 429") \
	X(TEXT, mailbox_domain, "lapse.local", 1, 253, "domain", "of addresses that ask for none") \
	X(TEXT, mailbox_provider, "local", 1, 16, "name", "where mailboxes live: local or stalwart") \
	X(TEXT, stalwart_url, "", 0, 512, "url", "of the mail server: https://HOST or https://HOST:PORT") \
	X(SECRET, stalwart_credentials, "", 0, 1024, "secret", "of its administrator: user:password, an API key, or @PATH of a file with it") \
	X(TEXT, stalwart_ca_file, "", 0, 1024, "path", "PEM file of the authorities its certificate must come from; empty: the system's") \
	X(INT, stalwart_timeout_ms, 10000, 100, 600000, "ms", "time an operation with the mail server may take in all") \
	X(INT, stalwart_connections_max, 32, 1, 1000, "connections", "connections to the mail server at once; more wait") \
	X(INT, wal_max_bytes, 134217728, 1048576, 17179869184, "bytes", "writers wait for a checkpoint beyond this") \
	X(TEXT, sqlite_synchronous, "full", 3, 6, "mode", "full, or off: off loses answered writes on power loss")
/* clang-format on */

#define SETTING_C_INT int64_t
#define SETTING_C_TEXT char *
#define SETTING_C_FLAG bool
#define SETTING_C_SECRET char *

struct settings {
#define X(kind, name, def, min, max, unit, help) SETTING_C_##kind name;
	SETTINGS(X)
#undef X
};

enum setting_kind { SETTING_INT, SETTING_TEXT, SETTING_FLAG, SETTING_SECRET };

struct setting {
	const char *name;
	enum setting_kind kind;
	size_t offset;
	int64_t def_int;      /* INT and FLAG */
	const char *def_text; /* TEXT and SECRET */
	int64_t min, max;
	const char *unit, *help;
};

extern const struct setting SETTINGS_TABLE[];
extern const size_t SETTINGS_COUNT;

void settings_init(struct settings *s); /* the defaults */
void settings_done(struct settings *s);

/* Sets one by its name in the file's spelling (message_ttl_ms). */
int settings_set(struct settings *s, const char *name, const char *value, struct problem *p);

/* Reads `name = value` lines; empty lines and lines that start with # are skipped. */
int settings_read_file(struct settings *s, const char *path, struct problem *p);

/* Other names of some settings in the environment, from where they had them first. Given under both
 * names, a setting must have one value. */
struct setting_alias {
	const char *variable, *name;
};
extern const struct setting_alias SETTING_ALIASES[]; /* ends with a row without a name */

/* Takes LAPSE_… from the environment. LAPSE_CONFIG, LAPSE_URL and LAPSE_TOKEN belong to the
 * programs themselves; any other unknown LAPSE_ name is an error. */
int settings_read_env(struct settings *s, char *const *env, struct problem *p);

/* Takes --name value, --name=value and, for flags, --name alone. `argv` is without the program's
 * name. --config FILE is skipped: the caller has read it already. */
int settings_read_flags(struct settings *s, int argc, char *const *argv, struct problem *p);

/* What no single setting can say: how they fit together. Whoever has set them all asks. */
int settings_check(const struct settings *s, struct problem *p);

/* All three sources in their order, and settings_check(). */
int settings_load(struct settings *s, int argc, char *const *argv, char *const *env,
		  struct problem *p);

/* The current value as text, appended to `out`; of a secret only "(set)", or nothing. */
void setting_value(const struct settings *s, const struct setting *row, struct buf *out);

/* The options part of a --help text. */
void settings_help(struct buf *out);

#endif
