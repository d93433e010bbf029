/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control file of the fault VFS: see fault_plan.h for its words. One table of words drives the
 * parser. State is one static plan, because it stands for the one disk of the process.
 */
#include "fault_plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTROL_MAX_BYTES 512
#define FOREVER INT64_MAX
#define DEFAULT_PERCENT 50

struct plan {
	enum loss_mode loss;
	enum fault_kind fault;
	enum file_role only; /* ROLE_OTHER: every file */
	int64_t after;       /* operations that still work */
	int64_t count;       /* operations that fail then */
	int64_t seen;        /* operations of this kind since the file changed */
	int64_t percent;
	int64_t seed;
	uint64_t dice;
};

static struct plan the_plan = { .count = FOREVER, .percent = DEFAULT_PERCENT, .dice = 1 };
static struct stat last_stat; /* the control file as it was when it was read; all zero: not there */

enum word_field { WORD_LOSS, WORD_FAULT };

/* clang-format off */
static const struct word {
	const char *name;
	enum word_field field;
	int value;
} WORDS[] = {
	{ "pass",        WORD_LOSS,  LOSS_NONE   },
	{ "power-loss",  WORD_LOSS,  LOSS_POWER  },
	{ "torn",        WORD_LOSS,  LOSS_TORN   },
	{ "full",        WORD_FAULT, FAULT_FULL  },
	{ "ioerr-write", WORD_FAULT, FAULT_WRITE },
	{ "ioerr-sync",  WORD_FAULT, FAULT_SYNC  },
	{ "ioerr-read",  WORD_FAULT, FAULT_READ  },
};

static const struct role_name {
	const char *name;
	enum file_role role;
} ROLES[] = {
	{ "db",      ROLE_DB      },
	{ "wal",     ROLE_WAL     },
	{ "journal", ROLE_JOURNAL },
};
/* clang-format on */

static void plan_refuse(const char *word)
{
	fprintf(stderr, "fault_vfs: the control file has an unknown word: %s\n", word);
	abort();
}

static bool parse_word(struct plan *plan, const char *word)
{
	for (size_t i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
		if (strcmp(word, WORDS[i].name) != 0)
			continue;
		if (WORDS[i].field == WORD_LOSS)
			plan->loss = (enum loss_mode)WORDS[i].value;
		else
			plan->fault = (enum fault_kind)WORDS[i].value;
		return true;
	}
	return false;
}

static bool parse_number(const char *word, const char *name, int64_t *ret_value)
{
	const size_t name_len = strlen(name);
	char *end;

	if (strncmp(word, name, name_len) != 0 || word[name_len] < '0' || word[name_len] > '9')
		return false;
	const long long value = strtoll(word + name_len, &end, 10);
	if (*end != '\0')
		return false;
	*ret_value = value;
	return true;
}

static bool parse_role(struct plan *plan, const char *word)
{
	if (strncmp(word, "only=", 5) != 0)
		return false;
	for (size_t i = 0; i < sizeof(ROLES) / sizeof(ROLES[0]); i++) {
		if (strcmp(word + 5, ROLES[i].name) == 0) {
			plan->only = ROLES[i].role;
			return true;
		}
	}
	return false;
}

static struct plan plan_parse(char *text)
{
	struct plan plan = { .count = FOREVER, .percent = DEFAULT_PERCENT, .seed = 1 };
	char *rest = NULL;

	for (char *word = strtok_r(text, " \t\n", &rest); word;
	     word = strtok_r(NULL, " \t\n", &rest)) {
		if (!parse_word(&plan, word) && !parse_role(&plan, word) &&
		    !parse_number(word, "after=", &plan.after) &&
		    !parse_number(word, "for=", &plan.count) &&
		    !parse_number(word, "percent=", &plan.percent) &&
		    !parse_number(word, "seed=", &plan.seed))
			plan_refuse(word);
	}
	/* An odd multiplier keeps neighbouring seeds apart; the generator must not start at 0. */
	plan.dice = (uint64_t)plan.seed * 0x9e3779b97f4a7c15u | 1u;
	return plan;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void plan_load(const char *path)
{
	char text[CONTROL_MAX_BYTES + 1] = "";
	const int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		const ssize_t len = read(fd, text, CONTROL_MAX_BYTES);
		text[len > 0 ? len : 0] = '\0';
		close(fd);
	}
	the_plan = plan_parse(text);
}

enum loss_mode plan_refresh(void)
{
	const char *path = getenv("FAULT_VFS_CONTROL");
	struct stat now = { 0 };

	if (!path)
		return LOSS_NONE;
	if (stat(path, &now) != 0)
		now = (struct stat){ 0 };
	if (!same_file(&now, &last_stat)) {
		last_stat = now;
		plan_load(path);
	}
	return the_plan.loss;
}

bool plan_strikes(enum fault_kind kind, enum file_role role)
{
	struct plan *plan = &the_plan;

	if (plan->fault != kind || role == ROLE_OTHER)
		return false;
	if (plan->only != ROLE_OTHER && plan->only != role)
		return false;
	const int64_t index = plan->seen++;
	return index >= plan->after && index - plan->after < plan->count;
}

/* xorshift64: reproducible, and its low bits are good enough for dice. */
static uint64_t roll(void)
{
	uint64_t x = the_plan.dice;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	the_plan.dice = x;
	return x >> 16;
}

bool plan_tears_write(void)
{
	return (int64_t)(roll() % 100) < the_plan.percent;
}

bool plan_tears_sector(void)
{
	return roll() % 2 == 0;
}
