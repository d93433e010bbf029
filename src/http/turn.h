/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A turn: the requests that are ready together share one transaction.
 *
 * Reads first, in one read transaction, answered at once; then the writes, each in a step of its
 * own that can be undone alone; then one COMMIT; then all their answers. That is group commit
 * without a queue, a lock or a callback in the domain code. A failed COMMIT, or an error that ended
 * the transaction behind our back, makes every answer of the turn's writes a 503.
 */
#ifndef LAPSE_HTTP_TURN_H
#define LAPSE_HTTP_TURN_H

struct server;
struct request;

/* Puts a complete request into the next turn. */
void turn_enqueue(struct server *s, struct request *r);

/* Runs what is queued, at most a bounded number. */
void turn_run(struct server *s);

/* Makes everybody who waits run again, with call.stopping set. */
void turn_wake_all(struct server *s);

#endif
