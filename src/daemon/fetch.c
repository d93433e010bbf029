/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/fetch.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/mem.h"

#define CONNECT_MAX_MS 5000 /* a server that does not even accept is given up sooner */
#define QUEUE_CHECK_MS 100  /* how late a fetch that waits may learn that its time is over */
#define KEEP_CONNECTION_S                                                                          \
	15 /* idle; shorter than what servers keep, so that they seldom close                      \
	    * one under us */
#define HEADERS_MAX_BYTES 65536

struct transfer {
	struct list link; /* in running, waiting or refused */
	struct fetches *owner;
	struct fetch *fetch;
	CURL *easy; /* NULL while it waits */
	struct curl_slist *headers;
	lapse_us deadline; /* monotonic */
	size_t header_bytes;
	int asked;    /* how often libcurl was about to send the question */
	bool stale;   /* it was given a kept connection that the server had closed */
	bool again;   /* and is with libcurl for the second time because of it */
	bool large;   /* the answer was longer than allowed */
	bool inside;  /* the address was not public, and had to be */
	bool refused; /* it is in that list */
};

static void run_waiting(struct fetches *s);
static lapse_ms left_ms(const struct transfer *t);
static void set_time(struct transfer *t, lapse_ms left);

/* Ending */

static void free_headers(struct curl_slist *headers)
{
	for (struct curl_slist *h = headers; h; h = h->next)
		OPENSSL_cleanse(h->data, strlen(h->data)); /* Authorization */
	curl_slist_free_all(headers);
}

static bool is_sent(const struct transfer *t)
{
	long bytes = 0;

	if (!t->easy)
		return false;
	curl_easy_getinfo(t->easy, CURLINFO_REQUEST_SIZE, &bytes);
	return t->asked > 0 || bytes > 0;
}

/* The transfer, which is in no list any more, is gone; the asker, who is told last, may start or
 * cancel others. */
static void transfer_finish(struct transfer *t, int err)
{
	struct fetches *s = t->owner;
	struct fetch *f = t->fetch;

	assert(f->state == t && s->multi);
	f->err = err;
	f->sent = is_sent(t);
	f->state = NULL;
	if (t->easy) {
		curl_multi_remove_handle(s->multi, t->easy);
		curl_easy_cleanup(t->easy);
		s->running_count--;
		assert(s->running_count >= 0);
	} else if (!t->refused) {
		s->waiting_count--;
	}
	free_headers(t->headers);
#ifndef __clang_analyzer__ /* which takes the next node of a list for the one just removed */
	free(t);
#endif
	f->done(f);
}

/* libcurl looks at the host's name itself, once OpenSSL is content with the certificate. */
static void say_untrusted(struct transfer *t, CURLcode code)
{
	struct fetch *f = t->fetch;
	long verdict = X509_V_OK;

	curl_easy_getinfo(t->easy, CURLINFO_SSL_VERIFYRESULT, &verdict);
	f->untrusted = true;
	if (code == CURLE_SSL_CACERT_BADFILE)
		snprintf(f->why, sizeof(f->why), "there are no authorities to check it against");
	else if (verdict != X509_V_OK && verdict != X509_V_ERR_UNSPECIFIED)
		snprintf(f->why, sizeof(f->why), "%s", X509_verify_cert_error_string(verdict));
	else
		snprintf(f->why, sizeof(f->why), "it is for another host");
}

/* What libcurl said, in our words. libcurl's own text may name the URL, never the headers. */
static int translate(struct transfer *t, CURLcode code)
{
	struct fetch *f = t->fetch;
	long status = 0;
	char *location = NULL;

	if (code == CURLE_OK) {
		curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
		curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &location);
		f->status = (int)status;
		if (location && strlen(location) < sizeof(f->location))
			snprintf(f->location, sizeof(f->location), "%s", location);
		return LAPSE_OK;
	}
	if (t->inside)
		snprintf(f->why, sizeof(f->why),
			 "its address is not public (webhook_allow_private)");
	else if (t->large)
		snprintf(f->why, sizeof(f->why), "it answered more than %zu bytes",
			 f->answer_max_bytes);
	else if (code == CURLE_ABORTED_BY_CALLBACK)
		snprintf(f->why, sizeof(f->why), "the connection broke");
	else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
		say_untrusted(t, code);
	else if (code == CURLE_OPERATION_TIMEDOUT && !is_sent(t))
		snprintf(f->why, sizeof(f->why), "no connection to it (TCP, then TLS) in time");
	else if (code == CURLE_OPERATION_TIMEDOUT)
		return LAPSE_ETIMEOUT;
	else if (code == CURLE_SSL_CONNECT_ERROR)
		snprintf(f->why, sizeof(f->why),
			 "no TLS with it: plain HTTP, no version in common, or it broke off");
	else
		snprintf(f->why, sizeof(f->why), "%s", curl_easy_strerror(code));
	return LAPSE_EUPSTREAM;
}

