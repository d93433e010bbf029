/* SPDX-License-Identifier: Apache-2.0 */
/* What of the PostgreSQL store needs no server: its clock, and what the server's errors mean. */
#include "store/postgres/clock.h"
#include "store/postgres/wire.h"
#include "unit.h"

static void states_become_errors(void **state)
{
	static const struct {
		const char *state;
		int err;
	} rows[] = {
		{ "40001", LAPSE_ERETRY },       { "40P01", LAPSE_ERETRY },
		{ "55P03", LAPSE_ERETRY },       { "57P01", LAPSE_ERETRY },
		{ "08006", LAPSE_ERETRY },       { "25P03", LAPSE_ERETRY },
		{ "25006", LAPSE_ERETRY },       { "23505", LAPSE_ECONFLICT },
		{ "23514", LAPSE_ECONFLICT },    { "53100", LAPSE_EFULL },
		{ "53300", LAPSE_EUNAVAILABLE }, { "57014", LAPSE_ETIMEOUT },
		{ "54000", LAPSE_ETOOLARGE },    { "58030", LAPSE_EIO },
		{ "XX001", LAPSE_ECORRUPT },     { "42601", LAPSE_EINTERNAL },
		{ "XX000", LAPSE_EINTERNAL },    { "25P02", LAPSE_EINTERNAL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(wire_sort_state(rows[i].state), rows[i].err);
}

struct hands {
	lapse_ms wall;
	lapse_us mono;
};

static lapse_ms hands_wall(void *ctx)
{
	return ((const struct hands *)ctx)->wall;
}

static lapse_us hands_mono(void *ctx)
{
	return ((const struct hands *)ctx)->mono;
}

static void the_clock_follows_the_database(void **state)
{
	struct hands hands = { .wall = 5000000, .mono = 1000000 };
	const struct clock system = { hands_wall, hands_mono, &hands };
	struct pg_clock c;

	(void)state;
	pg_clock_init(&c, &system);
	assert_int_equal(clock_wall(&c.clock), 5000000);

	/* As if the answer had taken no time to come back; then the monotonic clock goes on. */
	hands.mono = 3000000;
	pg_clock_sample(&c, 2000400, INT64_C(9000000000), 2000600);
	assert_int_equal(clock_wall(&c.clock), 9000999);
	hands.wall = 1; /* the machine's own wall clock does not matter */
	hands.mono += 5000;
	assert_int_equal(clock_wall(&c.clock), 9001004);
	assert_int_equal(clock_mono(&c.clock), 3005000);

	/* A second is still good; a sample that took longer is dropped. */
	pg_clock_sample(&c, 4000000, INT64_C(20000000000), 5000001);
	assert_int_equal(clock_wall(&c.clock), 9001004);
	pg_clock_sample(&c, 4000000, INT64_C(20000000000), 5000000);
	hands.mono = 5000000;
	assert_int_equal(clock_wall(&c.clock), 20000000);
}

static void the_clock_is_never_ahead(void **state)
{
	struct hands hands = { .wall = 5000000, .mono = 1000000 };
	const struct clock system = { hands_wall, hands_mono, &hands };
	struct pg_clock c;

	(void)state;
	pg_clock_init(&c, &system);

	/* The database is at 9000 s or later. */
	pg_clock_sample(&c, 2000000, INT64_C(9000000000), 2400000);
	hands.mono = 2400000;
	assert_int_equal(clock_wall(&c.clock), 9000000);

	/* A quicker sample tells more. */
	pg_clock_sample(&c, 3000000, INT64_C(9001000000), 3001000);
	hands.mono = 3001000;
	assert_int_equal(clock_wall(&c.clock), 9001000);

	/* The database's clock was set back: this one is not left ahead of it. */
	pg_clock_sample(&c, 5000000, INT64_C(9000000000), 5000100);
	hands.mono = 5000100;
	assert_int_equal(clock_wall(&c.clock), 9000000);
}

static void a_slow_sample_that_agrees_changes_nothing(void **state)
{
	struct hands hands = { .wall = 5000000, .mono = 1000000 };
	const struct clock system = { hands_wall, hands_mono, &hands };
	struct pg_clock c;

	(void)state;
	pg_clock_init(&c, &system);
	pg_clock_sample(&c, 3000000, INT64_C(9001000000), 3000000);
	pg_clock_sample(&c, 4000000, INT64_C(9002000000), 4500000); /* slow on the way back */
	hands.mono = 4500000;
	assert_int_equal(clock_wall(&c.clock), 9002500);
	pg_clock_sample(&c, 5000000, INT64_C(9003500000), 5500000); /* slow on the way there */
	hands.mono = 5500000;
	assert_int_equal(clock_wall(&c.clock), 9003500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states_become_errors),
		cmocka_unit_test(the_clock_follows_the_database),
		cmocka_unit_test(the_clock_is_never_ahead),
		cmocka_unit_test(a_slow_sample_that_agrees_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
