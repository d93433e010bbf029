/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What checking a contract found: each finding names its bound and its place in the file, says what
 * is wrong, and where it can, the statement or the field that mends it.
 */
#ifndef LAPSE_CONTRACT_FINDING_H
#define LAPSE_CONTRACT_FINDING_H

#include "contract/contract.h"

enum finding_level {
	FINDING_NOTE,    /* worth knowing */
	FINDING_WARNING, /* works, but probably not as meant */
	FINDING_ERROR,   /* the bound cannot be kept */
};

struct finding {
	struct finding *next;
	enum finding_level level;
	const char *bound; /* "" = the contract as a whole */
	int line, column;
	const char *text;
	const char *fix; /* what to run or write; NULL = there is nothing to suggest */
};

struct findings {
	struct arena arena;
	struct finding *first, **tail;
	size_t counts[3]; /* by level */
};

void findings_init(struct findings *f);
void findings_done(struct findings *f);

/* Adds one; `fix` is copied and may be NULL. */
void finding_add(struct findings *f, enum finding_level level, const struct contract_bound *b,
		 const struct node *at, const char *fix, const char *format, ...)
	__attribute__((format(printf, 6, 7)));

const char *finding_level_name(enum finding_level level);

#endif
