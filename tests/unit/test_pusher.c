/* SPDX-License-Identifier: Apache-2.0 */
/* What is written to a corked socket is sent by the pusher's thread, and not before. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/pusher.h"
#include "unit.h"

#define SENT_MS 10000
#define PAIRS 300 /* more than are corked at once */

struct pair {
	int ours, theirs;
};

static struct pair tcp_pair(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct pair p = { .theirs = socket(AF_INET, SOCK_STREAM, 0) };

	assert_int_equal(bind(listener, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
	assert_int_equal(connect(p.theirs, (struct sockaddr *)&a, n), 0);
	p.ours = accept(listener, NULL, NULL);
	assert_true(p.ours >= 0);
	close(listener);
	return p;
}

static void pair_close(struct pair *p)
{
	close(p->ours);
	close(p->theirs);
}

/* The kernel itself sends after 200 ms, so the socket is asked and not the clock. */
static bool is_corked(const struct pair *p)
{
	int on = 0;
	socklen_t n = sizeof(on);

	assert_int_equal(getsockopt(p->ours, IPPROTO_TCP, TCP_CORK, &on, &n), 0);
	return on != 0;
}

static bool is_uncorked_soon(const struct pair *p)
{
	for (int ms = 0; is_corked(p) && ms < SENT_MS; ms++)
		poll(NULL, 0, 1);
	return !is_corked(p);
}

static bool comes(const struct pair *p, int within_ms)
{
	struct pollfd readable = { .fd = p->theirs, .events = POLLIN };

	return poll(&readable, 1, within_ms) == 1;
}

static void say(const struct pair *p)
{
	assert_int_equal(write(p->ours, "x", 1), 1);
}

static void what_is_corked_waits_for_the_push(void **state)
{
	struct pusher *pusher = pusher_start();
	struct pair p = tcp_pair();

	(void)state;
	assert_non_null(pusher);
	assert_false(pusher_has_corked(pusher));
	pusher_cork(pusher, p.ours);
	assert_true(pusher_has_corked(pusher));
	say(&p);
	assert_true(is_corked(&p));
	pusher_push(pusher);
	assert_false(pusher_has_corked(pusher));
	assert_true(is_uncorked_soon(&p));
	assert_true(comes(&p, SENT_MS));
	pair_close(&p);
	pusher_stop(pusher);
}

static void what_is_corked_at_the_stop_is_sent(void **state)
{
	struct pusher *pusher = pusher_start();
	struct pair p = tcp_pair();

	(void)state;
	pusher_cork(pusher, p.ours);
	say(&p);
	pusher_stop(pusher);
	assert_false(is_corked(&p));
	assert_true(comes(&p, SENT_MS));
	pair_close(&p);
}

static void a_socket_may_be_closed_before_the_push(void **state)
{
	struct pusher *pusher = pusher_start();
	struct pair p = tcp_pair();
	char byte;

	(void)state;
	pusher_cork(pusher, p.ours);
	say(&p);
	close(p.ours);
	assert_int_equal(read(p.theirs, &byte, 1), 1);
	assert_int_equal(read(p.theirs, &byte, 1), 0);
	pusher_push(pusher);
	pusher_stop(pusher);
	close(p.theirs);
}

static void other_sockets_are_left_alone(void **state)
{
	struct pusher *pusher = pusher_start();
	int two[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, two), 0);
	pusher_cork(pusher, two[0]);
	pusher_cork(pusher, -1);
	assert_false(pusher_has_corked(pusher));
	pusher_push(pusher);
	pusher_stop(pusher);
	close(two[0]);
	close(two[1]);
}

static void without_a_thread_nothing_is_corked(void **state)
{
	(void)state;
	pusher_cork(NULL, 0);
	assert_false(pusher_has_corked(NULL));
	pusher_push(NULL);
	pusher_stop(NULL);
}

static void many_sockets_at_once_all_send(void **state)
{
	struct pusher *pusher = pusher_start();
	struct pair *all = mem_zalloc(PAIRS, sizeof(*all));

	(void)state;
	for (int i = 0; i < PAIRS; i++)
		all[i] = tcp_pair();
	for (int round = 0; round < 3; round++) {
		char byte;
		for (int i = 0; i < PAIRS; i++) {
			pusher_cork(pusher, all[i].ours);
			say(&all[i]);
			if (round > 0 && i % 100 == 0)
				pusher_push(pusher); /* faster than the thread */
		}
		pusher_push(pusher);
		for (int i = 0; i < PAIRS; i++) {
			assert_true(is_uncorked_soon(&all[i]));
			assert_true(comes(&all[i], SENT_MS));
			assert_int_equal(read(all[i].theirs, &byte, 1), 1);
		}
	}
	for (int i = 0; i < PAIRS; i++)
		pair_close(&all[i]);
	free(all);
	pusher_stop(pusher);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_corked_waits_for_the_push),
		cmocka_unit_test(what_is_corked_at_the_stop_is_sent),
		cmocka_unit_test(a_socket_may_be_closed_before_the_push),
		cmocka_unit_test(other_sockets_are_left_alone),
		cmocka_unit_test(without_a_thread_nothing_is_corked),
		cmocka_unit_test(many_sockets_at_once_all_send),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