/* Nothing was said yet: once more, on a new connection. */
static void run_again(struct transfer *t)
{
	lapse_ms left = left_ms(t);

	curl_multi_remove_handle(t->owner->multi, t->easy);
	t->stale = false;
	t->again = true;
	curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, 1L);
	set_time(t, left > 1 ? left : 1);
	curl_multi_add_handle(t->owner->multi, t->easy);
}

static void collect(struct fetches *s)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(s->multi, &left))) {
		struct transfer *t = NULL;
		if (m->msg != CURLMSG_DONE)
			continue;
		CURLcode code = m->data.result;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
		if (t->stale) {
			run_again(t);
			continue;
		}
		list_remove(&t->link);
		transfer_finish(t, translate(t, code));
	}
	run_waiting(s);
}

/* What libcurl calls */

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
	struct transfer *t = arg;
	struct fetch *f = t->fetch;

	(void)one;
	if (n > f->answer_max_bytes - f->answer.len) {
		t->large = true;
		return CURL_WRITEFUNC_ERROR;
	}
	buf_add(&f->answer, bytes, n);
	return n;
}

static size_t on_header(char *bytes, size_t one, size_t n, void *arg)
{
	struct transfer *t = arg;

	(void)bytes;
	(void)one;
	t->header_bytes += n;
	t->large = t->header_bytes > HEADERS_MAX_BYTES;
	return t->large ? 0 : n;
}

/* libcurl repeats a question on its own when a kept connection breaks before the first byte of an
 * answer. A POST may have been acted upon by then: it is the asker who decides. But it is not even
 * said into a connection that is known to be closed. */
static int on_ask(void *arg, char *ip, char *local_ip, int port, int local_port)
{
	struct transfer *t = arg;

	(void)ip;
	(void)local_ip;
	(void)port;
	t->stale = !t->again && t->asked == 0 && sockets_is_closed(&t->owner->sockets, local_port);
	if (t->stale)
		return CURL_PREREQFUNC_ABORT;
	if (t->asked++ > 0 && strcmp(t->fetch->method, "POST") == 0)
		return CURL_PREREQFUNC_ABORT;
	return CURL_PREREQFUNC_OK;
}

/* A socket libcurl watches. */
struct watched {
	uv_poll_t poll;
	struct fetches *owner;
	curl_socket_t fd;
};

static void on_socket_ready(uv_poll_t *p, int status, int events)
{
	struct watched *w = CONTAINER_OF(p, struct watched, poll);
	struct fetches *s = w->owner;
	int flags = (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
		    (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0) |
		    (status < 0 ? CURL_CSELECT_ERR : 0);
	int running;

	curl_multi_socket_action(s->multi, w->fd, flags, &running);
	collect(s);
}

static void free_watched(uv_handle_t *h)
{
	free(CONTAINER_OF((uv_poll_t *)h, struct watched, poll));
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
	struct fetches *s = arg;
	struct watched *w = socket_arg;

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (w)
			uv_close((uv_handle_t *)&w->poll, free_watched);
		curl_multi_assign(s->multi, fd, NULL);
		return 0;
	}
	if (!w) {
		w = mem_zalloc(1, sizeof(*w));
		w->owner = s;
		w->fd = fd;
		uv_poll_init_socket(s->loop, &w->poll, fd);
		curl_multi_assign(s->multi, fd, w);
	}
	uv_poll_start(&w->poll,
		      (what & CURL_POLL_IN ? UV_READABLE : 0) |
			      (what & CURL_POLL_OUT ? UV_WRITABLE : 0),
		      on_socket_ready);
	return 0;
}

static void on_fetch_timer(uv_timer_t *timer)
{
	struct fetches *s = CONTAINER_OF(timer, struct fetches, timer);
	int running;

	curl_multi_socket_action(s->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	collect(s);
}

static int on_timer_wanted(CURLM *multi, long ms, void *arg)
{
	struct fetches *s = arg;

	(void)multi;
	if (ms < 0)
		uv_timer_stop(&s->timer);
	else
		uv_timer_start(&s->timer, on_fetch_timer, (uint64_t)ms, 0);
	return 0;
}

/* Asking */

static void set_headers(struct transfer *t)
{
	const struct fetch *f = t->fetch;
	struct curl_slist *h = curl_slist_append(NULL, "Accept: application/json");

	h = curl_slist_append(h, "Expect:"); /* no pause before a large body */
	for (const char *const *line = f->headers; line && *line; line++)
		h = curl_slist_append(h, *line);
	if (f->body && !f->headers)
		h = curl_slist_append(h, "Content-Type: application/json");
	if (f->authorization) {
		struct buf line = { 0 };
		buf_printf(&line, "Authorization: %s", f->authorization);
		h = curl_slist_append(h, line.data);
		OPENSSL_cleanse(line.data, line.len);
		buf_done(&line);
	}
	t->headers = h;
	curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, h);
}

