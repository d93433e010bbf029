/* SPDX-License-Identifier: Apache-2.0 */
/* Presence through the library: heartbeats, capabilities, eviction at the deadline, restarts. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib.h"

#define EVICT_MS (90 * SECOND_MS)

static struct seen seen;

static int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	return world_setup(state);
}

static int setup_bare(void **state)
{
	memset(&seen, 0, sizeof(seen));
	return world_setup_bare(state);
}

/* The name, the capabilities behind it, and a question mark for a suspect. */
static void see_agent(void *arg, const struct lapse_agent *a)
{
	struct seen *s = arg;
	char *text = s->items[s->count].text;
	size_t n = (size_t)snprintf(text, TEXT_SIZE, "%s%s", a->agent, a->suspect ? "?" : "");

	for (size_t i = 0; i < a->capabilities_count && n < TEXT_SIZE; i++)
		n += (size_t)snprintf(text + n, TEXT_SIZE - n, " %s", a->capabilities[i]);
	s->items[s->count].at = a->last_seen;
	s->items[s->count].read_at = a->expires_at;
	s->count++;
}

static void beat(struct world *w, const char *agent)
{
	struct lapse_beat b = { .agent = agent, .cluster = "c1" };

	assert_ok(w, lapse_agent_heartbeat(w->store, &b, 1));
}

static bool is_live(struct world *w, const char *agent)
{
	int r = lapse_agent_get(w->store, agent, NULL, NULL);

	assert_true(r == LAPSE_OK || r == LAPSE_ENOTFOUND);
	return r == LAPSE_OK;
}

static void test_an_agent_comes_back_whole(void **state)
{
	struct world *w = *state;
	const char *abilities[] = { "write", "read" };
	struct lapse_beat b = { "bob", "c1", abilities, 2, "{\"v\": 1}" };

	assert_ok(w, lapse_agent_heartbeat(w->store, &b, 1));
	assert_ok(w, lapse_agent_get(w->store, "bob", see_agent, &seen));
	assert_string_equal(seen.items[0].text, "bob read write");
	assert_int_equal(seen.items[0].at, NOW);
	assert_int_equal(seen.items[0].read_at, NOW + EVICT_MS + 1);
	world_pass(w, SECOND_MS);
	beat(w, "bob"); /* says nothing new: the capabilities stay */
	assert_ok(w, lapse_agent_get(w->store, "bob", see_agent, &seen));
	assert_string_equal(seen.items[1].text, "bob read write");
	assert_int_equal(seen.items[1].at, NOW + SECOND_MS);
	b.capabilities_count = 0;
	assert_ok(w, lapse_agent_heartbeat(w->store, &b, 1));
	assert_ok(w, lapse_agent_get(w->store, "bob", see_agent, &seen));
	assert_string_equal(seen.items[2].text, "bob");
}

/* Seed 001: more than 90 s; exactly 90 s stays. */
static void test_evicted_at_the_millisecond(void **state)
{
	struct world *w = *state;

	beat(w, "bob");
	world_pass(w, EVICT_MS);
	tick_until_idle(w);
	assert_true(is_live(w, "bob"));
	assert_int_equal(lapse_next_us(w->store), 1000);
	world_pass(w, 1);
	assert_int_equal(lapse_next_us(w->store), 0);
	assert_false(is_live(w, "bob")); /* not shown, evicted or not */
	tick_until_idle(w);
	assert_false(is_live(w, "bob"));
	assert_ok(w, lapse_events(w->store, 0, 10, see_event, &seen));
	assert_int_equal(seen.count, 2);
	assert_string_equal(seen.items[0].text, "agent.seen");
	assert_string_equal(seen.items[1].text, "agent.evicted");
	assert_non_null(strstr(w->log, "agent.evicted"));
}

static void test_a_heartbeat_in_time(void **state)
{
	struct world *w = *state;

	beat(w, "bob");
	for (int i = 0; i < 5; i++) {
		world_pass(w, 89 * SECOND_MS);
		beat(w, "bob");
		tick_until_idle(w);
		assert_true(is_live(w, "bob"));
	}
}

static void test_an_evicted_agent_returns_without_its_capabilities(void **state)
{
	struct world *w = *state;
	const char *abilities[] = { "read" };
	struct lapse_beat b = { "bob", "c1", abilities, 1, NULL };

	assert_ok(w, lapse_agent_heartbeat(w->store, &b, 1));
	world_pass(w, EVICT_MS + 1);
	beat(w, "bob");
	assert_ok(w, lapse_agent_get(w->store, "bob", see_agent, &seen));
	assert_string_equal(seen.items[0].text, "bob");
}

static void test_lists(void **state)
{
	struct world *w = *state;
	const char *abilities[] = { "read" };
	struct lapse_beat b[] = { { "a", "c1", abilities, 1, NULL },
				  { "b", "c2", abilities, 1, NULL },
				  { "c", "c1", NULL, 0, NULL } };

	assert_ok(w, lapse_agent_heartbeat(w->store, b, 3));
	assert_ok(w, lapse_agent_list(w->store, NULL, NULL, NULL, 2, see_agent, &seen));
	assert_int_equal(seen.count, 2);
	assert_ok(w, lapse_agent_list(w->store, NULL, NULL, "b", 2, see_agent, &seen));
	assert_int_equal(seen.count, 3);
	assert_string_equal(seen.items[2].text, "c");
	assert_ok(w, lapse_agent_list(w->store, "c1", "read", NULL, 10, see_agent, &seen));
	assert_int_equal(seen.count, 4);
	assert_string_equal(seen.items[3].text, "a read");
	assert_error(w, lapse_agent_list(w->store, NULL, NULL, NULL, 0, NULL, NULL), LAPSE_EINVAL,
		     "limit");
	assert_error(w, lapse_agent_list(w->store, "", NULL, NULL, 1, NULL, NULL), LAPSE_EINVAL,
		     "cluster");
}

