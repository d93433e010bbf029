/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket, and whether it is safe to listen there. */
#ifndef LAPSE_DAEMON_LISTEN_H
#define LAPSE_DAEMON_LISTEN_H

#include <stdbool.h>

#include "base/err.h"

#define LISTEN_TEXT_MAX 600

struct listener {
	int fd;
	bool is_unix;
	bool is_loopback;           /* or a Unix socket: other machines cannot reach it */
	char text[LISTEN_TEXT_MAX]; /* http://127.0.0.1:7878, or unix:PATH: where it really listens
				     */
	char path[LISTEN_TEXT_MAX]; /* of the Unix socket, to remove it at the end */
};

/* Binds and listens at "HOST:PORT" (port 0 = any) or "unix:PATH". */
int listener_open(struct listener *l, const char *address, bool tls, struct problem *p);

/* Removes the Unix socket's file. The descriptor belongs to the server by then. */
void listener_remove(const struct listener *l);

#endif
