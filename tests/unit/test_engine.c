/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine as a whole: it opens what it closed, its counters stay equal to the rows whatever is
 * done, and what it shows is what there is. And the message room's operations on their own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/hold.h"
#include "message/rules.h"
#include "store/migrate.h"
#include "unit.h"

#define DAY INT64_C(86400000)

/* Random operations. A fixed seed gives the same run every time. */

static uint64_t dice_state;

static int64_t dice(int64_t sides)
{
	dice_state = dice_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (int64_t)((dice_state >> 33) % (uint64_t)sides);
}

static const char *const OWNERS[] = { "o1", "o2" };
static const char *const AGENTS[] = { "a", "b", "c" };

static void ignore_message(void *arg, const struct message *m)
{
	(void)arg;
	(void)m;
}

static int64_t any_message(struct world *w, const char *owner, const char *agent)
{
	return side_int(w,
			"SELECT coalesce((SELECT id FROM messages WHERE owner = '%s' AND agent = "
			"'%s' ORDER BY id LIMIT 1 OFFSET %" PRId64 "), 0)",
			owner, agent, dice(5));
}

static int random_step(struct tx *tx, const char *owner, const char *agent, int64_t some_id)
{
	struct message m = {
		.to = agent, .from = "f", .content = "c", .type = "t", .metadata = "{}"
	};
	char key[ID_TEXT_LEN + 1];
	struct hold h = { .owner = owner,
			  .table = "messages",
			  .key = key,
			  .reason = "r",
			  .until = dice(2) ? LAPSE_NEVER : tx->now + dice(DAY) };
	struct problem p = { 0 };
	int64_t n;
	bool more;

	id_format(some_id, key);
	switch (dice(7)) {
	case 0:
		return message_mark_before(tx, owner, agent, tx->now - dice(DAY), dice(4) + 1, &n,
					   &more);
	case 1:
		return message_claim(tx, owner, agent, id_random(), tx->now + 1000, 3, 1000,
				     ignore_message, NULL, &n);
	case 2:
		return hold_place(tx, &h, &p);
	case 3:
		return hold_release(tx, owner, "messages", key);
	case 4:
		return message_mark_read(tx, owner, agent, some_id, CLAIM_NONE, ignore_message,
					 NULL);
	default:
		return send_one(tx, owner, &m, &p);
	}
}

/* A turn of a few steps; one in four is undone, one turn in eight is rolled back. */
static void random_turn(struct world *w)
{
	const char *owner = OWNERS[dice(2)], *agent = AGENTS[dice(3)];
	int64_t some_id = any_message(w, owner, agent);
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	for (int64_t i = dice(5); i >= 0; i--) {
		assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
		int r = random_step(&tx, owner, agent, some_id);
		bool undo = r < 0 || dice(4) == 0;
		assert_int_equal(undo ? tx_step_undo(&tx) : tx_step_end(&tx), LAPSE_OK);
	}
	if (dice(8) == 0)
		tx_rollback(&tx);
	else
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
}

static void counters_stay_true(void **state)
{
	struct world *w = *state;
	static const uint64_t seeds[] = { 1, 42, 20261115 };

	w->settings.unread_max_per_agent = 12;
	w->settings.holds_max = 5;
	for (size_t s = 0; s < ARRAY_LEN(seeds); s++) {
		dice_state = seeds[s];
		for (int i = 0; i < 300; i++) {
			random_turn(w);
			fake_clock_advance(&w->time, dice(DAY / 8));
			tick_until_idle(w);
			if (dice(50) == 0)
				world_reopen(w);
			if (i % 10 == 0)
				world_check_counters(w);
		}
		world_check_counters(w);
	}
	assert_true(w->engine.matrix.bounds[0]->pruned > 0 ||
		    side_int(w, "SELECT sum(pruned) FROM sweeps") > 0);
}

/* Opening */

static void it_finds_what_it_left(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 5; i++)
		send_message(w, "o", "a");
	int64_t last = w->engine.ids.last;
	world_close(w);
	w->time.wall -= DAY; /* the clock went back while it was down */
	world_open(w);
	assert_int_equal(w->engine.matrix.bounds[0]->live, 5);
	assert_true(w->engine.ids.last >= side_int(w, "SELECT max(id) FROM messages"));
	assert_true(send_message(w, "o", "a") > last);
	assert_int_equal(w->engine.matrix.bounds[0]->pruned, 0);
}

static void a_failed_open_leaves_nothing_locked(void **state)
{
	struct world *w = *state;
	struct engine_config config = { .settings = &w->settings,
					.clock = &w->time.clock,
					.log = &w->log,
					.bounds = ROOM_BOUNDS,
					.schedulers = ROOM_SCHEDULERS,
					.cleanups = ROOM_CLEANUPS,
					.rooms = ROOMS };
	char path[TEMP_PATH_MAX];
	struct problem p = { 0 };
	struct engine second;

	side_run(w, "UPDATE meta SET value = 4711 WHERE key = 'schema_version'");
	world_close(w);
	assert_int_equal(engine_open(&second, &config, &p), LAPSE_EVERSION);
	assert_non_null(strstr(p.message, "4711"));
	path_join(path, w->dir, DATADIR_DATABASE);
	assert_int_equal(sqlite3_open(path, &w->side), SQLITE_OK);
	side_run(w, "UPDATE meta SET value = %d WHERE key = 'schema_version'", migrate_newest());
	sqlite3_close(w->side);
	world_open(w);
	send_message(w, "o", "a");
}

