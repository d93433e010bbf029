/* SPDX-License-Identifier: Apache-2.0 */
#include "http/acked.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

int64_t socket_bytes_acked(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t n = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
		return -1;
	return (int64_t)info.tcpi_bytes_acked;
}
