/* SPDX-License-Identifier: Apache-2.0 */
/* Agents in an engine: at their deadline, once, together with what they can do; when a step fails,
 * when they are held, when most of an owner's agents fall silent together, and after a restart. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/hold.h"
#include "presence/presence.h"
#include "presence/suspect.h"
#include "unit.h"

#define THRESHOLD INT64_C(90000)
#define CHECK INT64_C(30000)
#define HOUR INT64_C(3600000)

static int try_beat(struct world *w, const char *owner, struct beat b)
{
	struct problem p = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	int r = presence_beat(&tx, owner, &b, &p);
	if (r < 0)
		tx_rollback(&tx);
	else
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return r;
}

static void beat(struct world *w, const char *agent)
{
	assert_int_equal(try_beat(w, "local", (struct beat){ .agent = agent, .cluster = "c" }), 0);
}

static void beat_able(struct world *w, const char *agent, const char *capabilities)
{
	struct beat b = { .agent = agent, .cluster = "c", .capabilities = capabilities };

	assert_int_equal(try_beat(w, "local", b), 0);
}

/* a0 … a(n-1), each in the fleet from now on. */
static void beat_many(struct world *w, int from, int to)
{
	char name[16];

	for (int i = from; i < to; i++) {
		snprintf(name, sizeof(name), "a%d", i);
		beat(w, name);
	}
}

static bool keep_view(void *arg, const struct agent_view *v)
{
	*(struct agent_view *)arg = *v;
	return true;
}

static int get_any(struct world *w, const char *agent, bool include_suspect, struct agent_view *ret)
{
	struct tx tx;

	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	int r = presence_get(&tx, "local", agent, include_suspect, keep_view, ret);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return r;
}

/* 0, or LAPSE_ENOTFOUND. */
static int get(struct world *w, const char *agent, struct agent_view *ret)
{
	struct agent_view v;

	return get_any(w, agent, false, ret ? ret : &v);
}

static bool is_suspect(struct world *w, const char *agent)
{
	struct agent_view v;

	return get(w, agent, NULL) == LAPSE_ENOTFOUND && get_any(w, agent, true, &v) == LAPSE_OK &&
	       v.suspect;
}

static void advance_and_tick(struct world *w, lapse_ms ms)
{
	fake_clock_advance(&w->time, ms);
	tick_until_idle(w);
}

static int64_t rows(struct world *w)
{
	return side_int(w, "SELECT count(*) FROM agents");
}

static int64_t suspects(struct world *w)
{
	return side_int(w, "SELECT count(*) FROM suspects");
}

static int64_t events(struct world *w, const char *kind)
{
	return side_int(w, "SELECT count(*) FROM events WHERE kind = '%s'", kind);
}

static int64_t history(struct world *w)
{
	return side_int(w, "SELECT count(*) FROM sweeps WHERE scheduler = 'agents'");
}

static int count_in(const char *text, const char *word)
{
	int n = 0;

	for (; (text = strstr(text, word)); text += strlen(word))
		n++;
	return n;
}

static int logged(struct world *w, const char *word)
{
	char *CLEANUP(mem_freep) log = world_log(w);

	return count_in(log, word);
}

static void check_all(struct world *w)
{
	world_check_counters(w);
	assert_int_equal(fleet_of(&w->engine)->count, rows(w));
	assert_int_equal(side_int(w, "SELECT count(*) FROM agents JOIN suspects "
				     "USING (owner, agent)"),
			 0);
	assert_int_equal(
		side_int(w, "SELECT count(*) FROM (SELECT owner, name, count(*) FROM capabilities "
			    "GROUP BY 1, 2 EXCEPT SELECT * FROM capability_counts)"),
		0);
	assert_int_equal(side_int(w, "SELECT coalesce(sum(agents), 0) FROM capability_counts"),
			 side_int(w, "SELECT count(*) FROM capabilities"));
	assert_int_equal(
		side_int(w, "SELECT count(*) FROM (SELECT a.owner, j.value, a.agent FROM agents AS "
			    "a, json_each(a.capabilities) AS j EXCEPT SELECT * FROM capabilities)"),
		0);
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"),
			 side_int(w, "SELECT coalesce(sum(json_array_length(capabilities)), 0) "
				     "FROM agents"));
}

static void hold(struct world *w, const char *agent, lapse_ms until)
{
	struct hold h = { .owner = "local",
			  .table = "agents",
			  .key = agent,
			  .reason = "under investigation",
			  .until = until };
	struct problem p = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(hold_place(&tx, &h, &p), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
}

static void release(struct world *w, const char *agent)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(hold_release(&tx, "local", "agents", agent), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
}

/* The deadline */

static void evicted_at_the_deadline_and_not_before(void **state)
{
	struct world *w = *state;

	beat_able(w, "agent-99", "[\"search\",\"write\"]");
	fake_clock_advance(&w->time, 100);
	beat(w, "agent-10");
	advance_and_tick(w, THRESHOLD - 100);
	assert_int_equal(get(w, "agent-99", NULL), LAPSE_OK); /* exactly the threshold stays */
	assert_int_equal(engine_next_us(&w->engine), 1000);
	int64_t sweeps = history(w);
	advance_and_tick(w, 1);
	assert_int_equal(get(w, "agent-99", NULL), LAPSE_ENOTFOUND);
	assert_int_equal(get(w, "agent-10", NULL), LAPSE_OK);
	assert_int_equal(rows(w), 1);
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 0);
	assert_int_equal(history(w), sweeps); /* no line for a deadline */
	char *CLEANUP(mem_freep) data =
		side_text(w, "SELECT data FROM events WHERE kind = 'agent.evicted'");
	assert_string_equal(data, "{\"agent_id\":\"agent-99\",\"cluster_id\":\"c\","
				  "\"last_seen\":\"2027-01-15T08:00:00.000Z\"}");
	assert_int_equal(events(w, "agent.evicted"), 1);
	assert_int_equal(logged(w, "\"level\":\"info\",\"event\":\"agent.evicted\",\"agent_id\":"
				   "\"agent-99\",\"last_seen\":\"2027-01-15T08:00:00.000Z\""),
			 1);
	assert_int_equal(w->engine.expiry_lag.sum, 0);
	check_all(w);
}