static void test_capabilities_and_removal(void **state)
{
	struct world *w = *state;
	const char *abilities[] = { "z", "a" };

	beat(w, "bob");
	assert_ok(w, lapse_agent_set_capabilities(w->store, "bob", abilities, 2));
	assert_string_equal(abilities[0], "z"); /* ours: not sorted in place */
	assert_ok(w, lapse_agent_get(w->store, "bob", see_agent, &seen));
	assert_string_equal(seen.items[0].text, "bob a z");
	assert_ok(w, lapse_agent_set_capabilities(w->store, "bob", NULL, 0));
	assert_ok(w, lapse_agent_list(w->store, NULL, "a", NULL, 10, see_agent, &seen));
	assert_int_equal(seen.count, 1);
	assert_error(w, lapse_agent_set_capabilities(w->store, "eve", abilities, 2),
		     LAPSE_ENOTFOUND, "agent");
	assert_ok(w, lapse_hold_place(w->store, "agents", "bob", "r", LAPSE_NEVER));
	assert_error(w, lapse_agent_remove(w->store, "bob"), LAPSE_ECONFLICT, "agent");
	assert_ok(w, lapse_hold_release(w->store, "agents", "bob"));
	assert_ok(w, lapse_agent_remove(w->store, "bob"));
	assert_error(w, lapse_agent_remove(w->store, "bob"), LAPSE_ENOTFOUND, "agent");
	assert_false(is_live(w, "bob"));
}

static void test_heartbeats_of_all_or_of_none(void **state)
{
	struct world *w = *state;
	const char *twice[] = { "x", "x" };
	struct lapse_beat b[] = { { "a", "c1", NULL, 0, NULL }, { "b/b", "c1", NULL, 0, NULL } };

	assert_error(w, lapse_agent_heartbeat(w->store, b, 2), LAPSE_EINVAL, "agent");
	assert_false(is_live(w, "a"));
	b[1] = (struct lapse_beat){ "b", NULL, NULL, 0, NULL };
	assert_error(w, lapse_agent_heartbeat(w->store, b, 2), LAPSE_EINVAL, "cluster");
	b[1] = (struct lapse_beat){ "b", "c", twice, 2, NULL };
	assert_error(w, lapse_agent_heartbeat(w->store, b, 2), LAPSE_EINVAL, "capabilities");
	b[1] = (struct lapse_beat){ "b", "c", NULL, 0, "[]" };
	assert_error(w, lapse_agent_heartbeat(w->store, b, 2), LAPSE_EINVAL, "metadata");
	assert_error(w, lapse_agent_heartbeat(w->store, b, 0), LAPSE_EINVAL, "count");
	assert_error(w, lapse_agent_heartbeat(w->store, NULL, 1), LAPSE_EINVAL, "beats");
	assert_false(is_live(w, "a"));
}

/* Most of the fleet silent at once: absent at the deadline, but a late heartbeat finds the record.
 */
static void test_the_breaker(void **state)
{
	struct world *w = *state;
	char name[24];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "agent%02d", i);
		beat(w, name);
	}
	const char *abilities[] = { "read" };
	assert_ok(w, lapse_agent_set_capabilities(w->store, "agent07", abilities, 1));
	world_pass(w, EVICT_MS + 1);
	tick_until_idle(w);
	assert_ok(w, lapse_agent_list(w->store, NULL, NULL, NULL, 100, see_agent, &seen));
	assert_int_equal(seen.count, 0);
	world_pass(w, EVICT_MS);
	beat(w, "agent07");
	assert_ok(w, lapse_agent_list(w->store, NULL, NULL, NULL, 100, see_agent, &seen));
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.items[0].text, "agent07 read");
}

static void beat_and_die(struct world *w)
{
	const char *abilities[] = { "read" };
	struct lapse_beat b = { "bob", "c1", abilities, 1, NULL };

	world_open(w);
	assert_ok(w, lapse_agent_heartbeat(w->store, &b, 1));
	_exit(0);
}

/* Membership and capabilities are durable at once; after a restart there is one full threshold. */
static void test_after_an_exit_without_close(void **state)
{
	struct world *w = *state;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		beat_and_die(w);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	world_pass(w, HOUR_MS);
	world_open(w);
	assert_ok(w, lapse_agent_get(w->store, "bob", see_agent, &seen));
	assert_string_equal(seen.items[0].text, "bob read");
	world_pass(w, EVICT_MS);
	tick_until_idle(w);
	assert_true(is_live(w, "bob"));
	world_pass(w, 1);
	tick_until_idle(w);
	assert_false(is_live(w, "bob"));
}

#define WORLD(test) cmocka_unit_test_setup_teardown(test, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD(test_an_agent_comes_back_whole),
		WORLD(test_evicted_at_the_millisecond),
		WORLD(test_a_heartbeat_in_time),
		WORLD(test_an_evicted_agent_returns_without_its_capabilities),
		WORLD(test_lists),
		WORLD(test_capabilities_and_removal),
		WORLD(test_heartbeats_of_all_or_of_none),
		WORLD(test_the_breaker),
		cmocka_unit_test_setup_teardown(test_after_an_exit_without_close, setup_bare,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
