/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting. A handler that returns CALL_WAIT waits in one of three ways: for a key that an effect
 * wakes, with a time limit (a long poll); for a call_wake() of the job it has started; or for work
 * on a worker thread. However it ends, the door is told once, by c->ready(), and runs the call
 * again.
 *
 * The order a door keeps: call_wait_start() before the handler's transaction commits, because its
 * own effects may wake it; call_wait_work() after the commit; or call_wait_stop() when the commit
 * failed. Time limits are kept by the engine's ticks. One thread, the loop's.
 */
#ifndef LAPSE_API_WAIT_H
#define LAPSE_API_WAIT_H

#include "base/clock.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"

struct call;
struct engine;
struct tx;

struct waiter {
	struct list link;       /* in its key's queue; unlinked = not waiting */
	struct wait_key *key;   /* NULL = it was woken, or waits for none */
	struct heap_node limit; /* monotonic microseconds; outside the heap = waits for ever */
	void (*wake)(struct waiter *w);
};

struct waits {
	struct map keys; /* text → struct wait_key, which exists while something waits for it */
	struct heap limits; /* the waiters that have a time limit */
};

void waits_init(struct waits *w);
void waits_done(struct waits *w); /* nothing may wait any more */

/* `until` is monotonic; LAPSE_NEVER = no limit. The waiter's link must be initialized. */
void wait_add(struct waits *w, const char *key, lapse_us until, struct waiter *waiter);
void wait_remove(struct waits *w, struct waiter *waiter); /* harmless when not waiting */

/* Takes every waiter of the key out of the queue, then calls its wake(). */
void wait_wake(struct waits *w, const char *key);

/* The same for every waiter whose time is over; and how long until the next one's is. */
void waits_expire(struct waits *w, lapse_us now);
lapse_us waits_next_us(const struct waits *w, lapse_us now); /* INT64_MAX = none has a limit */

/* For effects of a room: wakes whatever waits for the key in this store; and whether anything waits
 * for any key, which saves making the effect. */
void waiters_wake(struct engine *e, const char *key);
bool waiters_exist(const struct engine *e);

/* The same as an effect of the transaction, on every replica of a cluster; and whether anything may
 * wait on any of them. The key is borrowed until the transaction ends. */
#define WAIT_TOPIC "wake"
void waiters_wake_later(struct tx *tx, const char *key);
bool waiters_may_exist(const struct engine *e);

/* Calls */

void call_wait_start(struct call *c); /* as the handler has asked */
void call_wait_work(struct call *c);  /* starts its work, if it has any */
void call_wait_stop(struct call *c);  /* it waits no more, and is not to run again */

/* Ends the wait of a call_await(). The call must not be touched after it. */
void call_wake(struct call *c);

/* The daemon ends: every call that waits with a time limit runs again, and is told to stop. Workers
 * and engine jobs bring back the others. */
void calls_wake_all(struct engine *e);

bool calls_are_waiting(const struct engine *e);

/* The calls that wait for a key, at most `max` of them; returns how many there are. One of them can
 * be told to wait no more; it must not be touched after that. */
size_t calls_polling(const struct engine *e, struct call **ret, size_t max);
void call_end_poll(struct call *c);

#endif