static void a_due_agent_is_not_shown_before_it_is_evicted(void **state)
{
	struct world *w = *state;

	beat_able(w, "a", "[\"x\"]");
	fake_clock_advance(&w->time, THRESHOLD);
	assert_int_equal(get(w, "a", NULL), LAPSE_OK);
	fake_clock_advance(&w->time, 1);
	assert_int_equal(get(w, "a", NULL), LAPSE_ENOTFOUND);
	assert_int_equal(rows(w), 1);
}

struct counted {
	char text[64]; /* "name=count " for each capability */
};

static bool count_capability(void *arg, const char *capability, int64_t agents)
{
	struct counted *c = arg;
	size_t n = strlen(c->text);

	snprintf(c->text + n, sizeof(c->text) - n, "%s=%d ", capability, (int)agents);
	return true;
}

static void skip_name(void *arg, const char *agent)
{
	(void)arg;
	(void)agent;
}

static void skip_end(void *arg)
{
	(void)arg;
}

/* A name may look like what stands between two others. */
static void counts_leave_out_who_is_due_and_nobody_else(void **state)
{
	struct world *w = *state;
	struct counted c = { 0 };
	const struct capability_reader reader = { count_capability, skip_name, skip_end, &c, 10 };
	struct tx tx;

	beat_able(w, "due", "[\"a\",\"b\",\"b\\\",\"]");
	fake_clock_advance(&w->time, THRESHOLD);
	beat_able(w, "live", "[\"\\\"\",\",\",\"b\"]");
	fake_clock_advance(&w->time, 1);
	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(presence_capabilities(&tx, "local", "", &reader), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(c.text, "\"=1 ,=1 b=1 ");
}

/* 001: a heartbeat of an evicted agent registers it anew, without its old capabilities; one that
 * is past its deadline counts as evicted, whether a check came in between or not. */
static void a_late_heartbeat_is_a_new_life(void **state)
{
	struct world *w = *state;

	for (int checked = 0; checked < 2; checked++) {
		struct agent_view v;
		beat_able(w, "a", "[\"x\"]");
		fake_clock_advance(&w->time, THRESHOLD + 1);
		if (checked)
			tick_until_idle(w);
		beat(w, "a");
		assert_int_equal(get(w, "a", &v), LAPSE_OK);
		assert_int_equal(v.first_seen, w->time.wall);
		assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 0);
		assert_int_equal(events(w, "agent.evicted"), 2 * checked + 1);
		assert_int_equal(events(w, "agent.seen"), 2 * checked + 2);
		assert_int_equal(logged(w, "\"agent.evicted\""), 2 * checked + 1);
		check_all(w);
		advance_and_tick(w, THRESHOLD + 1);
	}
}

static void heartbeats_keep_an_agent_for_ever(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 50; i++) {
		beat(w, "a");
		advance_and_tick(w, THRESHOLD);
	}
	assert_int_equal(get(w, "a", NULL), LAPSE_OK);
	assert_int_equal(events(w, "agent.seen"), 1);
	assert_int_equal(events(w, "agent.evicted"), 0);
}

static void a_sweep_by_hand_and_a_dry_run(void **state)
{
	struct world *w = *state;
	struct sweep s;

	beat_many(w, 0, 5);
	fake_clock_advance(&w->time, THRESHOLD + 1);
	beat_many(w, 5, 8);
	hold(w, "a4", LAPSE_NEVER);
	char *CLEANUP(mem_freep) before = world_dump(w, NULL);
	run_sweep(w, "agents", true, &s);
	char *CLEANUP(mem_freep) after = world_dump(w, NULL);
	assert_string_equal(before, after);
	assert_int_equal(s.total, 4);
	assert_int_equal(fleet_of(&w->engine)->count, 8);
	run_sweep(w, "agents", false, &s);
	assert_int_equal(s.total, 4);
	assert_int_equal(rows(w), 4);
	run_sweep(w, "agents", true, &s);
	assert_int_equal(s.total, 0);
	check_all(w);
}

static void many_are_evicted_in_slices(void **state)
{
	struct world *w = *state;

	beat_many(w, 0, 400);
	fake_clock_advance(&w->time, THRESHOLD);
	beat_many(w, 400, 1000); /* the breaker has no reason */
	fake_clock_advance(&w->time, 1);
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 400;
	engine_tick(&w->engine);
	assert_in_range(rows(w), 601, 999);
	w->time.mono_step = 0;
	tick_until_idle(w);
	assert_int_equal(rows(w), 600);
	assert_int_equal(events(w, "agent.evicted"), 400);
	assert_int_equal(logged(w, "\"agent.evicted\""), 400);
	check_all(w);
}

/* Failure: seed 001 F1, without the crash. */