/* What it shows */

static void the_matrix_shows_what_there_is(void **state)
{
	struct world *w = *state;
	struct arena CLEANUP(arena_done) arena;
	struct buf CLEANUP(buf_done) json = { 0 };

	arena_init(&arena);
	send_read_message(w, "o", "a");
	send_read_message(w, "o", "a");
	send_message(w, "o", "a");
	fake_clock_advance(&w->time, DAY + 500);
	struct due_counts *due = matrix_count_begin(&w->engine, &arena, NULL, w->time.wall);
	assert_int_equal(engine_count_due(&w->engine, due), LAPSE_OK);
	assert_int_equal(due->rows[0].rows, 2);
	assert_int_equal(due->rows[0].oldest, NOW);
	matrix_write_json(&w->engine, due, &json);
	matrix_count_end(&w->engine);
	json_t *CLEANUP(json_freep) j = json_loads(buf_text(&json), 0, NULL);
	const json_t *rows = json_object_get(j, "data"), *row = json_array_get(rows, 0);
	assert_int_equal(json_array_size(rows), w->engine.matrix.count);
	assert_string_equal(json_string_value(json_object_get(row, "table")), "messages");
	assert_int_equal(json_integer_value(json_object_get(row, "window_ms")), DAY);
	assert_int_equal(json_integer_value(json_object_get(row, "live_rows")), 3);
	assert_int_equal(json_integer_value(json_object_get(row, "due_rows")), 2);
	assert_int_equal(json_integer_value(json_object_get(row, "oldest_due_age_ms")), 500);
	assert_true(json_is_null(json_object_get(row, "last_sweep_at")));
	assert_int_equal(json_array_size(json_object_get(row, "paths")), 2);
}

static void metrics_exist_from_the_start(void **state)
{
	struct world *w = *state;
	struct arena CLEANUP(arena_done) arena;
	struct buf CLEANUP(buf_done) text = { 0 };
	char line[160];

	arena_init(&arena);
	struct due_counts *due = matrix_count_begin(&w->engine, &arena, NULL, w->time.wall);
	assert_int_equal(engine_count_due(&w->engine, due), LAPSE_OK);
	matrix_write_metrics(&w->engine, due, &text);
	matrix_count_end(&w->engine);
	engine_write_metrics(&w->engine, &text);
	for (size_t i = 0; i < w->engine.matrix.count; i++) {
		const struct bound_spec *b = w->engine.matrix.bounds[i]->spec;
		snprintf(line, sizeof(line),
			 "lifecycle_prune_rows_total{scheduler=\"%s\",table=\"%s\"} 0\n",
			 b->scheduler, b->name);
		assert_non_null(strstr(buf_text(&text), line));
	}
	assert_non_null(strstr(buf_text(&text),
			       "lifecycle_tick_errors_total{scheduler=\"housekeeping\"} 0\n"));
}

