/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: one table gives the struct, the parser, the environment names, the flags, `lapse
 * config` and the manual page.
 *
 * File < environment < flag. A value out of range, an unknown name or a typo stops the start with
 * one clear line. The environment name is LAPSE_ + the name in capitals, the flag
 * --name-with-dashes, the line in the file `name = value`.
 *
 * A setting in ms takes "24h" as well as 86400000, one in bytes "10MiB" as well as 10485760
 * (quantity.h), and both may be named without their unit: `message_ttl = 24h`.
 *
 * To add a setting: a row below. Kinds: INT (a whole number between min and max), LIFE (an
 * INT that may be "infinity" as well, which is INT64_MAX), TEXT (bytes,
 * min and max are its length), FLAG (true or false; min and max are unused), SECRET (a text that is
 * never printed: `lapse config` only tells that it is set, and as a flag, which every user of the
 * machine can read, it must name a file: @PATH), URI (a text whose password is never printed; with
 * one, it is no flag either).
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
	X(TEXT, listen, "127.0.0.1:7878", 1, 512, "address", "the address to listen on: HOST:PORT, or unix:PATH")             \
	X(TEXT, data_dir, "lapse-data", 1, 1024, "path", "the directory of the database, the attachments and the backups") \
	X(URI, store, "sqlite", 1, 4096, "uri", "sqlite: a file in data_dir; or postgresql://…, or @PATH of a file with that") \
	X(FLAG, cluster, false, 0, 0, "", "share the PostgreSQL database of `store` with other replicas of lapsed") \
	X(INT, cluster_lease_ms, 10000, 1000, 600000, "ms", "a replica that is not heard of for longer is left out by the others") \
	X(TEXT, log_level, "info", 1, 16, "level", "debug, info, warn or error")                    \
	X(TEXT, tls_cert, "", 0, 1024, "path", "certificate chain in PEM; together with tls_key it turns TLS on") \
	X(TEXT, tls_key, "", 0, 1024, "path", "private key in PEM")                                 \
	X(FLAG, behind_tls_proxy, false, 0, 0, "", "a proxy in front ends TLS: allows a public address without TLS here") \
	X(FLAG, metrics_detail, false, 0, 0, "", "write every bucket of every histogram to /metrics instead of a third of them") \
	X(INT, connections_max, 1024, 1, 60000, "connections", "connections open at once; further ones get 503")            \
	X(INT, request_timeout_ms, 60000, 10, 3600000, "ms", "time a connection has to complete its next request") \
	X(INT, head_timeout_ms, 5000, 10, 3600000, "ms", "time a connection has to complete the headers of a request") \
	X(INT, reply_timeout_ms, 10000, 10, 3600000, "ms", "time a client has to take each 16 KiB of a reply") \
	X(INT, body_max_bytes, 1048576, 1024, 67108864, "bytes", "the largest JSON body; a larger one gets 413")       \
	X(INT, body_max_values, 100000, 100, 100000000, "values", "the most values in a JSON body; more get 413") \
	X(INT, headers_max_bytes, 8192, 1024, 1048576, "bytes", "the largest request headers; larger ones get 431")          \
	X(INT, message_ttl_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "read messages older than this are removed") \
	X(INT, message_sweep_ms, 60000, 10, DAY_MS, "ms", "pause between two sweeps of messages")   \
	X(INT, unread_max_per_agent, 10000, 1, 1000000000, "messages", "unread messages an agent may have; further ones get 429") \
	X(INT, inboxes_max_per_owner, 1000000, 1, 1000000000, "inboxes", "inboxes with messages one owner may have; a message to a further agent gets 429") \
	X(INT, stored_bytes_per_owner, 34359738368, 1024, 1125899906842624, "bytes", "bytes of one owner's messages, mails and operational tables together; more get 429") \
	X(INT, message_tail_max, 131072, 0, 10000000, "messages", "new messages kept in memory until they are filed; 0 = none")  \
	X(INT, broadcast_max_bytes, 2097152, 1024, 1073741824, "bytes", "bytes of all copies that one message to many agents makes; more get 413") \
	X(INT, agent_evict_after_ms, 90000, 10, 100 * YEAR_MS, "ms", "an agent that is silent for longer is evicted") \
	X(INT, agent_sweep_ms, 30000, 10, DAY_MS, "ms", "pause between two whole checks of the agents") \
	X(INT, agent_breaker_percent, 50, 0, 99, "%", "when more than this share of an owner's agents falls silent, they become suspect instead of being evicted; 0 turns this off") \
	X(INT, agent_breaker_min, 100, 1, 100000000, "agents", "the breaker needs at least this many silent agents of an owner") \
	X(INT, agents_max, 2000000, 1, 100000000, "agents", "agents known at once; further ones get 429") \
	X(INT, agents_max_per_owner, 1000000, 1, 100000000, "agents", "agents of one owner known at once; further ones get 429") \
	X(LIFE, attachment_ttl_ms, DAY_MS, 0, 100 * YEAR_MS, "ms", "lifetime of an attachment that asks for none, or infinity") \
	X(INT, attachment_sweep_ms, 60000, 10, DAY_MS, "ms", "pause between two sweeps of attachments") \
	X(FLAG, attachment_sweep_at_start, false, 0, 0, "", "sweep attachments when the daemon starts") \
	X(INT, attachment_max_bytes, 4294967296, 1, 1125899906842624, "bytes", "the largest attachment; a larger one gets 413") \
	X(INT, attachment_total_bytes, 68719476736, 1, 1125899906842624, "bytes", "bytes of all attachments together; more get 429") \
	X(INT, attachment_bytes_per_owner, 34359738368, 1, 1125899906842624, "bytes", "bytes of one owner's attachments together; more get 429") \
	X(TEXT, attachment_stage_roots, "", 0, 4096, "paths", "directories below which files may be staged by path, separated by :") \
	X(INT, transfers_max, 256, 1, 60000, "transfers", "uploads and downloads under way at once; further ones get 429") \
	X(INT, housekeeping_sweep_ms, 60000, 10, DAY_MS, "ms", "pause between two sweeps of lapse's own tables") \
	X(INT, event_keep_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "how long events are kept for replay")    \
	X(INT, event_ring_bytes, 16777216, 65536, 17179869184, "bytes", "memory that holds the newest events for streams")  \
	X(INT, streams_max, 1024, 1, 60000, "streams", "event streams open at once; further ones get 429") \
	X(INT, streams_max_per_owner, 512, 1, 60000, "streams", "event streams one owner may have open; further ones get 429") \
	X(INT, stream_keepalive_ms, 15000, 10, 3600000, "ms", "a stream without events sends a sign of life this often") \
	X(INT, stream_backlog_max, 100000, 1, 1000000000, "events", "a stream that is further behind skips ahead and is told of the gap") \
	X(INT, idempotency_keep_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "how long an Idempotency-Key is remembered") \
	X(INT, table_sweep_ms, 300000, 10, DAY_MS, "ms", "pause between two sweeps of the operational tables") \
	X(INT, table_sweep_batch, 10000, 1, 1000000, "rows", "rows that one batch of a sweep removes from a table") \
	X(INT, table_sweep_batches, 10, 1, 10000, "batches", "batches per table and sweep; the rest follows one second later") \
	X(INT, dedupe_window_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "how long a dedupe key is remembered if the caller names no window") \
	X(INT, presence_entries_max, 500, 1, 1000000, "entries", "presence entries per owner; a further one replaces the least recently seen") \
	X(INT, table_max_per_owner, 1000000, 1, 1000000000, "rows", "rows an owner may have in any other operational table; further ones get 429") \
	X(INT, outbox_sweep_ms, 300000, 10, DAY_MS, "ms", "pause between two sweeps of the outbox and its consumers") \
	X(INT, outbox_keep_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "how long outbox rows, and cursors that do not advance, are kept") \
	X(INT, channel_keep_ms, 7 * DAY_MS, 1, 100 * YEAR_MS, "ms", "how long finished channel_inbox items and failed channel_outbox items are kept") \
	X(INT, queue_attempts_max, 10, 1, 1000, "attempts", "claims of a queue item after which it counts as failed") \
	X(INT, queue_max_per_owner, 100000, 1, 1000000000, "items", "items an owner may have in each queue; further ones get 429") \
	X(INT, leases_max_per_owner, 100000, 1, 1000000000, "leases", "leases an owner may have in each table; further ones get 429") \
	X(INT, sweep_keep_ms, 7 * DAY_MS, 1, 100 * YEAR_MS, "ms", "how long the history of sweeps is kept") \
	X(INT, sweep_budget_ms, 1, 1, 1000, "ms", "how long one slice of a sweep may hold the store")     \
	X(INT, clock_jump_max_ms, 60000, 100, 100 * YEAR_MS, "ms", "the largest leap of the wall clock that is trusted at once") \
	X(INT, clock_accept_after_ms, 900000, 100, 7 * DAY_MS, "ms", "a leap of up to an hour is accepted after it has lasted this long") \
	X(INT, holds_max, 10000, 1, 1000000, "holds", "holds that may exist at once; further ones get 429")  \
	X(INT, tokens_max, 10000, 1, 1000000, "tokens", "tokens that may exist at once; further ones get 429") \
	X(INT, backup_keep, 7, 1, 10000, "files", "how many of the newest backups are kept")                   \
	X(INT, cleanup_max_attempts, 3, 1, 1000, "attempts", "attempts to delete something outside the store before it becomes a dead letter") \
	X(INT, mailbox_default_ttl_ms, DAY_MS, 1, 100 * YEAR_MS, "ms", "lifetime of a mailbox that asks for none") \
	X(INT, mailbox_min_ttl_ms, 300000, 1, 100 * YEAR_MS, "ms", "the shortest lifetime a mailbox may ask for") \
	X(INT, mailbox_max_ttl_ms, 7 * DAY_MS, 1, 100 * YEAR_MS, "ms", "the longest lifetime a mailbox may ask for") \
	X(INT, mailbox_sweep_ms, 300000, 10, DAY_MS, "ms", "pause between two sweeps of mailboxes") \
	X(INT, mailbox_sweep_batch, 50, 1, 10000, "mailboxes", "the most mailboxes one periodic sweep expires; deadline runs are unlimited") \
	X(INT, mailbox_cleanup_max_retries, 3, 1, 1000, "attempts", "attempts in all to delete a mail account before it becomes a dead letter") \
	X(INT, mailbox_keep_expired_ms, 30 * DAY_MS, 1, 100 * YEAR_MS, "ms", "how long an expired mailbox can be looked up") \
	X(INT, mailboxes_max, 1000000, 1, 100000000, "mailboxes", "live mailboxes that may exist at once; further ones get 429") \
	X(INT, mailboxes_max_per_owner, 500000, 1, 100000000, "mailboxes", "live mailboxes one owner may have; further ones get 429") \
	X(INT, mailbox_unread_max, 10000, 1, 1000000000, "mails", "unread mails a mailbox of the local provider may have; further ones get 429") \
	X(TEXT, mailbox_domain, "lapse.local", 1, 253, "domain", "the domain of mailboxes that ask for none") \
	X(TEXT, mailbox_provider, "local", 1, 16, "name", "where mailboxes live: local or stalwart") \
	X(TEXT, lmtp_listen, "", 0, 512, "address", "where mail arrives by LMTP: unix:PATH, or HOST:PORT on loopback; empty turns it off") \
	X(INT, lmtp_mail_max_bytes, 26214400, 1024, 268435456, "bytes", "the largest mail that LMTP accepts") \
	X(INT, lmtp_connections_max, 64, 1, 1000, "connections", "LMTP connections open at once; further ones get 421") \
	X(TEXT, stalwart_url, "", 0, 512, "url", "the mail server: https://HOST or https://HOST:PORT") \
	X(SECRET, stalwart_credentials, "", 0, 1024, "secret", "the mail server's administrator: user:password, an API key, or @PATH of a file that holds either") \
	X(TEXT, stalwart_ca_file, "", 0, 1024, "path", "PEM file with the authorities that may sign the mail server's certificate; empty: the system's") \
	X(INT, stalwart_timeout_ms, 10000, 100, 600000, "ms", "how long one operation with the mail server may take in all") \
	X(INT, stalwart_connections_max, 32, 1, 1000, "connections", "connections to the mail server at once; further operations wait") \
	X(INT, webhooks_max, 1000, 1, 100000, "webhooks", "webhooks that may exist at once; more are 429") \
	X(INT, webhooks_max_per_owner, 20, 1, 100000, "webhooks", "webhooks an owner may have; more are 429") \
	X(FLAG, webhook_allow_private, false, 0, 0, "", "webhooks may post to this machine and to private networks") \
	X(INT, webhook_timeout_ms, 10000, 10, 600000, "ms", "time a receiver has to answer a post")  \
	X(INT, webhook_retry_ms, 1000, 10, 300000, "ms", "pause after the first failed post; it doubles up to 5 minutes") \
	X(INT, webhook_give_up_ms, 3600000, 10, 7 * DAY_MS, "ms", "an event that was not taken for so long is a dead letter") \
	X(INT, webhook_disable_after_ms, DAY_MS, 10, 30 * DAY_MS, "ms", "a webhook that fails for so long is disabled") \
	X(INT, webhook_keep_ms, 7 * DAY_MS, 1, 100 * YEAR_MS, "ms", "how long dead letters and disabled webhooks are kept") \
	X(TEXT, contract, "", 0, 4096, "paths", "contracts to keep, separated by :; the flag may be repeated") \
	X(INT, wal_max_bytes, 134217728, 1048576, 17179869184, "bytes", "beyond this size of the write-ahead log, writers wait for a checkpoint") \
	X(TEXT, sqlite_synchronous, "full", 3, 6, "mode", "full or off; with off a power loss can lose answered writes")