static void a_failing_step_costs_that_step(void **state)
{
	struct world *w = *state;

	beat_able(w, "bad", "[\"x\"]");
	beat_many(w, 0, 8);
	beat_able(w, "alive", "[\"x\"]");
	side_run(w, "CREATE TRIGGER poison BEFORE DELETE ON capabilities WHEN old.agent = 'bad' "
		    "BEGIN SELECT RAISE(ABORT, 'no'); END");
	fake_clock_advance(&w->time, THRESHOLD - 10);
	beat_able(w, "alive", NULL);
	advance_and_tick(w, 11);
	assert_int_equal(rows(w), 2); /* all others went, on time */
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 2);
	assert_int_equal(events(w, "agent.evicted"), 8);
	assert_int_equal(get(w, "alive", NULL), LAPSE_OK);
	assert_int_equal(get(w, "bad", NULL), LAPSE_ENOTFOUND);
	assert_int_equal(schedule_find(&w->engine, "agents")->errors, 1);
	assert_int_equal(events(w, "agents.lifecycle_tick_failed"), 1);
	assert_true(engine_next_us(&w->engine) > 0); /* no hot loop */
	assert_int_equal(logged(w, "\"agent.evict_failed\",\"agent_id\":\"bad\""), 1);
	side_run(w, "DROP TRIGGER poison");
	beat(w, "alive");
	advance_and_tick(w, CHECK); /* tried again at the next check */
	assert_int_equal(rows(w), 1);
	assert_int_equal(events(w, "agent.evicted"), 9);
	assert_int_equal(schedule_find(&w->engine, "agents")->errors, 1);
	check_all(w);
}

/* Agents without capabilities leave together; one that cannot is not the others' problem. */
static void a_failing_group_is_taken_apart(void **state)
{
	struct world *w = *state;

	beat_many(w, 0, 90);
	side_run(w, "CREATE TRIGGER poison BEFORE INSERT ON events WHEN new.kind = 'agent.evicted' "
		    "AND new.data LIKE '%%\"a17\"%%' BEGIN SELECT RAISE(ABORT, 'no'); END");
	fake_clock_advance(&w->time, THRESHOLD);
	beat_many(w, 90, 300);
	advance_and_tick(w, 1);
	assert_int_equal(rows(w), 211);
	assert_int_equal(events(w, "agent.evicted"), 89);
	assert_int_equal(logged(w, "\"agent.evicted\""), 89);
	assert_int_equal(logged(w, "\"agent.evict_failed\",\"agent_id\":\"a17\""), 1);
	check_all(w);
	side_run(w, "DROP TRIGGER poison");
	beat_many(w, 90, 300);
	advance_and_tick(w, CHECK);
	assert_int_equal(rows(w), 210);
	assert_int_equal(events(w, "agent.evicted"), 90);
	assert_int_equal(logged(w, "\"agent.evicted\""), 90);
	check_all(w);
}

/* The memory says that it has no capabilities, the row knows better. */
static void a_row_that_is_not_as_expected_takes_the_group_apart(void **state)
{
	struct world *w = *state;

	beat_many(w, 0, 20);
	side_run(w, "UPDATE agents SET capabilities = '[\"x\"]' WHERE agent = 'a3';"
		    "INSERT INTO capabilities VALUES ('local', 'x', 'a3');"
		    "INSERT INTO capability_counts VALUES ('local', 'x', 1)");
	fake_clock_advance(&w->time, THRESHOLD);
	beat_many(w, 20, 60);
	advance_and_tick(w, 1);
	assert_int_equal(rows(w), 40);
	assert_int_equal(events(w, "agent.evicted"), 20);
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 0);
	assert_int_equal(schedule_find(&w->engine, "agents")->errors, 0);
	check_all(w);
}

static void a_failing_store_is_tried_at_the_next_check(void **state)
{
	struct world *w = *state;

	beat(w, "a");
	fake_clock_advance(&w->time, THRESHOLD - CHECK);
	tick_until_idle(w);
	fake_clock_advance(&w->time, CHECK / 2);
	beat(w, "b");
	fake_clock_advance(&w->time, CHECK / 2 - 1);
	store_fails(w);
	fake_clock_advance(&w->time, 2);
	tick_until_idle(w);
	assert_int_equal(schedule_find(&w->engine, "agents")->errors, 1);
	assert_true(engine_next_us(&w->engine) > 900000);
	store_is_back(w);
	assert_int_equal(get(w, "b", NULL), LAPSE_OK);
	assert_int_equal(get(w, "a", NULL), LAPSE_ENOTFOUND); /* it is past its time all the same */
	assert_int_equal(rows(w), 2);
	advance_and_tick(w, CHECK);
	assert_int_equal(rows(w), 1);
	assert_int_equal(events(w, "agent.evicted"), 1);
	assert_int_equal(events(w, "agents.lifecycle_tick_failed"), 1);
	advance_and_tick(w, THRESHOLD); /* and deadlines are on time again */
	assert_int_equal(rows(w), 0);
	check_all(w);
}

/* Holds */

