/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads: bodies that are stored as they come, of any length, with flat memory.
 *
 * The loop fills a piece; a worker writes and hashes it while the loop fills the other one. When
 * both are full the connection is suspended until the worker is done, so a fast client waits for
 * the disk, and other clients do not. A body that fits into a small piece is stored in one go.
 *
 * Legal order: upload_begin when the headers are there, upload_receive for each part of the body,
 * upload_complete at its end: the request is then STORING until its file is durable, and goes into
 * the next turn with call.upload set. upload_drop at any time: what a row does not stand for goes.
 *
 * An upload has no deadline as a whole. It must bring UPLOAD_PROGRESS_BYTES, or its end, within
 * every request_timeout_ms, the time it waits for our disk not counted.
 */
#ifndef LAPSE_HTTP_UPLOAD_H
#define LAPSE_HTTP_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UPLOAD_PROGRESS_BYTES 16384

struct request;
struct server;
struct upload;

/* LAPSE_ETOOLARGE or LAPSE_ELIMIT, before anything is received. `length` -1 = not known. */
int upload_begin(struct request *r, int64_t length);

/* Takes as much as there is room for; the rest is offered again when the connection is resumed.
 * False = stop reading, close the connection. */
bool upload_receive(struct request *r, const char *data, size_t *n);

void upload_complete(struct request *r);
void upload_drop(struct upload *u);

/* It is answered: its bytes are in a row or about to go, and are on their way no more. */
void upload_landed(struct upload *u);

/* Lets go of a blob that a handler has made itself. */
struct blob;
void upload_discard(struct server *s, struct blob *b);

/* For http/transfer.c: ends it when its client is gone. */
struct list;
void upload_look(struct list *link);

#endif
