/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sockets.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

struct open_socket {
	struct list link;
	curl_socket_t fd;
	int port; /* its local port; 0 = not looked up yet */
};

void sockets_init(struct sockets *s)
{
	list_init(&s->open);
}

static void socket_forget(struct sockets *s, curl_socket_t fd)
{
	for (struct list *l = s->open.next; l != &s->open; l = l->next) {
		struct open_socket *o = CONTAINER_OF(l, struct open_socket, link);
		if (o->fd == fd) {
			list_remove(&o->link);
			free(o);
			return;
		}
	}
}

void sockets_done(struct sockets *s)
{
	for (struct list *l = s->open.next, *next; l != &s->open; l = next) {
		next = l->next;
		free(CONTAINER_OF(l, struct open_socket, link));
	}
	list_init(&s->open);
}

/* libcurl does not say so when it gives up a socket that is still connecting: one that is known
 * already under this number was closed. */
curl_socket_t sockets_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct sockets *s = arg;
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

	(void)purpose;
	if (fd < 0)
		return CURL_SOCKET_BAD;
	socket_forget(s, fd);
	struct open_socket *o = mem_zalloc(1, sizeof(*o));
	o->fd = fd;
	list_append(&s->open, &o->link);
	return fd;
}

int sockets_close(void *arg, curl_socket_t fd)
{
	socket_forget(arg, fd);
	return close(fd);
}

static int local_port(curl_socket_t fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} a = { 0 };
	socklen_t n = sizeof(a);

	if (getsockname(fd, &a.any, &n) < 0)
		return 0;
	return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

bool sockets_is_closed(struct sockets *s, int port)
{
	for (struct list *l = s->open.next; l != &s->open; l = l->next) {
		struct open_socket *o = CONTAINER_OF(l, struct open_socket, link);
		struct pollfd p = { .fd = o->fd, .events = POLLRDHUP };
		if (o->port == 0)
			o->port = local_port(o->fd);
		if (o->port == port && poll(&p, 1, 0) > 0)
			return true;
	}
	return false;
}
