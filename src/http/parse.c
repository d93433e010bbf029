/* SPDX-License-Identifier: Apache-2.0 */
#include "http/parse.h"

#include <assert.h>

#include "base/thread.h"
#include "http/request.h"
#include "http/server.h"

/* Jansson takes about 10 ns a byte: up to this, less than a millisecond. */
#define LONG_BYTES ((size_t)64 << 10)

#define PARSE_MAGIC 0x4c504152u

struct parse_job {
	uint32_t magic;
	uv_work_t work;
	struct server *server;
	struct request *request; /* to parse; NULL = `body` is to be let go of */
	json_t *body;
	int err;
};

bool parse_is_long(const struct request *r)
{
	assert(r->magic == REQUEST_MAGIC);
	return r->call.text && !r->call.is_csv && !r->call.body && r->call.text_len > LONG_BYTES;
}

static void parse_work(uv_work_t *w) /* on a worker */
{
	struct parse_job *j = CONTAINER_OF(w, struct parse_job, work);

	assert(j->magic == PARSE_MAGIC);
	thread_give_way();
	if (j->request)
		j->err = request_parse(j->request);
	else
		json_decref(j->body);
}

static void parse_done(uv_work_t *w, int status)
{
	struct parse_job *j = CONTAINER_OF(w, struct parse_job, work);
	struct request *r = j->request;

	(void)status;
	assert(j->magic == PARSE_MAGIC && j->server->parsing > 0);
	j->server->parsing--;
	if (r) {
		r->err = j->err;
		request_stored(r);
	}
	j->magic = 0;
	free(j);
}

static void parse_queue(struct server *s, struct request *r, json_t *body)
{
	struct parse_job *j = mem_zalloc(1, sizeof(*j));

	*j = (struct parse_job){ .magic = PARSE_MAGIC, .server = s, .request = r, .body = body };
	s->parsing++;
	uv_queue_work(s->loop, &j->work, parse_work, parse_done);
}

void parse_start(struct request *r)
{
	assert(r->state == REQUEST_STORING && r->suspended && parse_is_long(r));
	parse_queue(r->server, r, NULL);
}

void parse_release(struct request *r)
{
	if (!r->call.body || r->call.text_len <= LONG_BYTES)
		return;
	parse_queue(r->server, NULL, r->call.body);
	r->call.body = NULL;
}
