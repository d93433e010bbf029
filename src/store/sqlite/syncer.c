/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/syncer.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

#include "base/mem.h"
#include "store/sqlite/log.h"

#define SYNCER_MAGIC 0x4c505359u

struct syncer {
	uint32_t magic;
	struct sqlite_log *log;
	pthread_t thread;
	pthread_mutex_t syncing; /* held by the thread that syncs */
	pthread_mutex_t lock;    /* guards what follows */
	pthread_cond_t wake;
	void (*done)(void *arg); /* NULL = nothing is wanted */
	void *arg;
	bool stop;
};

_Noreturn void syncer_die(const char *what)
{
	fprintf(stderr,
		"{\"level\":\"fatal\",\"event\":\"store.sync_failed\",\"message\":\"the disk "
		"failed to "
		"sync the %s; ending, so that the next start reads the log from the disk\"}\n",
		what);
	abort();
}

void syncer_sync(struct syncer *s)
{
	pthread_mutex_lock(&s->syncing);
	int r = sqlite_log_sync(s->log);
	pthread_mutex_unlock(&s->syncing);
	if (r < 0)
		syncer_die("log");
}

static void *syncer_loop(void *arg)
{
	struct syncer *s = arg;

	assert(s->magic == SYNCER_MAGIC);
	pthread_mutex_lock(&s->lock);
	while (!s->stop || s->done) {
		if (!s->done) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		void (*done)(void *) = s->done;
		void *done_arg = s->arg;
		pthread_mutex_unlock(&s->lock);
		syncer_sync(s);
		pthread_mutex_lock(&s->lock);
		s->done = NULL;
		done(done_arg);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int syncer_start(const char *database, bool durable, struct syncer **ret, struct problem *p)
{
	struct syncer *s = mem_zalloc(1, sizeof(*s));
	int r = sqlite_log_open(database, durable, &s->log, p);

	if (r < 0) {
		free(s);
		return r;
	}
	s->magic = SYNCER_MAGIC;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->syncing, NULL);
	pthread_cond_init(&s->wake, NULL);
	if (pthread_create(&s->thread, NULL, syncer_loop, s) != 0) {
		sqlite_log_close(s->log);
		free(s);
		return problem_set(p, LAPSE_EINTERNAL, NULL, "cannot start the sync thread");
	}
	*ret = s;
	return LAPSE_OK;
}

void syncer_stop(struct syncer *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->syncing);
	pthread_cond_destroy(&s->wake);
	sqlite_log_close(s->log);
	free(s);
}

void syncer_request(struct syncer *s, void (*done)(void *arg), void *arg)
{
	assert(s->magic == SYNCER_MAGIC && done);
	pthread_mutex_lock(&s->lock);
	assert(!s->done && !s->stop);
	s->done = done;
	s->arg = arg;
	pthread_mutex_unlock(&s->lock);
	pthread_cond_signal(&s->wake); /* outside the lock, which the thread takes first */
}
