/* SPDX-License-Identifier: Apache-2.0 */
#include "mailbox/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const char *const STATUSES[] = {
	[MAILBOX_PROVISIONING] = "provisioning",
	[MAILBOX_ACTIVE] = "active",
	[MAILBOX_EXPIRED] = "expired",
	[MAILBOX_DELETED] = "deleted",
};

const char *mailbox_status_name(enum mailbox_status status)
{
	return STATUSES[status];
}

enum mailbox_status mailbox_status_parse(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(STATUSES); i++)
		if (strcmp(STATUSES[i], name) == 0)
			return (enum mailbox_status)i;
	return MAILBOX_DELETED; /* not a word of ours: treat the row as gone */
}

bool mailbox_is_due(lapse_ms expires_at, lapse_ms now)
{
	return expires_at < now;
}

lapse_ms mailbox_deadline(lapse_ms expires_at)
{
	return time_add(expires_at, 1);
}

struct mailbox_verdict mailbox_judge(enum mailbox_status status, lapse_ms expires_at,
				     enum mailbox_use use, lapse_ms now)
{
	enum mailbox_answer over = use == MAILBOX_INFO ? MAILBOX_SHOW_EXPIRED : MAILBOX_REFUSE;

	switch (status) {
	case MAILBOX_PROVISIONING:
	case MAILBOX_DELETED:
		return (struct mailbox_verdict){ MAILBOX_HIDE, false };
	case MAILBOX_EXPIRED:
		return (struct mailbox_verdict){ over, false };
	case MAILBOX_ACTIVE:
		if (mailbox_is_due(expires_at, now))
			return (struct mailbox_verdict){ over, true };
		break;
	}
	return (struct mailbox_verdict){ MAILBOX_SHOW_ACTIVE, false };
}

int mailbox_cleanup_flag(enum cleanup_state state)
{
	switch (state) {
	case CLEANUP_DONE:
	case CLEANUP_DROPPED:
		return 0;
	case CLEANUP_PENDING:
		return 1;
	case CLEANUP_DEAD:
		break;
	}
	return -1;
}

bool mailbox_is_live(enum mailbox_status status, lapse_ms expires_at, lapse_ms now)
{
	return status == MAILBOX_ACTIVE && !mailbox_is_due(expires_at, now);
}

enum mailbox_account mailbox_account(enum mailbox_status status, lapse_ms expires_at,
				     int64_t cleanup_failed, lapse_ms now)
{
	if (cleanup_failed < 0)
		return ACCOUNT_DEAD_LETTER;
	bool waits = status == MAILBOX_ACTIVE && mailbox_is_due(expires_at, now);
	return cleanup_failed > 0 || waits ? ACCOUNT_PENDING : ACCOUNT_CLEAN;
}

const char *mailbox_account_name(enum mailbox_account account)
{
	static const char *const names[] = {
		[ACCOUNT_CLEAN] = "clean",
		[ACCOUNT_PENDING] = "pending",
		[ACCOUNT_DEAD_LETTER] = "dead_letter",
	};

	return names[account];
}

static bool is_letter_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool username_is_valid(const char *text)
{
	size_t n = strlen(text);

	if (n < USERNAME_MIN || n > USERNAME_MAX || !is_letter_or_digit(text[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++) {
		bool joins = (text[i] == '.' || text[i] == '-') && i > 0 &&
			     is_letter_or_digit(text[i - 1]);
		if (!is_letter_or_digit(text[i]) && !joins)
			return false;
	}
	return true;
}

/* 5 + 5 bits of words to read, 35 bits of letters and digits that cannot be mistaken for others. */
static const char *const FIRST[32] = {
	"amber", "brave", "brisk", "calm",  "clear", "cosy",  "crisp",  "deft",
	"eager", "early", "fair",  "fleet", "fond",  "fresh", "gentle", "glad",
	"grand", "keen",  "kind",  "light", "lucid", "merry", "mild",   "neat",
	"noble", "plain", "proud", "quick", "quiet", "ready", "sunny",  "swift",
};
static const char *const SECOND[32] = {
	"badger", "beech", "birch",   "brook",  "cedar",  "crane",  "daisy", "dune",
	"falcon", "fern",  "finch",   "fjord",  "gull",   "harbor", "heron", "iris",
	"lark",   "lotus", "maple",   "marsh",  "meadow", "otter",  "pine",  "plover",
	"poppy",  "robin", "sparrow", "spruce", "stork",  "thrush", "tulip", "willow",
};
#define TAIL_DIGITS 7

void username_make(const unsigned char random[USERNAME_RANDOM_BYTES], char out[USERNAME_MAX + 1])
{
	static const char digits[] = "abcdefghijkmnpqrstuvwxyz23456789"; /* no l, o, 0, 1 */
	uint64_t bits;
	char tail[TAIL_DIGITS + 1] = { 0 };

	memcpy(&bits, random, sizeof(bits));
	const char *first = FIRST[bits & 31], *second = SECOND[bits >> 5 & 31];
	bits >>= 10;
	for (int i = 0; i < TAIL_DIGITS; i++, bits >>= 5)
		tail[i] = digits[bits & 31];
	snprintf(out, USERNAME_MAX + 1, "%s-%s-%s", first, second, tail);
}
