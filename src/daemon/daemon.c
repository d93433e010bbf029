/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "attachment/rules.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/fetch.h"
#include "daemon/listen.h"
#include "http/server.h"
#include "mailbox/outside.h"
#include "provider/open.h"
#include "rooms.h"

#define STOP_MAX_MS 10000 /* a stop takes no longer, whoever is slow */
#define STOP_CHECK_MS 10
#define PEM_MAX_BYTES (1 << 20)
/* Workers wait for the disk, mostly: more of them than processors let syncs share a commit of the
 * file system. */
#define WORKERS "16"

struct daemon {
	const struct settings *settings;
	struct log log;
	struct engine engine;
	struct server server;
	struct listener listener;
	struct fetches fetches;
	struct provider *provider; /* NULL = the engine's own */
	uv_loop_t loop;
	uv_prepare_t prepare;
	uv_timer_t engine_timer, stop_timer;
	uv_signal_t sigterm, sigint;
	int64_t stop_ticks;
	bool stopping;
	char *tls_cert, *tls_key;
};

/* The engine's time */

static void on_engine_timer(uv_timer_t *t)
{
	struct daemon *d = CONTAINER_OF(t, struct daemon, engine_timer);

	d->engine.crowded = server_is_crowded(&d->server);
	if (!d->stopping)
		engine_tick(&d->engine);
}

/* Before every sleep: a request may have given the engine something to do sooner. */
static void on_prepare(uv_prepare_t *p)
{
	struct daemon *d = CONTAINER_OF(p, struct daemon, prepare);
	lapse_us next = engine_next_us(&d->engine);

	if (d->stopping || next == INT64_MAX)
		uv_timer_stop(&d->engine_timer);
	else
		uv_timer_start(&d->engine_timer, on_engine_timer, (uint64_t)((next + 999) / 1000),
			       0);
}

/* Files to delete: on a worker, reported on the loop. */

struct file_job {
	uv_work_t work;
	struct daemon *daemon;
	struct cleanup *cleanup;
	int err;
	char why[128];
};

static void delete_file(uv_work_t *w)
{
	struct file_job *j = CONTAINER_OF(w, struct file_job, work);

	j->err = j->cleanup->kind->remove(j->daemon->settings->data_dir, j->cleanup->target, j->why,
					  sizeof(j->why));
}

static void file_deleted(uv_work_t *w, int status)
{
	struct file_job *j = CONTAINER_OF(w, struct file_job, work);

	(void)status;
	cleanup_settle(&j->daemon->engine, j->cleanup, j->err, j->why);
	free(j);
}

static void run_cleanup(void *ctx, struct cleanup *c)
{
	struct file_job *j = mem_zalloc(1, sizeof(*j));

	j->daemon = ctx;
	j->cleanup = c;
	uv_queue_work(&j->daemon->loop, &j->work, delete_file, file_deleted);
}

/* The engine's other blocking work, likewise. */

struct offload_job {
	uv_work_t work;
	struct offload *offload;
};

static void run_offload(uv_work_t *w)
{
	struct offload *o = CONTAINER_OF(w, struct offload_job, work)->offload;

	o->work(o);
}

static void offload_done(uv_work_t *w, int status)
{
	struct offload_job *j = CONTAINER_OF(w, struct offload_job, work);
	struct offload *o = j->offload;

	(void)status;
	free(j);
	o->done(o);
}

static void start_offload(void *ctx, struct offload *o)
{
	struct daemon *d = ctx;
	struct offload_job *j = mem_zalloc(1, sizeof(*j));

	j->offload = o;
	uv_queue_work(&d->loop, &j->work, run_offload, offload_done);
}

/* Stopping */

/* Nobody waits for a mail server any more: what is under way there ends as not answered. */
static void stop_fetching(struct daemon *d)
{
	if (d->provider)
		d->provider->stop(d->provider);
	fetches_stop(&d->fetches);
}

static void close_handles(struct daemon *d)
{
	uv_close((uv_handle_t *)&d->prepare, NULL);
	uv_close((uv_handle_t *)&d->engine_timer, NULL);
	uv_close((uv_handle_t *)&d->stop_timer, NULL);
	uv_close((uv_handle_t *)&d->sigterm, NULL);
	uv_close((uv_handle_t *)&d->sigint, NULL);
}