static void a_held_agent_stays_and_nothing_spins(void **state)
{
	struct world *w = *state;

	beat_able(w, "held", "[\"x\"]");
	beat(w, "free");
	hold(w, "held", LAPSE_NEVER);
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(rows(w), 1);
	assert_true(engine_next_us(&w->engine) > 0);
	advance_and_tick(w, CHECK);
	advance_and_tick(w, CHECK);
	assert_int_equal(rows(w), 1);
	assert_true(engine_next_us(&w->engine) > 0);
	assert_int_equal(get(w, "held", NULL), LAPSE_ENOTFOUND); /* kept, and still not there */
	beat(w, "held");                                         /* back, as it was */
	struct agent_view v;
	assert_int_equal(get(w, "held", &v), LAPSE_OK);
	assert_int_equal(v.first_seen, NOW);
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 1);
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(rows(w), 1);
	release(w, "held");
	assert_int_equal(engine_next_us(&w->engine), 0);
	tick_until_idle(w); /* its deadline counts at once: no check is waited for */
	assert_int_equal(rows(w), 0);
	check_all(w);
}

static void a_held_agent_is_not_deleted(void **state)
{
	struct world *w = *state;
	struct tx tx;

	beat(w, "held");
	hold(w, "held", NOW + 1000);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
		assert_int_equal(presence_delete(&tx, "local", "held"),
				 round == 0 ? LAPSE_ECONFLICT : LAPSE_OK);
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
		fake_clock_advance(&w->time, 1000);
	}
	assert_int_equal(get(w, "held", NULL), LAPSE_ENOTFOUND);
	check_all(w);
}

/* The breaker */

/* The default needs a hundred agents; ten make shorter tests. */
static void small_breaker(struct world *w)
{
	world_close(w);
	w->settings.agent_breaker_min = 10;
	world_open(w);
}

/* Seed 001: a fleet below agent_breaker_min is evicted to the millisecond, all of it. */
static void a_small_fleet_has_no_breaker(void **state)
{
	struct world *w = *state;

	beat_many(w, 0, 99);
	advance_and_tick(w, THRESHOLD);
	assert_int_equal(rows(w), 99);
	advance_and_tick(w, 1);
	assert_int_equal(rows(w) + suspects(w), 0);
	assert_int_equal(events(w, "agent.evicted"), 99);
	assert_int_equal(events(w, "breaker.tripped"), 0);
	check_all(w);
}

static void a_hundred_agents_have_one(void **state)
{
	struct world *w = *state;

	beat_many(w, 0, 100);
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(rows(w), 0);
	assert_int_equal(suspects(w), 100);
	assert_int_equal(events(w, "agent.suspected"), 100);
	assert_int_equal(events(w, "agent.evicted"), 0);
	assert_int_equal(logged(w, "\"agent.suspected\""), 100);
	check_all(w);
}

static void a_breaker_that_is_off(void **state)
{
	struct world *w = *state;

	world_close(w);
	w->settings.agent_breaker_percent = 0;
	world_open(w);
	beat_many(w, 0, 200);
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(rows(w) + suspects(w), 0);
	assert_int_equal(events(w, "agent.evicted"), 200);
	check_all(w);
}

static void nine_of_ten_are_suspects(void **state)
{
	struct world *w = *state;
	struct agent_view v;

	small_breaker(w);
	beat_many(w, 0, 20);
	beat_able(w, "a0", "[\"x\"]");
	fake_clock_advance(&w->time, THRESHOLD - 1000);
	beat_many(w, 18, 20);
	advance_and_tick(w, 1001);
	assert_int_equal(rows(w), 2); /* a suspect is not live */
	assert_int_equal(suspects(w), 18);
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 0);
	assert_int_equal(events(w, "breaker.tripped"), 1);
	assert_int_equal(events(w, "agent.suspected"), 18);
	assert_int_equal(get(w, "a0", NULL), LAPSE_ENOTFOUND);
	assert_int_equal(get_any(w, "a0", true, &v), LAPSE_OK);
	assert_true(v.suspect);
	assert_int_equal(v.last_seen, NOW);
	assert_int_equal(v.expires_at, w->time.wall + THRESHOLD + 1);
	assert_int_equal(get(w, "a19", &v), LAPSE_OK);
	assert_false(v.suspect);
	assert_true(engine_next_us(&w->engine) > 0);
	check_all(w);
	for (int i = 0; i < 8; i++) { /* two stay, three come back */
		advance_and_tick(w, THRESHOLD / 10);
		beat_many(w, 18, 20);
		beat_many(w, 0, 3);
	}
	assert_int_equal(suspects(w), 15);
	advance_and_tick(w, THRESHOLD / 5);
	run_sweep(w, "agents", false, &(struct sweep){ 0 });
	assert_int_equal(suspects(w), 15); /* one full threshold, exactly */
	advance_and_tick(w, 1);
	assert_int_equal(get_any(w, "a5", true, &v), LAPSE_ENOTFOUND); /* before the sweep, too */
	run_sweep(w, "agents", false, &(struct sweep){ 0 });
	assert_int_equal(suspects(w), 0);
	assert_int_equal(events(w, "agent.evicted"), 15);
	assert_int_equal(logged(w, "\"agent.evicted\""), 15);
	assert_int_equal(events(w, "breaker.tripped"), 1);
	assert_int_equal(events(w, "breaker.released"), 1);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind LIKE 'breaker.%%' "
				     "AND owner = 'local'"),
			 2);
	check_all(w);
}

