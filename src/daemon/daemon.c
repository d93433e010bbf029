/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "attachment/rules.h"
#include "base/mem.h"
#include "contract/keep.h"
#include "daemon/audit.h"
#include "daemon/fetch.h"
#include "daemon/listen.h"
#include "daemon/tls.h"
#include "http/server.h"
#include "lmtp/door.h"
#include "mailbox/outside.h"
#include "provider/open.h"
#include "rooms.h"
#include "store/postgres/store.h"
#include "webhook/post.h"

#define STOP_MAX_MS 10000 /* a stop takes no longer, however slow a client is */
#define STOP_CHECK_MS 10
#define LEFT_OUT_STATUS 3 /* of the process; a service manager starts it anew */
/* Workers wait for the disk, mostly: more of them than processors let syncs share a commit of the
 * file system. */
#define WORKERS "16"
#define OTHER_DESCRIPTORS 256 /* the store's, the provider's, webhooks', lmtp's */

#define HOOK_CONNECTIONS_MAX 32     /* of all webhooks */
#define HOOK_CONNECTIONS_PER_HOST 4 /* of all webhooks to one host */

struct daemon {
	const struct settings *settings;
	struct log log;
	struct engine engine;
	struct server server;
	struct listener listener;
	struct lmtp lmtp;
	struct listener lmtp_listener;
	struct fetches fetches;
	struct fetches hooks;      /* of webhooks: other rules, and no connection in common */
	struct provider *provider; /* NULL = the engine's own */
	uv_loop_t loop;
	uv_prepare_t prepare;
	uint64_t loop_at, loop_slept; /* ns: the last sleep began, and all sleep before it */
	uv_timer_t engine_timer, stop_timer;
	uv_signal_t sigterm, sigint, sighup;
	const struct room *rooms[ROOMS_COUNT + 1]; /* those of the core, and contracts */
	int64_t stop_ticks;
	bool stopping;
};

/* A replica that the others have left out can write nothing any more, and knows less and less.
 * Every answered write is in the database. */
static void end_when_left_out(const struct daemon *d)
{
	if (!d->engine.cluster.lost)
		return;
	log_message(&d->log, LOG_ERROR, "replica.left_out",
		    "the other replicas have not heard of replica %d for longer than "
		    "cluster_lease_ms and go on without it: it ends, to be started anew",
		    d->engine.ids.replica);
	_exit(LEFT_OUT_STATUS);
}

/* The engine's time */

static void on_engine_timer(uv_timer_t *t)
{
	struct daemon *d = CONTAINER_OF(t, struct daemon, engine_timer);

	d->engine.crowded = server_is_crowded(&d->server);
	if (!d->stopping)
		engine_tick(&d->engine);
}

/* Of the time since the last sleep, what was not slept. libuv reads the clock for its idle time by
 * itself, so the two are compared as numbers that may disagree a little. */
static void note_loop(struct daemon *d)
{
	uint64_t now = uv_hrtime(), slept = uv_metrics_idle_time(&d->loop);
	int64_t worked = (int64_t)(now - d->loop_at) - (int64_t)(slept - d->loop_slept);

	if (d->loop_at > 0)
		server_note_loop(&d->server, worked > 0 ? worked / 1000 : 0);
	d->loop_at = now;
	d->loop_slept = slept;
}

/* What of the engine's work blocks: on a worker, reported on the loop. */

struct offload_job {
	uv_work_t work;
	struct offload *offload;
};

static void run_offload(uv_work_t *w)
{
	offload_work(CONTAINER_OF(w, struct offload_job, work)->offload);
}

static void on_offload_done(uv_work_t *w, int status)
{
	struct offload_job *j = CONTAINER_OF(w, struct offload_job, work);
	struct offload *o = j->offload;

	assert(status == 0); /* nothing cancels a job */
	free(j);
	offload_end(o);
}

static void start_offload(void *ctx, struct offload *o)
{
	struct daemon *d = ctx;
	struct offload_job *j = mem_zalloc(1, sizeof(*j));

	j->offload = o;
	int rc = uv_queue_work(&d->loop, &j->work, run_offload, on_offload_done);
	assert(rc == 0);
}

