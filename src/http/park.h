/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait: parked on a key with a time limit, awaiting a wake(), or with work on a
 * worker thread. All of them come back through turn_enqueue().
 */
#ifndef LAPSE_HTTP_PARK_H
#define LAPSE_HTTP_PARK_H

struct call;
struct request;
struct server;

/* Makes the request wait as its handler asked. Must happen before the handler's transaction
 * commits: its own effects may wake this request. */
void park_start(struct request *r);

/* Starts the request's work, if it has any. Must happen after the commit. */
void park_start_work(struct request *r);

/* Takes a waiting request out again, without queueing it. */
void park_stop(struct request *r);

/* For call.wake. */
void park_wake_call(struct call *c);

/* The daemon ends: makes everybody run again who waits for a key. A worker or an engine job brings
 * the others back. */
void park_wake_all(struct server *s);

#endif
