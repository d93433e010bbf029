/* SPDX-License-Identifier: Apache-2.0 */
/* The bar as text: what it tells, and that it fits. */
#include "cli/transfer/progress.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cli/show/show.h"

#define S 1000000 /* a second */
#define MIB 1048576

static void expect(const struct progress *p, size_t columns, const char *line)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	progress_line(p, columns, &out);
	assert_string_equal(buf_text(&out), line);
}

static struct progress make(const char *label, int64_t size)
{
	return (struct progress){ .label = (char *)(uintptr_t)label, .size = size };
}

static void tells_everything(void **state)
{
	struct progress p = make("a.bin", 10 * MIB);

	(void)state;
	progress_note(&p, 1 * S, 2 * MIB);
	expect(&p, 80,
	       "a.bin  [=====>                   ]   20%  2.0 MiB of 10.0 MiB  2.0 MiB/s  ETA 4s");
	progress_note(&p, 5 * S, 10 * MIB);
	expect(&p, 80,
	       "a.bin  [========================]  100%  10.0 MiB of 10.0 MiB  2.0 MiB/s  ETA 0s");
}

static void rows_are_counted(void **state)
{
	struct progress p = make("copying messages", 4000000);

	(void)state;
	p.is_rows = true;
	progress_note(&p, 1 * S, 1000000);
	expect(&p, 100,
	       "copying messages  [======>                 ]   25%  1,000,000 of 4,000,000 rows  "
	       "1,000,000/s  ETA 3s");
}

static void the_bar_has_a_limit(void **state)
{
	struct progress p = make("a.bin", 100);
	struct buf CLEANUP(buf_done) out = { 0 };

	(void)state;
	progress_note(&p, S, 50);
	progress_line(&p, 300, &out);
	assert_int_equal(strcspn(buf_text(&out), "]") - strcspn(buf_text(&out), "["), 41);
}

static void what_is_not_known(void **state)
{
	struct progress p = make("-", -1);

	(void)state;
	expect(&p, 80, "-  0 B  0 B/s");
	progress_note(&p, S, MIB);
	expect(&p, 80, "-  1.0 MiB  1.0 MiB/s");

	struct progress stalled = make("a", 100);
	expect(&stalled, 20, "  0%  0 B of 100 B  ");
	expect(&stalled, 60, "a  [>                    ]    0%  0 B of 100 B  0 B/s  ETA -");
}

/* Only as much as fits, to the last column; wide characters count twice. */
static void fits(void **state)
{
	static const char *const labels[] = {
		"", "a", "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字",
		"a name that is much longer than any terminal is wide, and more"
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(labels); i++)
		for (size_t columns = 0; columns < 200; columns++) {
			struct progress p = make(labels[i], INT64_MAX);
			struct buf CLEANUP(buf_done) out = { 0 };
			progress_note(&p, S, INT64_MAX / 3);
			progress_line(&p, columns, &out);
			assert_true(text_width(buf_text(&out)) <= columns);
		}
}

/* The rate is that of the last seconds, not of all. */
static void the_rate_forgets(void **state)
{
	struct progress p = make("a", 1000 * MIB);

	(void)state;
	for (int i = 1; i <= 10; i++)
		progress_note(&p, i * S, i * 10 * MIB);
	for (int i = 11; i <= 20; i++)
		progress_note(&p, i * S, (100 + i - 10) * MIB);
	struct buf CLEANUP(buf_done) out = { 0 };
	progress_line(&p, 80, &out);
	assert_non_null(strstr(buf_text(&out), " 1.0 MiB/s "));
}

/* What a part had before says nothing about the rate; nor does a transfer that began again. */
static void begins_late_and_again(void **state)
{
	struct progress p = make("a", 100 * MIB);
	struct mark start = { .at = 0, .done = 90 * MIB };

	(void)state;
	p.now = p.from = p.next = start;
	progress_note(&p, S, 91 * MIB);
	expect(&p, 70, "a  [=================> ]   91%  91.0 MiB of 100 MiB  1.0 MiB/s  ETA 9s");
	progress_note(&p, 2 * S, 0);
	progress_note(&p, 3 * S, 2 * MIB);
	expect(&p, 70, "a  [>                  ]    2%  2.0 MiB of 100 MiB  2.0 MiB/s  ETA 49s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_everything),
		cmocka_unit_test(rows_are_counted),
		cmocka_unit_test(the_bar_has_a_limit),
		cmocka_unit_test(what_is_not_known),
		cmocka_unit_test(fits),
		cmocka_unit_test(the_rate_forgets),
		cmocka_unit_test(begins_late_and_again),
	};

	setlocale(LC_CTYPE, "C.UTF-8");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
