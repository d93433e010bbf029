/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the doubles of the store share: a place in a daemon whose objects are the product's.
 *
 * The linker sends calls of store_open(), turn_init(), turn_run() and turn_enqueue() here first
 * (--wrap). Each double gives a `struct double_hooks` named DOUBLE.
 */
#ifndef LAPSE_TESTS_STORE_DOUBLE_H
#define LAPSE_TESTS_STORE_DOUBLE_H

#include "http/request.h"
#include "http/server.h"
#include "http/turn.h"
#include "store/store.h"

struct double_hooks {
	/* The store is open: take its functions over. */
	void (*opened)(struct store *s, const struct store_config *config);

	/* A request comes into the queue. May be NULL. */
	void (*queued)(struct request *r);
};
extern const struct double_hooks DOUBLE;

/* What runs now. */
struct double_state {
	struct server *server; /* NULL = the daemon is still starting */
	int turns;             /* calls of turn_run() under way */
};
extern struct double_state double_state;

/* A number of the environment. */
uint64_t double_number(const char *name, uint64_t fallback);

/* Random numbers from a seed, so that a failure can be run again. */
uint64_t double_random(void);
void double_seed(uint64_t seed);

/* Ends the process with a line of JSON: the daemon did what it must not. */
_Noreturn void double_fail(const char *what);

#endif
