/* SPDX-License-Identifier: Apache-2.0 */
#include "http/hangup.h"

#include <assert.h>
#include <poll.h>

#include "api/wait.h"
#include "http/request.h"
#include "http/server.h"

#define HANGUP_LOOK_US 10000 /* a look at a thousand sockets takes a hundredth of it */

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

	assert(s->magic == SERVER_MAGIC);
	if (s->connections.count <= max - max / 4 || s->pumped < s->connections.look_next ||
	    !waiters_exist(s->engine))
		return;
	s->connections.look_next = s->pumped + HANGUP_LOOK_US;
	end_polls_of_hangups(s);
}