/* Bounds and schedulers name their events as text; a typing mistake would go unnoticed. */
static bool is_event(const char *name)
{
	static const char *const names[] = {
#define X(name, text) text,
		EVENTS(X)
#undef X
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static void every_bound_has_its_scheduler(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < w->engine.matrix.count; i++) {
		const struct bound_spec *b = w->engine.matrix.bounds[i]->spec;
		assert_non_null(schedule_find(&w->engine, b->scheduler));
		assert_ptr_equal(matrix_find(&w->engine, b->name), w->engine.matrix.bounds[i]);
		assert_true(b->due_when && b->safety_rule && b->action && b->bounded_by);
		/* Rows whose bytes are counted are bounded by them. */
		if (b->bytes)
			assert_non_null(strstr(b->bounded_by, "stored_bytes_per_owner"));
		assert_true(!b->event || (b->reason && is_event(b->event)));
	}
	for (size_t i = 0; i < w->engine.schedulers_count; i++)
		assert_true(is_event(w->engine.schedulers[i].def->failed));
	assert_null(matrix_find(&w->engine, "nothing"));
}

/* Messages: what is past its lifetime is not served, swept or not. */

struct seen {
	int64_t ids[64];
	size_t n;
};

static void note_message(void *arg, const struct message *m)
{
	struct seen *s = arg;

	s->ids[s->n++] = m->id;
}

static struct seen list(struct world *w, bool unread_only, int64_t before, int64_t limit)
{
	struct message_page page = { before, limit, 1 << 20 };
	struct seen s = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(message_list(&tx, "o", "a", unread_only, &page, note_message, &s),
			 LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return s;
}

static int get(struct world *w, const char *owner, const char *agent, int64_t id)
{
	struct seen s = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	int r = message_get(&tx, owner, agent, id, note_message, &s);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(s.n, r == LAPSE_OK);
	return r;
}

static void what_is_due_is_not_served(void **state)
{
	struct world *w = *state;

	int64_t read = send_read_message(w, "o", "a");
	int64_t unread = send_message(w, "o", "a");
	fake_clock_to(&w->time, NOW + DAY);
	assert_int_equal(get(w, "o", "a", read), LAPSE_OK);
	assert_int_equal(list(w, false, INT64_MAX, 10).n, 2);
	fake_clock_to(&w->time, NOW + DAY + 1);
	assert_int_equal(get(w, "o", "a", read), LAPSE_EEXPIRED);
	assert_int_equal(get(w, "o", "a", unread), LAPSE_OK);
	struct seen s = list(w, false, INT64_MAX, 10);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.ids[0], unread);
	read_message(w, "o", "a", read); /* 200 until it is swept */
	assert_int_equal(get(w, "other", "a", unread), LAPSE_ENOTFOUND);
	assert_int_equal(get(w, "o", "b", unread), LAPSE_ENOTFOUND);
}

static void lists_are_newest_first_in_pages(void **state)
{
	struct world *w = *state;
	int64_t ids[10];

	for (int i = 0; i < 10; i++) {
		ids[i] = send_message(w, "o", "a");
		if (i % 3 == 0)
			read_message(w, "o", "a", ids[i]);
		if (i % 2)
			fake_clock_advance(&w->time, 1);
	}
	int64_t before = INT64_MAX;
	for (int left = 10; left > 0; left -= 2) {
		struct seen s = list(w, false, before, 2);
		assert_int_equal(s.n, 2);
		assert_int_equal(s.ids[0], ids[left - 1]);
		assert_int_equal(s.ids[1], ids[left - 2]);
		before = s.ids[1];
	}
	assert_int_equal(list(w, false, before, 2).n, 0);
	assert_int_equal(list(w, true, INT64_MAX, 20).n, 6);
}

static void an_inbox_has_its_limit(void **state)
{
	struct world *w = *state;
	struct message m = {
		.to = "a", .from = "f", .content = "c", .type = "t", .metadata = "{}"
	};
	struct problem p = { 0 };
	struct tx tx;

	w->settings.unread_max_per_agent = 3;
	int64_t first = send_message(w, "o", "a");
	send_message(w, "o", "a");
	send_message(w, "o", "a");
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(send_one(&tx, "o", &m, &p), LAPSE_ELIMIT);
	tx_rollback(&tx);
	send_message(w, "o", "b");
	send_message(w, "other", "a");
	read_message(w, "o", "a", first);
	send_message(w, "o", "a");
	world_check_counters(w);
}

static int64_t claim(struct world *w, int64_t id, lapse_ms until, int64_t limit, struct seen *s)
{
	int64_t n = -1;
	struct tx tx;

	*s = (struct seen){ 0 };
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(
		message_claim(&tx, "o", "a", id, until, limit, 1 << 20, note_message, s, &n),
		LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(n, s->n);
	return n;
}

static int read_with(struct world *w, int64_t id, int64_t claim_id)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	int r = message_mark_read(&tx, "o", "a", id, claim_id, ignore_message, NULL);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return r;
}

static void a_claim_lasts_until_its_end(void **state)
{
	struct world *w = *state;
	struct seen s;
	lapse_ms next = 0;
	struct tx tx;

	int64_t a = send_message(w, "o", "a"), b = send_message(w, "o", "a");
	assert_int_equal(claim(w, 7, NOW + 100, 1, &s), 1);
	assert_int_equal(s.ids[0], a);
	assert_int_equal(claim(w, 8, NOW + 200, 5, &s), 1);
	assert_int_equal(s.ids[0], b);
	assert_int_equal(claim(w, 9, NOW + 300, 5, &s), 0);
	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(message_next_offer(&tx, "o", "a", &next), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(next, NOW + 100);
	fake_clock_to(&w->time, NOW + 99);
	assert_int_equal(claim(w, 9, NOW + 300, 5, &s), 0);
	fake_clock_to(&w->time, NOW + 100);
	assert_int_equal(claim(w, 9, NOW + 300, 5, &s), 1);
	assert_int_equal(s.ids[0], a);
	assert_int_equal(read_with(w, a, 7), LAPSE_ECONFLICT); /* it has passed to another */
	assert_int_equal(read_with(w, a, 9), LAPSE_OK);
	assert_int_equal(read_with(w, b, 8), LAPSE_OK);
	world_check_counters(w);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(counters_stay_true),
		WORLD_TEST(it_finds_what_it_left),
		WORLD_TEST(a_failed_open_leaves_nothing_locked),
		WORLD_TEST(the_matrix_shows_what_there_is),
		WORLD_TEST(metrics_exist_from_the_start),
		WORLD_TEST(every_bound_has_its_scheduler),
		WORLD_TEST(what_is_due_is_not_served),
		WORLD_TEST(lists_are_newest_first_in_pages),
		WORLD_TEST(an_inbox_has_its_limit),
		WORLD_TEST(a_claim_lasts_until_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
