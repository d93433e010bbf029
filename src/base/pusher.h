/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that sends what the loop has written.
 *
 * To write an answer to a socket is cheap, a fifth of what it costs to send it. The kernel does
 *both in one call, on the thread that calls. So when a turn answers many requests at once their
 *sockets are corked: what is written stays with the kernel, and this thread uncorks them, which
 *sends it.
 *
 *	pusher_start → (pusher_cork* → the answers are written → pusher_push)* → pusher_stop
 *
 * Nothing is lost if a socket is closed meanwhile, because closing one sends what it holds. Its
 * number may belong to another file by then: to uncork a socket that is not corked does nothing.
 */
#ifndef LAPSE_BASE_PUSHER_H
#define LAPSE_BASE_PUSHER_H

#include <stdbool.h>

struct pusher;

/* NULL = there is no thread to be had; the others take that, and do nothing. */
struct pusher *pusher_start(void);
void pusher_stop(struct pusher *p);

/* Nothing of what is written to the socket is sent until the next pusher_push(), but for whole
 * packets. Sockets that cannot be corked stay as they are. */
void pusher_cork(struct pusher *p, int fd);

/* Whether any are corked since the last pusher_push(). */
bool pusher_has_corked(const struct pusher *p);

/* What was written is sent, soon. */
void pusher_push(struct pusher *p);

#endif