/* clang-format on */

#define SETTING_C_INT int64_t
#define SETTING_C_LIFE int64_t
#define SETTING_C_TEXT char *
#define SETTING_C_FLAG bool
#define SETTING_C_SECRET char *
#define SETTING_C_URI char *

enum setting_kind { SETTING_INT, SETTING_TEXT, SETTING_FLAG, SETTING_SECRET, SETTING_URI };

/* Where the value in force came from; a later one wins over an earlier one. */
enum setting_source {
	SOURCE_DEFAULT,
	SOURCE_FILE,
	SOURCE_ENVIRONMENT,
	SOURCE_FLAG,
	SOURCE_PROGRAM, /* settings_set(): a program that embeds the library */
};

/* The place of each setting in SETTINGS_TABLE. */
enum setting_index {
#define X(kind, name, def, min, max, unit, help) SETTING_AT_##name,
	SETTINGS(X)
#undef X
		SETTINGS_NUMBER
};

struct settings {
#define X(kind, name, def, min, max, unit, help) SETTING_C_##kind name;
	SETTINGS(X)
#undef X
	unsigned char sources[SETTINGS_NUMBER]; /* enum setting_source of each */
};

struct setting {
	const char *name;
	enum setting_kind kind;
	size_t offset;
	int64_t def_int;      /* INT and FLAG */
	const char *def_text; /* TEXT, SECRET and URI */
	int64_t min, max;
	const char *unit, *help;
	bool takes_infinity; /* of kind LIFE */
};