static void set_time(struct transfer *t, lapse_ms left)
{
	curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)left);
	curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS,
			 (long)(left < CONNECT_MAX_MS ? left : CONNECT_MAX_MS));
}

static void set_question(struct transfer *t)
{
	const struct fetch *f = t->fetch;
	CURL *e = t->easy;

	curl_easy_setopt(e, CURLOPT_URL, f->url);
	curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, f->method);
	if (f->body) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)f->body_len);
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, f->body);
	}
	set_headers(t);
}

/* Certificates and the host's name in them are checked always. With authorities of its own a fetch
 * trusts no other. The system's come from libcurl's file alone: because of the directory that
 * libcurl would look into as well, it would read that file again for each connection, which is tens
 * of milliseconds of the loop; without, it keeps what it read for a day. */
static void set_trust(struct transfer *t)
{
	const char *authorities = t->fetch->authorities;
	char *system_file = NULL;

	curl_easy_getinfo(t->easy, CURLINFO_CAINFO, &system_file);
	if (authorities || system_file)
		curl_easy_setopt(t->easy, CURLOPT_CAPATH, NULL);
	if (authorities) {
		struct curl_blob pem = { (void *)(uintptr_t)authorities, strlen(authorities),
					 CURL_BLOB_NOCOPY };
		curl_easy_setopt(t->easy, CURLOPT_CAINFO, NULL);
		curl_easy_setopt(t->easy, CURLOPT_CAINFO_BLOB, &pem);
	}
}

static curl_socket_t fetch_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct transfer *t = arg;

	t->inside = t->owner->public_only && !sockaddr_is_public(&a->addr);
	return t->inside ? CURL_SOCKET_BAD : sockets_open(&t->owner->sockets, purpose, a);
}

/* Redirects are not followed, certificates are checked, cookies, .netrc and compression are off:
 * libcurl's defaults. */
static void set_rules(struct transfer *t)
{
	CURL *e = t->easy;

	curl_easy_setopt(e, CURLOPT_PRIVATE, t);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_PROXY, ""); /* whatever the environment says */
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_QUICK_EXIT,
			 1L); /* no waiting for a name that is being resolved */
	curl_easy_setopt(e, CURLOPT_MAXAGE_CONN, (long)KEEP_CONNECTION_S);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "lapse/" LAPSE_VERSION);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, on_ask);
	curl_easy_setopt(e, CURLOPT_PREREQDATA, t);
	curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, fetch_open_socket);
	curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, t);
	curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, sockets_close);
	curl_easy_setopt(e, CURLOPT_CLOSESOCKETDATA, &t->owner->sockets);
}

static void transfer_run(struct transfer *t, lapse_ms left)
{
	struct fetches *s = t->owner;

	assert(!t->easy && left > 0);
	assert(s->waiting_count > 0 && s->running_count < s->running_max);
	s->waiting_count--;
	list_append(&s->running, &t->link);
	s->running_count++;
	t->easy = curl_easy_init();
	set_rules(t);
	set_trust(t);
	set_question(t);
	set_time(t, left);
	curl_multi_add_handle(s->multi, t->easy);
}

static lapse_ms left_ms(const struct transfer *t)
{
	return (t->deadline - clock_mono(t->owner->clock)) / 1000;
}

static void give_up(struct transfer *t)
{
	snprintf(t->fetch->why, sizeof(t->fetch->why), "no connection to it became free in time");
	transfer_finish(t, LAPSE_ETIMEOUT);
}

static void run_waiting(struct fetches *s)
{
	struct list *l;

	while (s->running_count < s->running_max && (l = list_shift(&s->waiting))) {
		struct transfer *t = CONTAINER_OF(l, struct transfer, link);
		lapse_ms left = left_ms(t);
		if (left > 0)
			transfer_run(t, left);
		else
			give_up(t);
	}
}

static struct transfer *find_overdue(struct fetches *s)
{
	for (struct list *l = s->waiting.next; l != &s->waiting; l = l->next) {
		struct transfer *t = CONTAINER_OF(l, struct transfer, link);
		if (left_ms(t) <= 0)
			return t;
	}
	return NULL;
}