/* Heartbeats that come back find what the agent was; what they give replaces it. */
static void a_suspect_comes_back_as_it_was(void **state)
{
	struct world *w = *state;
	struct agent_view v;

	small_breaker(w);
	beat_many(w, 0, 20);
	struct beat b = { .agent = "able", .cluster = "c", .capabilities = "[\"x\",\"y\"]" };
	b.metadata = "{\"v\":1}";
	assert_int_equal(try_beat(w, "local", b), LAPSE_OK);
	beat_able(w, "changed", "[\"x\"]");
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(suspects(w), 22);
	advance_and_tick(w, THRESHOLD);
	beat(w, "able");
	beat_able(w, "changed", "[\"z\"]");
	assert_int_equal(get(w, "able", &v), LAPSE_OK);
	assert_int_equal(v.first_seen, NOW);
	assert_int_equal(v.last_seen, w->time.wall);
	char *CLEANUP(mem_freep) row =
		side_text(w, "SELECT group_concat(agent || capabilities || metadata, ' ') "
			     "FROM (SELECT * FROM agents ORDER BY agent)");
	assert_string_equal(row, "able[\"x\",\"y\"]{\"v\":1} changed[\"z\"]{}");
	assert_int_equal(events(w, "agent.seen"), 24);
	assert_int_equal(events(w, "agent.evicted"), 0);
	check_all(w);
}

/* One threshold later it is a new agent, whether a sweep came in between or not. */
static void a_suspect_that_is_too_late_is_a_new_life(void **state)
{
	struct world *w = *state;
	struct agent_view v;

	small_breaker(w);
	beat_many(w, 0, 20);
	beat_able(w, "able", "[\"x\"]");
	advance_and_tick(w, THRESHOLD + 1);
	fake_clock_advance(&w->time, THRESHOLD + 1);
	beat(w, "able");
	assert_int_equal(get(w, "able", &v), LAPSE_OK);
	assert_int_equal(v.first_seen, w->time.wall);
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 0);
	assert_int_equal(events(w, "agent.evicted"), 1);
	assert_int_equal(suspects(w), 20);
	check_all(w);
}

static void a_suspect_is_changed_by_nobody_and_deleted_on_request(void **state)
{
	struct world *w = *state;
	struct tx tx;

	small_breaker(w);
	beat_many(w, 0, 20);
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(presence_set_capabilities(&tx, "local", "a1", "[\"x\"]"), LAPSE_ENOTFOUND);
	assert_int_equal(presence_delete(&tx, "local", "a1"), LAPSE_OK);
	assert_int_equal(presence_delete(&tx, "local", "a1"), LAPSE_ENOTFOUND);
	assert_int_equal(presence_delete(&tx, "other", "a2"), LAPSE_ENOTFOUND);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(suspects(w), 19);
	assert_int_equal(events(w, "agent.deleted"), 1);
	check_all(w);
}

/* One owner's outage neither keeps another owner's dead agent nor takes the others with it. */
static void breakers_are_per_owner(void **state)
{
	struct world *w = *state;

	small_breaker(w);
	assert_int_equal(try_beat(w, "other", (struct beat){ .agent = "dead", .cluster = "c" }), 0);
	beat_many(w, 0, 20);
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(suspects(w), 20);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'agent.evicted' "
				     "AND owner = 'other'"),
			 1);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE owner = 'other' "
				     "AND kind IN ('agent.suspected', 'breaker.tripped')"),
			 0);
	check_all(w);
}

static void one_in_ten_goes_on_time(void **state)
{
	struct world *w = *state;

	small_breaker(w);
	beat_many(w, 0, 100);
	fake_clock_advance(&w->time, THRESHOLD / 2);
	beat_many(w, 10, 100);
	fake_clock_advance(&w->time, THRESHOLD / 2);
	tick_until_idle(w);
	assert_int_equal(rows(w), 100);
	advance_and_tick(w, 1);
	assert_int_equal(rows(w), 90);
	assert_int_equal(suspects(w), 0);
	assert_int_equal(events(w, "breaker.tripped"), 0);
	check_all(w);
}

static void the_breaker_closes_and_trips_again(void **state)
{
	struct world *w = *state;

	small_breaker(w);
	for (int round = 1; round <= 2; round++) {
		beat_many(w, 0, 12);
		advance_and_tick(w, THRESHOLD + 1);
		assert_int_equal(events(w, "breaker.tripped"), round);
		assert_int_equal(suspects(w), 12);
		beat_many(w, 0, 12);
		assert_int_equal(suspects(w), 0);
		advance_and_tick(w, CHECK); /* it is open: one more threshold of caution */
		assert_int_equal(events(w, "breaker.released"), round - 1);
		advance_and_tick(w, CHECK);
		beat_many(w, 0, 12);
		advance_and_tick(w, CHECK);
		advance_and_tick(w, CHECK);
		assert_int_equal(events(w, "breaker.released"), round);
	}
	check_all(w);
}

/* All that fall due while it is open become suspects, also when they are few. */
static void while_it_is_open_no_agent_is_evicted(void **state)
{
	struct world *w = *state;

	small_breaker(w);
	beat_many(w, 0, 30);
	fake_clock_advance(&w->time, THRESHOLD / 2);
	beat_many(w, 20, 25);
	fake_clock_advance(&w->time, THRESHOLD / 4);
	beat_many(w, 25, 30);
	advance_and_tick(w, THRESHOLD / 4 + 1);
	assert_int_equal(suspects(w), 20);
	advance_and_tick(w, THRESHOLD / 2);
	assert_int_equal(suspects(w), 25);
	assert_true(is_suspect(w, "a22"));
	advance_and_tick(w, THRESHOLD / 4);
	assert_int_equal(suspects(w), 30);
	assert_int_equal(events(w, "agent.evicted"), 0);
	assert_int_equal(events(w, "breaker.tripped"), 1);
	check_all(w);
}