/* Stopping */

/* Questions to mail servers that are under way end as not answered. */
static void stop_fetching(struct daemon *d)
{
	if (d->provider)
		d->provider->stop(d->provider);
	fetches_stop(&d->fetches);
	fetches_stop(&d->hooks);
}

static void close_handles(struct daemon *d)
{
	uv_close((uv_handle_t *)&d->prepare, NULL);
	uv_close((uv_handle_t *)&d->engine_timer, NULL);
	uv_close((uv_handle_t *)&d->stop_timer, NULL);
	uv_close((uv_handle_t *)&d->sigterm, NULL);
	uv_close((uv_handle_t *)&d->sigint, NULL);
	uv_close((uv_handle_t *)&d->sighup, NULL);
}

/* The loop ends once nothing is open. */
static void end_when_idle(struct daemon *d)
{
	assert(d->stopping);
	if (!server_is_idle(&d->server) || !lmtp_is_idle(&d->lmtp))
		return;
	server_stop(&d->server);
	lmtp_shut(&d->lmtp);
	fetches_close(&d->fetches);
	fetches_close(&d->hooks);
	close_handles(d);
}

static void on_stop_timer(uv_timer_t *t)
{
	struct daemon *d = CONTAINER_OF(t, struct daemon, stop_timer);

	assert(d->stopping);
	if (++d->stop_ticks <= STOP_MAX_MS / STOP_CHECK_MS)
		return;
	log_message(&d->log, LOG_WARN, "daemon.stop_forced",
		    "some clients did not take their answers in time");
	_exit(0); /* everything that was answered is on the disk */
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
	lmtp_quiesce(&d->lmtp);
	stop_fetching(d);
	uv_timer_stop(&d->engine_timer);
	uv_timer_start(&d->stop_timer, on_stop_timer, STOP_CHECK_MS, STOP_CHECK_MS);
}

/* Reading again */

/* The certificate and the contracts: everything else of the settings is for the next start. A
 * contract that does not check leaves the old one in force. */
static void on_hangup(uv_signal_t *h, int number)
{
	struct daemon *d = h->data;
	struct problem p = { 0 };

	(void)number;
	if (!d->stopping)
		keep_reload(&d->engine);
	if (tls_load(d->settings, clock_mono(&CLOCK_SYSTEM), &p) < 0)
		log_message(&d->log, LOG_ERROR, "tls.reload_failed",
			    "%s: the certificate that was there stays in use", p.message);
	else
		log_message(&d->log, LOG_INFO, "tls.reloaded", "%s",
			    tls_is_on() ? "new connections get the certificate of the file"
					: "there is no tls_cert: nothing to read again");
}

/* Before every sleep: a request may have given the engine something to do sooner, or the last one
 * has ended. */
static void on_prepare(uv_prepare_t *p)
{
	struct daemon *d = CONTAINER_OF(p, struct daemon, prepare);

	end_when_left_out(d);
	note_loop(d);
	if (d->stopping) {
		end_when_idle(d);
		return;
	}
	lapse_us next = engine_next_us(&d->engine);
	assert(next >= 0);
	if (next == INT64_MAX)
		uv_timer_stop(&d->engine_timer);
	else
		uv_timer_start(&d->engine_timer, on_engine_timer, (uint64_t)((next + 999) / 1000),
			       0);
}

/* Starting */

/* Callers from other machines need a token, and no token may travel in the clear. */
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
	if (!tls_is_on() && !d->settings->behind_tls_proxy)
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

static void list_rooms(struct daemon *d)
{
	size_t n = 0;

	for (; ROOMS[n]; n++)
		d->rooms[n] = ROOMS[n];
	assert(n < ROOMS_COUNT + 1);
	d->rooms[n] = &CONTRACT_ROOM;
}

