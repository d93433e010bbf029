/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of what callers of the library give, beside the rules that every door shares
 * (api/field.h). 0, or an error with the name of the argument in `p`.
 */
#ifndef LAPSE_LIB_CHECK_H
#define LAPSE_LIB_CHECK_H

#include <stdint.h>

#include "api/field.h"
#include "base/err.h"
#include "base/mem.h"

/* The id of a mailbox, as text. */
int check_mailbox(const char *id, const char *name, struct problem *p);

/* Any UTF-8 of up to `max` bytes; more is LAPSE_ETOOLARGE. */
int check_text(const char *text, int64_t max, const char *name, struct problem *p);

/* How many items a call may ask for. */
int check_limit(int64_t limit, struct problem *p);

/* A JSON object of up to `max` bytes; its shortest form goes to the arena. NULL is an empty one. */
int check_object(const char *text, int64_t max, const char *name, struct arena *arena,
		 const char **ret, struct problem *p);

/* 1 to `max` different ids. */
int check_ids(const char *const *ids, size_t count, size_t max, const char *name,
	      struct problem *p);

/* Says which argument names what a room did not find, found expired or held; `err` comes back. */
int check_blame(int err, const char *name, struct problem *p);

#endif
