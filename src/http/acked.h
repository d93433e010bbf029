/* SPDX-License-Identifier: Apache-2.0 */
/* What the other side of a TCP connection has taken. A file of its own: <linux/tcp.h>, which has
 * the figure, and <netinet/tcp.h>, which libuv includes, cannot be included together. */
#ifndef LAPSE_HTTP_ACKED_H
#define LAPSE_HTTP_ACKED_H

#include <stdint.h>

/* Bytes the peer has acknowledged since the connection began; -1 = it is no TCP connection. */
int64_t socket_bytes_acked(int fd);

#endif