/* The files of `contract`, with : between them. */
static int open_contracts(struct daemon *d, struct problem *p)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	char *CLEANUP(mem_freep) files = mem_strdup(d->settings->contract);
	char *rest = files;

	for (char *file; (file = strsep(&rest, ":"));)
		if (*file && keep_add(&d->engine, file, &error) < 0)
			return problem_set(p, LAPSE_EINVAL, "contract", "%.250s", buf_text(&error));
	keep_look(&d->engine);
	return LAPSE_OK;
}

static int open_engine(struct daemon *d, struct problem *p)
{
	struct engine_config config = { .settings = d->settings,
					.clock = &CLOCK_SYSTEM,
					.log = &d->log,
					.bounds = ROOM_BOUNDS,
					.schedulers = ROOM_SCHEDULERS,
					.cleanups = ROOM_CLEANUPS,
					.rooms = d->rooms,
					.owned = ROOM_OWNED,
					.postgres = pg_store_open };
	list_rooms(d);
	int r = engine_open(&d->engine, &config, p);

	if (r == LAPSE_OK) {
		store_own(d->engine.store);
		d->engine.offloader = (struct offloader){ start_offload, d };
	}
	return r;
}

static int open_provider(struct daemon *d, struct problem *p)
{
	int r = fetches_init(&d->fetches, &d->loop, &CLOCK_SYSTEM,
			     d->settings->stalwart_connections_max, p);

	if (r == LAPSE_OK)
		r = fetches_init(&d->hooks, &d->loop, &CLOCK_SYSTEM, HOOK_CONNECTIONS_MAX, p);
	if (r == LAPSE_OK) {
		fetches_restrict(&d->hooks, HOOK_CONNECTIONS_PER_HOST,
				 !d->settings->webhook_allow_private);
		r = provider_open(d->settings, getenv("CREDENTIALS_DIRECTORY"), &d->fetches.fetcher,
				  &CLOCK_SYSTEM, &d->provider, p);
	}
	return r;
}

static int open_server(struct daemon *d, struct problem *p)
{
	int r = listener_open(&d->listener, d->settings->listen, tls_is_on(), p);

	if (r < 0)
		return r;
	assert(d->listener.fd >= 0);
	r = check_exposure(d, p);
	struct server_config config = { .engine = &d->engine,
					.loop = &d->loop,
					.fd = d->listener.fd,
					.tls_retrieve = tls_is_on() ? tls_retrieve : NULL,
					.tls_priorities = TLS_PRIORITIES };
	if (r == LAPSE_OK)
		r = server_start(&d->server, &config, p);
	if (r < 0) {
		close(d->listener.fd);
		listener_remove(&d->listener);
	}
	return r;
}

/* A client that can connect can put mail into any mailbox, so it must be on this machine. Like a
 * port, the socket is open to every local user, unless the permissions of its directory forbid it.
 */
static int open_lmtp(struct daemon *d, struct problem *p)
{
	struct listener *l = &d->lmtp_listener;
	struct problem why = { 0 };

	if (d->settings->lmtp_listen[0] == '\0')
		return LAPSE_OK;
	if (!d->engine.files_shared)
		return problem_set(
			p, LAPSE_ECONFLICT, "lmtp_listen",
			"lmtp_listen: mail has attachments, and this replica does not see "
			"their files: share the directory data_dir/files first");
	int r = listener_open(l, d->settings->lmtp_listen, false, &why);
	if (r < 0)
		return problem_set(p, r, "lmtp_listen", "lmtp_%.240s", why.message);
	if (!l->is_loopback) {
		close(l->fd);
		return problem_set(p, LAPSE_EFORBIDDEN, "lmtp_listen",
				   "lmtp_listen: %.80s is not on loopback: mail is taken from this "
				   "machine only",
				   d->settings->lmtp_listen);
	}
	if (l->is_unix)
		chmod(l->path, 0666);
	lmtp_open(&d->lmtp, &d->engine, &d->loop, l->fd, l->is_unix);
	log_message(&d->log, LOG_INFO, "lmtp.ready", "%s",
		    l->is_unix ? l->text : l->text + strlen("http://"));
	return LAPSE_OK;
}

