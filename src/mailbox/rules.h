/* SPDX-License-Identifier: Apache-2.0 */
/* What the life of a mailbox is, and what it may be called: pure decisions, no clock, no store. */
#ifndef LAPSE_MAILBOX_RULES_H
#define LAPSE_MAILBOX_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/cleanup.h"

#define USERNAME_MIN 3
#define USERNAME_MAX 32

enum mailbox_status {
	MAILBOX_PROVISIONING, /* its account is being made; no caller sees it */
	MAILBOX_ACTIVE,
	MAILBOX_EXPIRED,
	MAILBOX_DELETED, /* by its owner, or never finished; the row stays until it is clean */
};

const char *mailbox_status_name(enum mailbox_status status);
enum mailbox_status mailbox_status_parse(const char *name); /* one of the names above */

/* What a caller wants of it: to know (get, list), or to use it (messages, send, renew). */
enum mailbox_use { MAILBOX_INFO, MAILBOX_OPERATE };

enum mailbox_answer {
	MAILBOX_SHOW_ACTIVE,  /* go on */
	MAILBOX_SHOW_EXPIRED, /* 200, and it says that it has expired */
	MAILBOX_REFUSE,       /* 410 */
	MAILBOX_HIDE,         /* 404 */
};

/* The seed's decision tables: `expire` = this look is what lets it expire. */
struct mailbox_verdict {
	enum mailbox_answer answer;
	bool expire;
};

struct mailbox_verdict mailbox_judge(enum mailbox_status status, lapse_ms expires_at,
				     enum mailbox_use use, lapse_ms now);

/* Past its deadline: expires_at < now. At the very millisecond it still lives. */
bool mailbox_is_due(lapse_ms expires_at, lapse_ms now);
lapse_ms mailbox_deadline(lapse_ms expires_at); /* the first millisecond it is due */

/* The seed's stalwart_cleanup_failed: 0, 1, -1. One that a person let go is clean for us. */
int mailbox_cleanup_flag(enum cleanup_state state);

/* What became of its account, as its owner is told. One that is over and not marked as such (held,
 * or just restored) has an account that waits to be deleted. */
enum mailbox_account { ACCOUNT_CLEAN, ACCOUNT_PENDING, ACCOUNT_DEAD_LETTER };
enum mailbox_account mailbox_account(enum mailbox_status status, lapse_ms expires_at,
				     int64_t cleanup_failed, lapse_ms now);
const char *mailbox_account_name(enum mailbox_account account);

/* Whether it is shown as active; as expired otherwise, whatever the row says. */
bool mailbox_is_live(enum mailbox_status status, lapse_ms expires_at, lapse_ms now);

/* 3–32 of a–z, 0–9, '.', '-', a letter or digit at both ends, no two of ".-" in a row. */
bool username_is_valid(const char *text);

/* A name that can be read aloud and not be guessed, from `random`, which may have any bytes. */
#define USERNAME_RANDOM_BYTES 8
void username_make(const unsigned char random[USERNAME_RANDOM_BYTES], char out[USERNAME_MAX + 1]);

#endif