/* A failed commit trips nothing and suspects nobody; reads know the deadline all the same. */
static void the_breaker_needs_the_store(void **state)
{
	struct world *w = *state;

	small_breaker(w);
	beat_many(w, 0, 12);
	beat_able(w, "a0", "[\"x\"]");
	fake_clock_advance(&w->time, THRESHOLD + 1);
	store_fails(w);
	tick_until_idle(w);
	store_is_back(w);
	assert_int_equal(suspects(w), 0);
	assert_int_equal(rows(w), 12);
	assert_true(is_suspect(w, "a0")); /* in all but its row */
	beat(w, "a0");
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 1); /* back in time */
	advance_and_tick(w, CHECK);
	assert_int_equal(suspects(w), 11);
	check_all(w);
}

/* An agent that cannot become a suspect waits for the next check; the others go, on time. */
static void a_failing_suspect_costs_that_step(void **state)
{
	struct world *w = *state;

	small_breaker(w);
	beat_many(w, 0, 50);
	beat_able(w, "a7", "[\"x\"]");
	side_run(w,
		 "CREATE TRIGGER poison BEFORE INSERT ON suspects WHEN new.agent IN ('a7', 'a8') "
		 "BEGIN SELECT RAISE(ABORT, 'no'); END");
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(suspects(w), 48);
	assert_int_equal(rows(w), 2);
	assert_int_equal(events(w, "agent.suspected"), 48);
	assert_int_equal(events(w, "breaker.tripped"), 1);
	assert_int_equal(get(w, "a7", NULL), LAPSE_ENOTFOUND);
	check_all(w);
	side_run(w, "DROP TRIGGER poison");
	advance_and_tick(w, CHECK); /* it had its threshold: evicted */
	assert_int_equal(rows(w), 0);
	assert_int_equal(events(w, "agent.evicted"), 2);
	check_all(w);
}

static void a_held_agent_is_no_suspect(void **state)
{
	struct world *w = *state;

	small_breaker(w);
	beat_many(w, 0, 20);
	hold(w, "a3", LAPSE_NEVER);
	advance_and_tick(w, THRESHOLD + 1);
	assert_int_equal(suspects(w), 19);
	assert_int_equal(rows(w), 1);
	release(w, "a3");
	tick_until_idle(w);
	assert_int_equal(rows(w), 0);
	assert_int_equal(suspects(w), 19);
	check_all(w);
}

static void many_become_suspects_in_slices(void **state)
{
	struct world *w = *state;

	beat_many(w, 0, 1000);
	fake_clock_advance(&w->time, THRESHOLD + 1);
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 400;
	engine_tick(&w->engine);
	assert_in_range(suspects(w), 1, 999);
	w->time.mono_step = 0;
	tick_until_idle(w);
	assert_int_equal(suspects(w), 1000);
	assert_int_equal(events(w, "breaker.tripped"), 1);
	check_all(w);
	advance_and_tick(w, THRESHOLD + CHECK);
	assert_int_equal(suspects(w), 0);
	assert_int_equal(events(w, "agent.evicted"), 1000);
	check_all(w);
}

/* Suspects stay suspects over a restart, and their record its time. */
static void suspects_survive_a_restart(void **state)
{
	struct world *w = *state;
	struct agent_view v;

	small_breaker(w);
	beat_many(w, 0, 20);
	beat_able(w, "a1", "[\"x\"]");
	advance_and_tick(w, THRESHOLD + 1);
	world_close(w);
	world_open(w);
	check_all(w);
	assert_true(is_suspect(w, "a1"));
	beat(w, "a1");
	assert_int_equal(get(w, "a1", &v), LAPSE_OK);
	assert_int_equal(v.first_seen, NOW);
	assert_int_equal(side_int(w, "SELECT count(*) FROM capabilities"), 1);
	advance_and_tick(w, THRESHOLD + 1);
	run_sweep(w, "agents", false, &(struct sweep){ 0 });
	assert_int_equal(suspects(w), 0);
	check_all(w);
}

/* An accepted leap of the clock is no time that a record was kept. */
static void an_accepted_leap_keeps_suspects(void **state)
{
	struct world *w = *state;

	small_breaker(w);
	beat_many(w, 0, 20);
	advance_and_tick(w, THRESHOLD + 1);
	w->time.wall += 100 * HOUR;
	tick_until_idle(w);
	assert_true(guard_accept(&w->engine.guard));
	assert_true(is_suspect(w, "a1"));
	beat(w, "a2");
	run_sweep(w, "agents", false, &(struct sweep){ 0 });
	assert_int_equal(suspects(w), 19);
	advance_and_tick(w, THRESHOLD);
	run_sweep(w, "agents", false, &(struct sweep){ 0 });
	assert_int_equal(suspects(w), 19);
	advance_and_tick(w, 1);
	run_sweep(w, "agents", false, &(struct sweep){ 0 });
	assert_int_equal(suspects(w), 0);
	check_all(w);
}

static void a_dry_run_knows_the_breaker(void **state)
{
	struct world *w = *state;
	struct sweep s;

	small_breaker(w);
	beat_many(w, 0, 20);
	hold(w, "a3", LAPSE_NEVER);
	fake_clock_advance(&w->time, THRESHOLD + 1);
	run_sweep(w, "agents", true, &s);
	assert_int_equal(s.total, 0); /* suspects are evicted later */
	tick_until_idle(w);
	advance_and_tick(w, THRESHOLD + 1);
	run_sweep(w, "agents", true, &s);
	assert_int_equal(s.total + (20 - 1 - suspects(w)), 19);
	assert_int_equal(rows(w), 1);
	check_all(w);
}