extern const struct setting SETTINGS_TABLE[];
extern const size_t SETTINGS_COUNT;

void settings_init(struct settings *s); /* the defaults */
void settings_done(struct settings *s);

/* The value of an INT by its name; NULL where there is none. It follows the setting. */
const int64_t *settings_int(const struct settings *s, const char *name);

/* Whether `name` of `n` bytes, in small letters, means the setting `full`: its whole name, or that
 * without its unit. */
bool setting_is(const char *full, const char *name, size_t n);

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

/* Whether the settings fit together; call it once all are set. */
int settings_check(const struct settings *s, struct problem *p);

/* All three sources in their order, and settings_check(). */
int settings_load(struct settings *s, int argc, char *const *argv, char *const *env,
		  struct problem *p);

/* The current value as text, appended to `out`; of a secret only "(set)", or nothing, and of
 * a URI no password. */
void setting_value(const struct settings *s, const struct setting *row, struct buf *out);

/* The same as a JSON value of its kind; of a secret "set", or null. */
void setting_write_json(const struct settings *s, const struct setting *row, struct buf *out);

/* {"data": [{name, value, default, source, min, max, unit, help} …]}: what GET /v1/settings and
 * `lapse config` show. */
void settings_write_json(const struct settings *s, struct buf *out);

/* "default", "file", "environment", "flag" or "program". */
const char *setting_source_name(enum setting_source source);

/* The options part of a --help text. */
void settings_help(struct buf *out);

#endif
