/* SPDX-License-Identifier: Apache-2.0 */
#include "http/hangup.h"

#include <assert.h>
#include <poll.h>

#include "api/wait.h"
#include "http/request.h"
#include "http/server.h"

/* A look at a thousand sockets takes 100 us. It is worth that after this time, and after this share
 * of connections_max has come: on a fast machine a quarter of them comes in less. */
#define HANGUP_LOOK_US 10000
#define HANGUP_LOOK_SHARE 32

static struct pollfd socket_of(const struct call *c)
{
	const struct request *r = request_of_call(c);

	assert(r->magic == REQUEST_MAGIC);
	/* poll() passes over -1: this client is known to have left. */
	return (struct pollfd){ .fd = r->connection ? connection_fd(r->connection) : -1,
				.events = POLLRDHUP };
}

static void end_polls_of_hangups(struct server *s)
{
	const size_t count = calls_polling(s->engine, NULL, 0);
	struct call **calls = mem_zalloc(count, sizeof(struct call *));
	struct pollfd *sockets = mem_zalloc(count, sizeof(*sockets));

	calls_polling(s->engine, calls, count);
	for (size_t i = 0; i < count; i++)
		sockets[i] = socket_of(calls[i]);
	if (poll(sockets, count, 0) > 0)
		for (size_t i = 0; i < count; i++)
			if (sockets[i].revents != 0)
				call_end_poll(calls[i]);
	free(sockets);
	free(calls);
}

void hangups_look(struct server *s)
{
	const int64_t max = s->engine->settings->connections_max;
	struct connections *c = &s->connections;

	assert(s->magic == SERVER_MAGIC);
	c->since_look++;
	if (c->count <= max - max / 4 || !waiters_exist(s->engine) ||
	    (s->pumped < c->look_next && c->since_look <= max / HANGUP_LOOK_SHARE))
		return;
	c->look_next = s->pumped + HANGUP_LOOK_US;
	c->since_look = 0;
	end_polls_of_hangups(s);
}
