/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A turn: the requests that are ready together share one transaction. It is a job (engine/job.h)
 * on a lane of the store.
 *
 * Reads come first, in one read transaction, and are answered at once; one that has found something
 * to write joins the writes. Then the writes, each in a step of its own that can be undone alone;
 * then one COMMIT; then the store makes it durable on a thread of its own, while the loop reads and
 * parses the next requests; then the effects and all the answers. The next turn begins after that,
 * so that no answer shows what may still be lost. This is group commit without a queue, a lock or a
 * callback in the domain code.
 *
 * A turn that the store wants tried again (LAPSE_ERETRY) runs again as a whole. When that does not
 * help, its requests go back to the front of the queue and make a turn each. The request that needs
 * a row which another client of the database has locked is set aside (http/aside.h). Any other
 * failed COMMIT, or an error that ended the transaction behind our back, makes every answer of the
 * turn a 503.
 */
#ifndef LAPSE_HTTP_TURN_H
#define LAPSE_HTTP_TURN_H

#include <stdbool.h>

struct server;
struct request;

/* Puts a complete request into the next turn. */
void turn_enqueue(struct server *s, struct request *r);

/* Gives a request its answer, an error or what its handler wrote. */
void turn_answer(struct request *r, int err);

/* Runs what is queued, at most a bounded number. False = there was nothing it could do: the queue
 * is empty, or waits for the sync of the turn before. */
bool turn_run(struct server *s);

void turn_init(struct server *s);
void turn_done(struct server *s);

#endif
