/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting without waiting for it. To reach a server may take as long as every host of the URI
 * has time, and libpq tries them while its caller waits. So a thread of its own does it: the owner
 * asks now and then, and takes the session once there is one.
 *
 * Legal order: dial_start; dial_is_over any number of times, until it is true; dial_take once. Or
 * dial_abandon at any time: the thread then ends by itself, whenever that is.
 */
#ifndef LAPSE_STORE_POSTGRES_DIAL_H
#define LAPSE_STORE_POSTGRES_DIAL_H

#include "store/postgres/wire.h"

struct dial;

/* What is done with a new session before it is used; an error refuses it. */
typedef int wire_greet_fn(void *arg, struct wire *wire, struct problem *p);

/* `config` and what it points to are copied; `greet` may be NULL and runs on the thread. NULL =
 * this process can start no thread. */
struct dial *dial_start(const struct wire_config *config, wire_greet_fn *greet, void *greet_arg);

/* Waits up to `wait_ms`. */
bool dial_is_over(struct dial *d, int wait_ms);

/* Gives the session to `into`, which has none, and frees the dial. On failure `p` says why. */
int dial_take(struct dial *d, struct wire *into, struct problem *p);

void dial_abandon(struct dial *d); /* takes NULL */

#endif
