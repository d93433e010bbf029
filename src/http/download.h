/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloads: a reply that is a part of a file (call.has_file), of any length, with flat memory.
 *
 * The disk is never read on the loop: a worker reads a piece while libmicrohttpd sends the other
 * one; with nothing to send the connection is suspended. The file is open for as long as that
 * takes, so a client that has begun to read gets all of it, even if the file is deleted.
 *
 * A client that takes less than DOWNLOAD_PROGRESS_BYTES within request_timeout_ms, although there
 * is more for it, is cut. So is one whose file cannot be read on: its Content-Length tells it.
 */
#ifndef LAPSE_HTTP_DOWNLOAD_H
#define LAPSE_HTTP_DOWNLOAD_H

#include <microhttpd.h>

#include "base/clock.h"
#include "base/list.h"

#define DOWNLOAD_PROGRESS_BYTES 16384

struct request;

/* A response for the request's file; takes its descriptor. NULL = no place is left, or no memory.
 */
struct MHD_Response *download_new(struct request *r);

/* For http/transfer.c: cuts it when its client takes nothing. */
void download_look(struct list *link, lapse_us now);

#endif