static void start_loop(struct daemon *d)
{
	uv_prepare_init(&d->loop, &d->prepare);
	uv_prepare_start(&d->prepare, on_prepare);
	uv_timer_init(&d->loop, &d->engine_timer);
	uv_timer_init(&d->loop, &d->stop_timer);
	uv_signal_init(&d->loop, &d->sigterm);
	uv_signal_init(&d->loop, &d->sigint);
	uv_signal_init(&d->loop, &d->sighup);
	d->sigterm.data = d->sigint.data = d->sighup.data = d;
	uv_signal_start(&d->sighup, on_hangup, SIGHUP);
	uv_signal_start(&d->sigterm, on_signal, SIGTERM);
	uv_signal_start(&d->sigint, on_signal, SIGINT);
}

/* The kernel doubles a process's table of descriptors when one is opened that does not fit, and in
 * a process with threads it waits for all processors before it goes on: tens or hundreds of
 * milliseconds, for the loop too, which accepts connections. Now there is one thread, and no wait.
 */
static void make_room_for_descriptors(const struct settings *s, rlim_t max)
{
	rlim_t wanted = (rlim_t)(s->connections_max + SERVER_SPARE_CONNECTIONS + s->transfers_max) +
			OTHER_DESCRIPTORS;
	int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, (int)((wanted < max ? wanted : max) - 1));

	if (fd >= 0)
		close(fd);
}

/* As many descriptors as we are allowed; the connection limit is ours to enforce. */
static void raise_limits(const struct settings *s)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
		make_room_for_descriptors(s, l.rlim_cur);
	}
	signal(SIGPIPE, SIG_IGN);
	umask(0077);
}

static void daemon_run_loop(struct daemon *d)
{
	start_loop(d);
	printf("lapsed ready on %s\n", d->listener.text);
	fflush(stdout);
	log_message(&d->log, LOG_INFO, "daemon.ready", "%s", d->listener.text);
	uv_run(&d->loop, UV_RUN_DEFAULT);
	listener_remove(&d->listener);
	listener_remove(&d->lmtp_listener);
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
	mailboxes_of(&d->engine)->provider = d->provider;
	webhooks_give(&d->engine, &d->hooks.fetcher);
	if (d->provider && d->provider->needs_secret)
		r = outside_open_key(&d->engine, p);
	if (r == LAPSE_OK)
		r = open_contracts(d, p);
	if (r == LAPSE_OK)
		r = open_lmtp(d, p);
	if (r == LAPSE_OK)
		r = open_server(d, p);
	if (r == LAPSE_OK) {
		audit_start(&d->engine);
		daemon_run_loop(d);
	} else {
		lmtp_shut(&d->lmtp);
		listener_remove(&d->lmtp_listener);
	}
	engine_close(&d->engine);
	return r;
}

int daemon_run(const struct settings *settings, struct problem *p)
{
	struct daemon *d = mem_zalloc(1, sizeof(*d));

	d->settings = settings;
	d->log = (struct log){ .clock = &CLOCK_SYSTEM, .fd = STDERR_FILENO };
	raise_limits(settings);
	setenv("UV_THREADPOOL_SIZE", WORKERS, 0);
	db_process_init();
	int r = check_settings(settings, &d->log, p);
	if (r == LAPSE_OK)
		r = tls_load(settings, clock_mono(&CLOCK_SYSTEM), p);
	if (r == LAPSE_OK) {
		uv_loop_init(&d->loop);
		uv_loop_configure(&d->loop, UV_METRICS_IDLE_TIME);
		r = open_all(d, p);
		fetches_close(&d->fetches); /* closed already, unless the start failed */
		fetches_close(&d->hooks);
		uv_run(&d->loop, UV_RUN_DEFAULT);
		int busy = uv_loop_close(&d->loop);
		assert(busy == 0); /* every handle was closed */
		provider_free(d->provider);
	}
	tls_unload();
	free(d);
	return r;
}
