/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for something to happen to a key: long polls wait here until an effect wakes the key.
 * Timeouts are the business of whoever waits.
 */
#ifndef LAPSE_ENGINE_WAIT_H
#define LAPSE_ENGINE_WAIT_H

#include "base/list.h"
#include "base/map.h"

struct waiter {
	struct list link; /* in its key's queue; unlinked = not waiting */
	struct wait_key *key;
	void (*wake)(struct waiter *w);
};

struct waits {
	struct map keys; /* text → struct wait_key, which lives while somebody waits */
};

void waits_init(struct waits *w);
void waits_done(struct waits *w); /* nobody may wait any more */

void wait_add(struct waits *w, const char *key, struct waiter *waiter);
void wait_remove(struct waits *w, struct waiter *waiter); /* harmless when not waiting */

/* Takes everyone who waits for the key out of the queue and calls their wake(). */
void wait_wake(struct waits *w, const char *key);

#endif
