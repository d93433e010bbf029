/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets libcurl has open, so that a kept connection can be looked at before something is said
 * into it. libcurl looks itself, but over TLS it takes the server's good-bye for something to read,
 * and the connection for alive (7.88, Debian 12).
 *
 * libcurl opens and closes them by sockets_open() and sockets_close(); used by fetch.c only.
 */
#ifndef LAPSE_DAEMON_SOCKETS_H
#define LAPSE_DAEMON_SOCKETS_H

#include <curl/curl.h>
#include <stdbool.h>

#include "base/list.h"

struct sockets {
	struct list open; /* of struct open_socket */
};

void sockets_init(struct sockets *s);
void sockets_done(struct sockets *s); /* after libcurl has ended */

/* For CURLOPT_OPENSOCKETFUNCTION and CURLOPT_CLOSESOCKETFUNCTION; `arg` is the struct sockets. */
curl_socket_t sockets_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address);
int sockets_close(void *arg, curl_socket_t fd);

/* The server has closed the connection whose end here has this port. */
bool sockets_is_closed(struct sockets *s, int local_port);

#endif