static void check_queue(uv_timer_t *timer)
{
	struct fetches *s = CONTAINER_OF(timer, struct fetches, queue_timer);
	struct transfer *t;
	struct list *l;

	while ((l = list_shift(&s->refused)))
		transfer_finish(CONTAINER_OF(l, struct transfer, link),
				s->stopping ? LAPSE_EUNAVAILABLE : LAPSE_EUPSTREAM);
	while ((t = find_overdue(s))) { /* may start and cancel others: look from the start again */
		list_remove(&t->link);
		give_up(t);
	}
	run_waiting(s);
	if (list_empty(&s->waiting) && list_empty(&s->refused))
		uv_timer_stop(timer);
}

static void fetch_start(struct fetcher *fetcher, struct fetch *f)
{
	struct fetches *s = CONTAINER_OF(fetcher, struct fetches, fetcher);
	struct transfer *t = mem_zalloc(1, sizeof(*t));

	assert(f->url && f->timeout_ms > 0 && !f->state);
	t->owner = s;
	t->fetch = f;
	t->deadline = clock_mono(s->clock) + f->timeout_ms * 1000;
	f->state = t;
	t->refused = s->stopping || s->waiting_count >= FETCHES_WAITING_MAX;
	if (t->refused) {
		snprintf(f->why, sizeof(f->why), "%s",
			 s->stopping ? "lapse is stopping"
				     : "too many requests wait for it already");
		list_append(&s->refused, &t->link);
		uv_timer_start(&s->queue_timer, check_queue, 0, QUEUE_CHECK_MS);
		return;
	}
	s->waiting_count++;
	if (s->running_count < s->running_max && list_empty(&s->waiting) && left_ms(t) > 0) {
		transfer_run(t, left_ms(t));
		return;
	}
	list_append(&s->waiting, &t->link);
	if (!uv_is_active((uv_handle_t *)&s->queue_timer))
		uv_timer_start(&s->queue_timer, check_queue, QUEUE_CHECK_MS, QUEUE_CHECK_MS);
}

static void cancel(struct fetcher *fetcher, struct fetch *f)
{
	struct transfer *t = f->state;

	assert(t);
	list_remove(&t->link);
	transfer_finish(t, LAPSE_EUNAVAILABLE);
	run_waiting(CONTAINER_OF(fetcher, struct fetches, fetcher));
}

/* Start and stop */

int fetches_init(struct fetches *s, uv_loop_t *loop, const struct clock *clock,
		 int64_t connections_max, struct problem *p)
{
	assert(connections_max > 0);
	*s = (struct fetches){ .fetcher = { fetch_start, cancel },
			       .clock = clock,
			       .loop = loop,
			       .running_max = connections_max };
	list_init(&s->running);
	list_init(&s->waiting);
	list_init(&s->refused);
	sockets_init(&s->sockets);
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(s->multi = curl_multi_init()))
		return problem_set(p, LAPSE_EINTERNAL, NULL, "cannot start libcurl");
	curl_multi_setopt(s->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(s->multi, CURLMOPT_SOCKETDATA, s);
	curl_multi_setopt(s->multi, CURLMOPT_TIMERFUNCTION, on_timer_wanted);
	curl_multi_setopt(s->multi, CURLMOPT_TIMERDATA, s);
	curl_multi_setopt(s->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)connections_max);
	uv_timer_init(loop, &s->timer);
	uv_timer_init(loop, &s->queue_timer);
	return LAPSE_OK;
}

void fetches_restrict(struct fetches *s, int64_t per_host, bool public_only)
{
	assert(s->multi && list_empty(&s->running));
	curl_multi_setopt(s->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)per_host);
	s->public_only = public_only;
}

static void finish_all(struct list *all)
{
	struct list *l;

	while ((l = list_shift(all)))
		transfer_finish(CONTAINER_OF(l, struct transfer, link), LAPSE_EUNAVAILABLE);
}

void fetches_stop(struct fetches *s)
{
	assert(s->multi);
	s->stopping = true;
	finish_all(&s->running);
	finish_all(&s->waiting);
}

void fetches_close(struct fetches *s)
{
	if (!s->multi)
		return;
	fetches_stop(s);
	finish_all(&s->refused);
	assert(s->running_count == 0 && s->waiting_count == 0);
	curl_multi_cleanup(s->multi);
	s->multi = NULL;
	sockets_done(&s->sockets);
	uv_close((uv_handle_t *)&s->timer, NULL);
	uv_close((uv_handle_t *)&s->queue_timer, NULL);
	curl_global_cleanup();
}