static void on_stop_timer(uv_timer_t *t)
{
	struct daemon *d = CONTAINER_OF(t, struct daemon, stop_timer);

	if (server_is_idle(&d->server)) {
		server_stop(&d->server);
		fetches_close(&d->fetches);
		close_handles(d);
	} else if (++d->stop_ticks > STOP_MAX_MS / STOP_CHECK_MS) {
		log_message(&d->log, LOG_WARN, "daemon.stop_forced",
			    "some clients did not take their answers in time");
		_exit(0); /* everything that was answered is on the disk */
	}
}

static void on_signal(uv_signal_t *h, int number)
{
	struct daemon *d = h->data;

	if (d->stopping)
		_exit(128 + number);
	d->stopping = true;
	log_message(&d->log, LOG_INFO, "daemon.stopping", "signal %d", number);
	engine_stop(&d->engine);
	server_quiesce(&d->server);
	stop_fetching(d);
	uv_timer_start(&d->stop_timer, on_stop_timer, 0, STOP_CHECK_MS);
}

/* Starting */

static int read_pem(const char *setting, const char *path, char **ret, struct problem *p)
{
	struct problem inner = { 0 };
	struct buf text = { 0 };

	if (file_load(path, PEM_MAX_BYTES, &text, &inner) < 0) {
		buf_done(&text);
		return problem_set(p, LAPSE_EINVAL, setting, "%s: %.200s", setting, inner.message);
	}
	*ret = text.data;
	return LAPSE_OK;
}

static int read_tls(struct daemon *d, struct problem *p)
{
	const struct settings *s = d->settings;

	if (!s->tls_cert[0] && !s->tls_key[0])
		return LAPSE_OK;
	if (!s->tls_cert[0] || !s->tls_key[0])
		return problem_set(p, LAPSE_EINVAL, "tls_cert",
				   "tls_cert and tls_key go together: set both or none");
	int r = read_pem("tls_cert", s->tls_cert, &d->tls_cert, p);
	return r < 0 ? r : read_pem("tls_key", s->tls_key, &d->tls_key, p);
}

/* Nobody from elsewhere may come in without a token, and no token may travel in the clear. */
static int check_exposure(const struct daemon *d, struct problem *p)
{
	if (d->listener.is_loopback && !d->settings->behind_tls_proxy)
		return LAPSE_OK;
	if (tokens_count(&d->engine.tokens) == 0)
		return problem_set(
			p, LAPSE_EFORBIDDEN, "listen",
			"refusing to listen at %.80s while no token exists: start on "
			"127.0.0.1 without behind_tls_proxy, run 'lapse token create' first",
			d->settings->listen);
	if (!d->tls_cert && !d->settings->behind_tls_proxy)
		return problem_set(p, LAPSE_EFORBIDDEN, "listen",
				   "refusing to listen at %.80s without TLS: set tls_cert and "
				   "tls_key, or behind_tls_proxy",
				   d->settings->listen);
	return LAPSE_OK;
}

static int check_settings(const struct settings *s, struct log *log, struct problem *p)
{
	if (!log_level_parse(s->log_level, &log->least))
		return problem_set(p, LAPSE_EINVAL, "log_level",
				   "log_level: must be debug, info, warn or error, not '%.30s'",
				   s->log_level);
	if (strcmp(s->sqlite_synchronous, "full") != 0 && strcmp(s->sqlite_synchronous, "off") != 0)
		return problem_set(p, LAPSE_EINVAL, "sqlite_synchronous",
				   "sqlite_synchronous: must be full or off, not '%.30s'",
				   s->sqlite_synchronous);
	if (!attachment_roots_are_valid(s->attachment_stage_roots))
		return problem_set(p, LAPSE_EINVAL, "attachment_stage_roots",
				   "attachment_stage_roots: each must be an absolute path, with : "
				   "between them");
	return LAPSE_OK;
}

