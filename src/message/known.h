/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inboxes that probably exist, for guesses that the store corrects. A fixed table of hashes: names
 * that share a place push each other out, and an inbox that went is still known. So a guess may be
 * wrong either way.
 */
#ifndef LAPSE_MESSAGE_KNOWN_H
#define LAPSE_MESSAGE_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

struct known {
	uint64_t *names; /* NULL = there was none yet; 0 = a free place */
};

void known_done(struct known *k);

/* The hash by which an inbox is known; never 0. */
uint64_t known_name(const char *owner, const char *agent);

bool known_has(const struct known *k, uint64_t name);
void known_add(struct known *k, uint64_t name);
void known_drop(struct known *k, uint64_t name); /* if it is there */

#endif
