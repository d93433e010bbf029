/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pusher.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"

#define PUSHER_MAGIC 0x4c505053u
#define CORKED_MAX 256 /* sockets; beyond that they are not corked */

struct pusher {
	uint32_t magic;
	pthread_t thread;
	int corked[CORKED_MAX]; /* the loop's */
	size_t corked_count;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	int pushed[CORKED_MAX]; /* to be uncorked by the thread */
	size_t pushed_count;
	bool stop;
};

static bool set_cork(int fd, int on)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)) == 0;
}

static void uncork_all(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		set_cork(fds[i], 0);
}

static void *pusher_loop(void *arg)
{
	struct pusher *p = arg;
	int fds[CORKED_MAX];

	assert(p->magic == PUSHER_MAGIC);
	pthread_mutex_lock(&p->lock);
	while (!p->stop || p->pushed_count > 0) {
		const size_t n = p->pushed_count;
		if (n == 0) {
			pthread_cond_wait(&p->wake, &p->lock);
			continue;
		}
		memcpy(fds, p->pushed, n * sizeof(*fds));
		p->pushed_count = 0;
		pthread_mutex_unlock(&p->lock);
		uncork_all(fds, n);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

struct pusher *pusher_start(void)
{
	struct pusher *p = mem_zalloc(1, sizeof(*p));

	p->magic = PUSHER_MAGIC;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	if (pthread_create(&p->thread, NULL, pusher_loop, p) == 0)
		return p;
	free(p);
	return NULL;
}

void pusher_stop(struct pusher *p)
{
	if (!p)
		return;
	pusher_push(p);
	pthread_mutex_lock(&p->lock);
	assert(p->magic == PUSHER_MAGIC && !p->stop);
	p->stop = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->wake);
	p->magic = 0;
	free(p);
}

void pusher_cork(struct pusher *p, int fd)
{
	if (!p || p->corked_count == CORKED_MAX || !set_cork(fd, 1))
		return;
	assert(p->magic == PUSHER_MAGIC && fd >= 0);
	p->corked[p->corked_count++] = fd;
}

bool pusher_has_corked(const struct pusher *p)
{
	return p && p->corked_count > 0;
}

void pusher_push(struct pusher *p)
{
	if (!pusher_has_corked(p))
		return;
	assert(p->magic == PUSHER_MAGIC && p->corked_count <= CORKED_MAX);
	pthread_mutex_lock(&p->lock);
	const bool has_room = p->pushed_count + p->corked_count <= CORKED_MAX;
	if (has_room) {
		memcpy(p->pushed + p->pushed_count, p->corked,
		       p->corked_count * sizeof(*p->corked));
		p->pushed_count += p->corked_count;
	}
	pthread_mutex_unlock(&p->lock);
	if (has_room) /* outside the lock: the thread would wait for it as soon as it wakes up */
		pthread_cond_signal(&p->wake);
	else /* the thread is behind */
		uncork_all(p->corked, p->corked_count);
	p->corked_count = 0;
}