static int open_engine(struct daemon *d, struct problem *p)
{
	struct engine_config config = { .settings = d->settings,
					.clock = &CLOCK_SYSTEM,
					.log = &d->log,
					.bounds = ROOM_BOUNDS,
					.schedulers = ROOM_SCHEDULERS,
					.cleanups = ROOM_CLEANUPS };
	int r = engine_open(&d->engine, &config, p);

	if (r == LAPSE_OK) {
		d->engine.cleaner.runner = run_cleanup;
		d->engine.cleaner.runner_ctx = d;
		d->engine.offloader = (struct offloader){ start_offload, d };
	}
	return r;
}

static int open_provider(struct daemon *d, struct problem *p)
{
	int r = fetches_init(&d->fetches, &d->loop, &CLOCK_SYSTEM,
			     d->settings->stalwart_connections_max, p);

	if (r == LAPSE_OK)
		r = provider_open(d->settings, getenv("CREDENTIALS_DIRECTORY"), &d->fetches.fetcher,
				  &CLOCK_SYSTEM, &d->provider, p);
	return r;
}

static int open_server(struct daemon *d, struct problem *p)
{
	int r = listener_open(&d->listener, d->settings->listen, d->tls_cert != NULL, p);

	if (r < 0)
		return r;
	r = check_exposure(d, p);
	struct server_config config = { .engine = &d->engine,
					.loop = &d->loop,
					.fd = d->listener.fd,
					.tls_cert = d->tls_cert,
					.tls_key = d->tls_key };
	if (r == LAPSE_OK)
		r = server_start(&d->server, &config, p);
	if (r < 0) {
		close(d->listener.fd);
		listener_remove(&d->listener);
	}
	return r;
}

static void start_loop(struct daemon *d)
{
	uv_prepare_init(&d->loop, &d->prepare);
	uv_prepare_start(&d->prepare, on_prepare);
	uv_timer_init(&d->loop, &d->engine_timer);
	uv_timer_init(&d->loop, &d->stop_timer);
	uv_signal_init(&d->loop, &d->sigterm);
	uv_signal_init(&d->loop, &d->sigint);
	d->sigterm.data = d->sigint.data = d;
	uv_signal_start(&d->sigterm, on_signal, SIGTERM);
	uv_signal_start(&d->sigint, on_signal, SIGINT);
}

/* As many descriptors as we are allowed; the connection limit is ours to enforce. */
static void raise_limits(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
	signal(SIGPIPE, SIG_IGN);
	umask(0077);
}

static void run(struct daemon *d)
{
	start_loop(d);
	printf("lapsed ready on %s\n", d->listener.text);
	fflush(stdout);
	log_message(&d->log, LOG_INFO, "daemon.ready", "%s", d->listener.text);
	uv_run(&d->loop, UV_RUN_DEFAULT);
	listener_remove(&d->listener);
	log_message(&d->log, LOG_INFO, "daemon.stopped", "every answered write is on the disk");
}

/* The settings are wrong before anything is touched, the engine exists before it is given. */
static int open_all(struct daemon *d, struct problem *p)
{
	int r = open_provider(d, p);

	if (r == LAPSE_OK)
		r = open_engine(d, p);
	if (r < 0)
		return r;
	d->engine.provider = d->provider;
	if (d->provider && d->provider->needs_secret)
		r = outside_open_key(&d->engine, p);
	if (r == LAPSE_OK)
		r = open_server(d, p);
	if (r == LAPSE_OK)
		run(d);
	engine_close(&d->engine);
	return r;
}

int daemon_run(const struct settings *settings, struct problem *p)
{
	struct daemon *d = mem_zalloc(1, sizeof(*d));

	d->settings = settings;
	d->log = (struct log){ .clock = &CLOCK_SYSTEM, .fd = STDERR_FILENO };
	raise_limits();
	setenv("UV_THREADPOOL_SIZE", WORKERS, 0);
	db_process_init();
	int r = check_settings(settings, &d->log, p);
	if (r == LAPSE_OK)
		r = read_tls(d, p);
	if (r == LAPSE_OK) {
		uv_loop_init(&d->loop);
		r = open_all(d, p);
		fetches_close(&d->fetches); /* closed already, unless the start failed */
		uv_run(&d->loop, UV_RUN_DEFAULT);
		uv_loop_close(&d->loop);
		provider_free(d->provider);
	}
	free(d->tls_cert);
	free(d->tls_key);
	free(d);
	return r;
}