/* Time */

static void a_restart_gives_everyone_one_threshold(void **state)
{
	struct world *w = *state;
	struct agent_view v;

	beat_able(w, "a", "[\"x\"]");
	beat_many(w, 0, 3);
	world_close(w);
	fake_clock_advance(&w->time, HOUR);
	world_open(w);
	assert_int_equal(get(w, "a", &v), LAPSE_OK);
	assert_int_equal(v.last_seen, NOW);
	assert_int_equal(v.first_seen, NOW);
	assert_string_equal(fleet_profile(fleet_of(&w->engine), 2)->capabilities, "[\"x\"]");
	advance_and_tick(w, THRESHOLD);
	assert_int_equal(rows(w), 4);
	check_all(w);
	beat(w, "a");
	advance_and_tick(w, 1);
	assert_int_equal(rows(w), 1);
	char *CLEANUP(mem_freep) data = side_text(
		w, "SELECT data FROM events WHERE kind = 'agent.evicted' ORDER BY seq LIMIT 1");
	assert_non_null(strstr(data, "\"last_seen\":\"2027-01-15T08:00:00.000Z\""));
	check_all(w);
}

static void last_seen_is_written_now_and_then(void **state)
{
	struct world *w = *state;

	beat(w, "a");
	for (int i = 0; i < 41; i++) {
		advance_and_tick(w, THRESHOLD);
		beat(w, "a");
	}
	int64_t seen = side_int(w, "SELECT last_seen FROM agents");
	assert_in_range(seen, NOW + HOUR - THRESHOLD, NOW + HOUR + THRESHOLD);
	fake_clock_advance(&w->time, 5000);
	beat(w, "a");
	engine_stop(&w->engine);
	assert_int_equal(side_int(w, "SELECT last_seen FROM agents"), w->time.wall);
	check_all(w);
}

/* An accepted leap of the clock is no silence. */
static void an_accepted_leap_evicts_nobody(void **state)
{
	struct world *w = *state;

	beat_many(w, 0, 5);
	w->time.wall += 100 * HOUR;
	tick_until_idle(w);
	assert_int_equal(get(w, "a0", NULL), LAPSE_OK);
	assert_true(guard_accept(&w->engine.guard));
	assert_int_equal(get(w, "a0", NULL), LAPSE_OK);
	tick_until_idle(w);
	advance_and_tick(w, THRESHOLD);
	assert_int_equal(rows(w), 5);
	advance_and_tick(w, 1);
	assert_int_equal(rows(w), 0);
	check_all(w);
}

/* Rows and memory */

static void changes_are_rows_and_sameness_is_not(void **state)
{
	struct world *w = *state;
	struct beat b = { .agent = "a", .cluster = "c", .metadata = "{\"v\":1}" };

	assert_int_equal(try_beat(w, "local", b), 0);
	fake_clock_advance(&w->time, 10);
	int64_t before = db_changes_total(w->engine.db);
	assert_int_equal(try_beat(w, "local", b), 0);
	b.metadata = NULL;
	b.capabilities = "[]";
	assert_int_equal(try_beat(w, "local", b), 0);
	assert_int_equal(db_changes_total(w->engine.db), before);
	uint32_t i = fleet_find(fleet_of(&w->engine), "local", "a");
	assert_int_equal(fleet_at(fleet_of(&w->engine), i)->last_seen, NOW + 10);
	b.cluster = "d";
	b.capabilities = "[\"x\"]";
	assert_false(presence_is_quiet(fleet_of(&w->engine), i, &b, w->time.wall));
	assert_int_equal(try_beat(w, "local", b), 0);
	assert_true(presence_is_quiet(fleet_of(&w->engine), i, &b, w->time.wall));
	char *CLEANUP(mem_freep) row = side_text(
		w, "SELECT cluster_id || capabilities || metadata || last_seen FROM agents");
	assert_string_equal(row, "d[\"x\"]{\"v\":1}1800000000010");
	assert_int_equal(events(w, "agent.seen"), 1);
	check_all(w);
}

