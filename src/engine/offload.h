/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of the engine that blocks and has no request behind it. A daemon runs it on a worker;
 *without a loop it runs at once.
 *
 *	IDLE → offload_start → WORKING → offload_work, off the loop → WORKED → offload_end → IDLE
 */
#ifndef LAPSE_ENGINE_OFFLOAD_H
#define LAPSE_ENGINE_OFFLOAD_H

#include <stdint.h>

struct engine;

#define OFFLOAD_MAGIC 0x4c4f4646u

enum offload_state { OFFLOAD_IDLE, OFFLOAD_WORKING, OFFLOAD_WORKED };

/* Owned by its starter, which sets `work` and `done`, leaves the rest zero, and keeps it in place
 * until done() was called. */
struct offload {
	uint32_t magic; /* while it is under way */
	enum offload_state state;
	struct engine *engine;
	void (*work)(
		struct offload *o); /* off the loop; touches what is documented as safe there */
	void (*done)(struct offload *o); /* on the loop, after it */
};

/* Calls offload_work() on a worker, then offload_end() on the loop. */
struct offloader {
	void (*run)(void *ctx, struct offload *o); /* NULL: at once, on the caller's thread */
	void *ctx;
};

void offload_start(struct engine *e, struct offload *o);

/* For the offloader. offload_end() may free `o`. */
void offload_work(struct offload *o);
void offload_end(struct offload *o);

#endif
