/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/listen.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

static bool address_is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >>
			       24 ==
		       127;
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static bool is_port(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n > 0 && n <= 5 && text[n] == '\0' && atoi(text) <= 65535;
}

/* "[::1]:80" and "host:80" into their parts. */
static int split(const char *address, char host[256], char port[16], struct problem *p)
{
	const char *colon = strrchr(address, ':');
	size_t n = colon ? (size_t)(colon - address) : 0;

	if (!colon || n == 0 || n >= 256 || !is_port(colon + 1))
		return problem_set(
			p, LAPSE_EINVAL, "listen",
			"listen: '%.80s' must be HOST:PORT (port 0 to 65535) or unix:PATH",
			address);
	assert(n > 0 && n < 256);
	if (address[0] == '[' && address[n - 1] == ']')
		snprintf(host, 256, "%.*s", (int)(n - 2), address + 1);
	else
		snprintf(host, 256, "%.*s", (int)n, address);
	snprintf(port, 16, "%s", colon + 1);
	return LAPSE_OK;
}

static void describe(struct listener *l, bool tls)
{
	struct sockaddr_storage a = { 0 };
	socklen_t n = sizeof(a);
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getsockname(l->fd, (struct sockaddr *)&a, &n) < 0 ||
	    getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return;
	bool v6 = a.ss_family == AF_INET6;
	snprintf(l->text, sizeof(l->text), "http%s://%s%.256s%s:%s", tls ? "s" : "", v6 ? "[" : "",
		 host, v6 ? "]" : "", port);
}

static int bind_tcp(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int yes = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	int saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static int open_tcp(struct listener *l, const char *address, bool tls, struct problem *p)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
	char host[256], port[16];
	int r = split(address, host, port, p);

	if (r < 0)
		return r;
	int e = getaddrinfo(host, port, &hints, &found);
	if (e != 0)
		return problem_set(p, LAPSE_EINVAL, "listen", "listen: %.80s: %s", address,
				   gai_strerror(e));
	l->fd = bind_tcp(found);
	l->is_loopback = address_is_loopback(found->ai_addr);
	freeaddrinfo(found);
	if (l->fd < 0)
		return problem_set(p, LAPSE_EINVAL, "listen", "cannot listen at %.80s: %s", address,
				   strerror(errno));
	describe(l, tls);
	return LAPSE_OK;
}

/* A socket file whose owner is gone refuses connections; one that answers is in use. */
static bool is_alive(const struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool alive = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0;

	if (fd >= 0)
		close(fd);
	return alive;
}

static int open_unix(struct listener *l, const char *path, struct problem *p)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct stat st;

	if (strlen(path) == 0 || strlen(path) >= sizeof(a.sun_path))
		return problem_set(p, LAPSE_EINVAL, "listen",
				   "listen: the path of a Unix socket must be 1 to %zu bytes long",
				   sizeof(a.sun_path) - 1);
	assert(l->fd < 0);
	memcpy(a.sun_path, path, strlen(path) + 1);
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode) || is_alive(&a))
			return problem_set(p, LAPSE_EBUSY, "listen", "%.120s is in use", path);
		unlink(path);
	}
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t old = umask(0177); /* 0600 from the first moment */
	int r = l->fd < 0 ? -1 : bind(l->fd, (struct sockaddr *)&a, sizeof(a));
	umask(old);
	if (r < 0 || listen(l->fd, BACKLOG) < 0) {
		if (l->fd >= 0)
			close(l->fd);
		return problem_set(p, LAPSE_EINVAL, "listen", "cannot listen at %.120s: %s", path,
				   strerror(errno));
	}
	l->is_unix = l->is_loopback = true;
	snprintf(l->path, sizeof(l->path), "%s", path);
	snprintf(l->text, sizeof(l->text), "unix:%s", path);
	return LAPSE_OK;
}

int listener_open(struct listener *l, const char *address, bool tls, struct problem *p)
{
	*l = (struct listener){ .fd = -1 };
	if (strncmp(address, "unix:", 5) == 0)
		return open_unix(l, address + 5, p);
	return open_tcp(l, address, tls, p);
}

void listener_remove(const struct listener *l)
{
	assert(!l->is_unix || l->path[0]);
	if (l->is_unix)
		unlink(l->path);
}
