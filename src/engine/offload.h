/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of the engine that blocks and has no request behind it: run on a worker where there is a
 * loop, at once where there is none.
 */
#ifndef LAPSE_ENGINE_OFFLOAD_H
#define LAPSE_ENGINE_OFFLOAD_H

struct engine;

/* Owned by whoever starts it, until done() was called. */
struct offload {
	struct engine *engine;
	void (*work)(
		struct offload *o); /* off the loop; touches what is documented as safe there */
	void (*done)(struct offload *o); /* on the loop, after it */
};

struct offloader {
	void (*run)(void *ctx, struct offload *o); /* NULL: at once, on the caller's thread */
	void *ctx;
};

void offload_start(struct engine *e, struct offload *o);

#endif
