/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread and the owner share the dial; the one who leaves last frees it. All fields but those
 * of the wire are guarded by `lock`; the wire is the thread's until it is over, then the owner's.
 */
#include "store/postgres/dial.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

#define DIAL_MAGIC 0x4c50444cu

struct dial {
	uint32_t magic;
	pthread_mutex_t lock;
	int users;   /* the thread, the owner */
	int over_fd; /* readable once it is over */
	int result;
	struct problem problem;

	struct wire wire;
	char *uri;
	wire_greet_fn *greet;
	void *greet_arg;
};

static void dial_free(struct dial *d)
{
	assert(d->magic == DIAL_MAGIC && d->users == 0);
	wire_done(&d->wire);
	if (d->over_fd >= 0)
		close(d->over_fd);
	pthread_mutex_destroy(&d->lock);
	explicit_bzero(d->uri, strlen(d->uri)); /* it may hold a password */
	free(d->uri);
	d->magic = 0;
	free(d);
}

static void dial_leave(struct dial *d)
{
	pthread_mutex_lock(&d->lock);
	assert(d->users > 0);
	bool last = --d->users == 0;
	pthread_mutex_unlock(&d->lock);
	if (last)
		dial_free(d);
}

static void dial_ring(struct dial *d)
{
	int err = eventfd_write(d->over_fd, 1);

	assert(err == 0);
}

static void *dial_main(void *arg)
{
	struct dial *d = arg;
	struct problem p = { 0 };
	int r = wire_connect(&d->wire, &p);

	if (r == LAPSE_OK && d->greet)
		r = d->greet(d->greet_arg, &d->wire, &p);
	if (r < 0)
		wire_close(&d->wire);
	pthread_mutex_lock(&d->lock);
	d->result = r;
	d->problem = p;
	pthread_mutex_unlock(&d->lock);
	dial_ring(d);
	dial_leave(d);
	return NULL;
}

/* Signals are the loop's business. */
static int dial_spawn(struct dial *d)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int err = pthread_create(&thread, NULL, dial_main, d);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err == 0)
		pthread_detach(thread);
	return err;
}

struct dial *dial_start(const struct wire_config *config, wire_greet_fn *greet, void *greet_arg)
{
	struct dial *d = mem_zalloc(1, sizeof(*d));
	struct wire_config own = *config;

	*d = (struct dial){ .magic = DIAL_MAGIC,
			    .users = 2,
			    .uri = mem_strdup(config->uri),
			    .greet = greet,
			    .greet_arg = greet_arg };
	own.uri = d->uri;
	wire_init(&d->wire, &own);
	pthread_mutex_init(&d->lock, NULL);
	d->over_fd = eventfd(0, EFD_CLOEXEC);
	if (d->over_fd >= 0 && dial_spawn(d) == 0)
		return d;
	d->users = 1;
	dial_abandon(d);
	return NULL;
}

bool dial_is_over(struct dial *d, int wait_ms)
{
	struct pollfd fd = { .fd = d->over_fd, .events = POLLIN };
	int n;

	assert(d->magic == DIAL_MAGIC && wait_ms >= 0);
	do
		n = poll(&fd, 1, wait_ms);
	while (n < 0 && errno == EINTR);
	return n > 0;
}

int dial_take(struct dial *d, struct wire *into, struct problem *p)
{
	assert(dial_is_over(d, 0));
	pthread_mutex_lock(&d->lock);
	int r = d->result;
	pthread_mutex_unlock(&d->lock);

	if (r == LAPSE_OK)
		wire_adopt(into, &d->wire);
	else
		*p = d->problem;
	dial_leave(d);
	return r;
}

void dial_abandon(struct dial *d)
{
	if (d)
		dial_leave(d);
}