static void an_undone_step_is_not_remembered(void **state)
{
	struct world *w = *state;
	struct beat b = { .agent = "a", .cluster = "c" };
	struct problem p = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	assert_int_equal(presence_beat(&tx, "local", &b, &p), LAPSE_OK);
	assert_int_equal(tx_step_undo(&tx), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(fleet_of(&w->engine)->count, 0);
	check_all(w);
}

static void there_are_no_more_than_agents_max(void **state)
{
	struct world *w = *state;
	struct problem p = { 0 };
	struct tx tx;

	w->settings.agents_max = 3;
	beat_many(w, 0, 2);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	struct beat b = { .agent = "x", .cluster = "c" };
	assert_int_equal(presence_beat(&tx, "local", &b, &p), LAPSE_OK);
	b.agent = "y"; /* counted in the transaction */
	assert_int_equal(presence_beat(&tx, "other", &b, &p), LAPSE_ELIMIT);
	assert_non_null(strstr(p.message, "agents_max"));
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	beat(w, "a0"); /* a known one always */
	advance_and_tick(w, THRESHOLD + 1);
	beat(w, "y");
	check_all(w);
}

/* A check between a commit and its effects: the memory still has who is gone or renewed. */
static void a_check_between_commit_and_effects(void **state)
{
	struct world *w = *state;
	struct problem p = { 0 };
	struct tx tx;

	beat_able(w, "gone", "[\"x\"]");
	beat(w, "moved");
	fake_clock_advance(&w->time, THRESHOLD);
	struct beat b = { .agent = "moved", .cluster = "d" };
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(presence_delete(&tx, "local", "gone"), LAPSE_OK);
	assert_int_equal(presence_beat(&tx, "local", &b, &p), LAPSE_OK);
	assert_int_equal(tx_commit_start(&tx), LAPSE_OK);
	advance_and_tick(w, 1);
	assert_int_equal(events(w, "agent.evicted"), 0);
	assert_int_equal(rows(w), 1);
	tx_commit_finish(&tx);
	check_all(w);
	struct agent_view v;
	assert_int_equal(get(w, "moved", &v), LAPSE_OK);
	assert_int_equal(v.last_seen, NOW + THRESHOLD);
	assert_string_equal(fleet_profile(fleet_of(&w->engine),
					  fleet_find(fleet_of(&w->engine), "local", "moved"))
				    ->cluster,
			    "d");
}

/* The same for a heartbeat with nothing new: no row knows of it, and it has won all the same. */
static void a_quiet_heartbeat_between_commit_and_effects(void **state)
{
	struct world *w = *state;
	struct beat b = { .agent = "a", .cluster = "c" };
	struct problem p = { 0 };
	struct tx tx;

	beat_able(w, "a", "[\"x\"]");
	fake_clock_advance(&w->time, THRESHOLD);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(presence_beat(&tx, "local", &b, &p), LAPSE_OK);
	b.agent = "new";
	assert_int_equal(presence_beat(&tx, "local", &b, &p), LAPSE_OK);
	assert_int_equal(tx_commit_start(&tx), LAPSE_OK);
	advance_and_tick(w, 1);
	assert_int_equal(events(w, "agent.evicted"), 0);
	tx_commit_finish(&tx);
	assert_int_equal(get(w, "a", NULL), LAPSE_OK);
	check_all(w);
	advance_and_tick(w, THRESHOLD);
	assert_int_equal(rows(w), 0);
	check_all(w);
}

/* After a kill and a clock set back trusted time goes on up to a minute before what rows say. */
static void a_row_from_the_future_is_evicted_too(void **state)
{
	struct world *w = *state;

	beat_able(w, "a", "[\"x\"]");
	beat_many(w, 0, 3);
	side_run(w, "UPDATE agents SET last_seen = last_seen + 50000 WHERE agent IN ('a', 'a1')");
	world_close(w);
	world_open(w);
	advance_and_tick(w, THRESHOLD);
	assert_int_equal(rows(w), 4);
	advance_and_tick(w, 1);
	assert_int_equal(rows(w), 0);
	assert_int_equal(events(w, "agent.evicted"), 4);
	check_all(w);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(evicted_at_the_deadline_and_not_before),
		WORLD_TEST(a_due_agent_is_not_shown_before_it_is_evicted),
		WORLD_TEST(counts_leave_out_who_is_due_and_nobody_else),
		WORLD_TEST(a_late_heartbeat_is_a_new_life),
		WORLD_TEST(heartbeats_keep_an_agent_for_ever),
		WORLD_TEST(a_sweep_by_hand_and_a_dry_run),
		WORLD_TEST(many_are_evicted_in_slices),
		WORLD_TEST(a_failing_step_costs_that_step),
		WORLD_TEST(a_failing_group_is_taken_apart),
		WORLD_TEST(a_row_that_is_not_as_expected_takes_the_group_apart),
		WORLD_TEST(a_failing_store_is_tried_at_the_next_check),
		WORLD_TEST(a_held_agent_stays_and_nothing_spins),
		WORLD_TEST(a_held_agent_is_not_deleted),
		WORLD_TEST(a_small_fleet_has_no_breaker),
		WORLD_TEST(a_hundred_agents_have_one),
		WORLD_TEST(a_breaker_that_is_off),
		WORLD_TEST(nine_of_ten_are_suspects),
		WORLD_TEST(a_suspect_comes_back_as_it_was),
		WORLD_TEST(a_suspect_that_is_too_late_is_a_new_life),
		WORLD_TEST(a_suspect_is_changed_by_nobody_and_deleted_on_request),
		WORLD_TEST(breakers_are_per_owner),
		WORLD_TEST(one_in_ten_goes_on_time),
		WORLD_TEST(the_breaker_closes_and_trips_again),
		WORLD_TEST(while_it_is_open_no_agent_is_evicted),
		WORLD_TEST(the_breaker_needs_the_store),
		WORLD_TEST(a_failing_suspect_costs_that_step),
		WORLD_TEST(a_held_agent_is_no_suspect),
		WORLD_TEST(many_become_suspects_in_slices),
		WORLD_TEST(suspects_survive_a_restart),
		WORLD_TEST(an_accepted_leap_keeps_suspects),
		WORLD_TEST(a_dry_run_knows_the_breaker),
		WORLD_TEST(a_restart_gives_everyone_one_threshold),
		WORLD_TEST(last_seen_is_written_now_and_then),
		WORLD_TEST(an_accepted_leap_evicts_nobody),
		WORLD_TEST(changes_are_rows_and_sameness_is_not),
		WORLD_TEST(an_undone_step_is_not_remembered),
		WORLD_TEST(there_are_no_more_than_agents_max),
		WORLD_TEST(a_check_between_commit_and_effects),
		WORLD_TEST(a_quiet_heartbeat_between_commit_and_effects),
		WORLD_TEST(a_row_from_the_future_is_evicted_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
