/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of server-sent events: whatever the pieces, the same events. */
#include "cli/client/sse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

/* Writes every event as "id|kind|data;" and ends after `limit`. */
struct log {
	struct buf text;
	int limit, count;
};

static bool note(void *arg, const struct sse_event *event)
{
	struct log *log = arg;

	assert_int_equal(strlen(event->data), event->data_len);
	buf_printf(&log->text, "%s|%s|%s;", event->id, event->kind, event->data);
	return ++log->count != log->limit;
}

/* Feeds the text in pieces of `size` bytes. */
static void expect_in_pieces(const char *text, size_t size, const char *events)
{
	struct log log = { 0 };
	struct sse CLEANUP(sse_done) s = { .take = note, .arg = &log };
	size_t n = strlen(text);

	for (size_t i = 0; i < n; i += size)
		assert_true(sse_feed(&s, text + i, n - i < size ? n - i : size));
	assert_string_equal(buf_text(&log.text), events);
	buf_done(&log.text);
}

static void expect(const char *text, const char *events)
{
	for (size_t size = 1; size <= strlen(text); size++)
		expect_in_pieces(text, size, events);
}

static void an_event_has_an_id_a_kind_and_data(void **state)
{
	(void)state;
	expect("id: 0f\nevent: message.sent\ndata: {\"at\":1}\n\n", "0f|message.sent|{\"at\":1};");
	expect("data:x\n\n", "|message|x;");
	expect("data\n\n", "|message|;");
	expect("data:  two spaces\n\n", "|message| two spaces;");
	expect("data: a:b: c\n\n", "|message|a:b: c;");
	expect("event: gap\ndata: {}\n\nevent: x\ndata: 2\n\ndata: 3\n\n",
	       "|gap|{};|x|2;|message|3;");
}

static void lines_end_in_three_ways(void **state)
{
	(void)state;
	expect("id: 1\r\nevent: e\r\ndata: d\r\n\r\n", "1|e|d;");
	expect("id: 1\revent: e\rdata: d\r\r", "1|e|d;");
	expect("id: 1\r\nevent: e\ndata: d\r\r\ndata: f\n\r\n", "1|e|d;1|message|f;");
}

static void data_may_have_several_lines(void **state)
{
	(void)state;
	expect("data: one\ndata: two\ndata:\ndata: four\n\n", "|message|one\ntwo\n\nfour;");
	expect("data: one\r\ndata: two\r\n\r\n", "|message|one\ntwo;");
	expect("data\ndata\n\n", "|message|\n;");
}

static void comments_and_unknown_fields_are_nothing(void **state)
{
	(void)state;
	expect(": keep-alive\n\n:\n\n", "");
	expect("data: a\n: in between\nfoo: bar\nDATA: b\ndatax: c\n\n", "|message|a;");
}

static void the_id_stays_until_another_comes(void **state)
{
	(void)state;
	expect("id: 7\ndata: a\n\ndata: b\n\nid: 8\n\ndata: c\n\nid\ndata: d\n\n",
	       "7|message|a;7|message|b;8|message|c;|message|d;");
}

static void an_event_without_data_is_none(void **state)
{
	(void)state;
	expect("event: lost\nid: 3\n\ndata: a\n\n", "3|message|a;");
}

static void what_is_not_finished_is_no_event(void **state)
{
	(void)state;
	expect("data: a\n\ndata: b\n", "|message|a;");
	expect("data: a", "");
}

static void a_byte_order_mark_is_skipped_once(void **state)
{
	(void)state;
	expect("\xef\xbb\xbf"
	       "data: a\n\n",
	       "|message|a;");
	expect("data: a\n\n\xef\xbb\xbf"
	       "data: b\n\n",
	       "|message|a;");
}

static void a_new_connection_keeps_the_id_of_whole_events(void **state)
{
	struct log log = { 0 };
	struct sse CLEANUP(sse_done) s = { .take = note, .arg = &log };
	const char first[] = "id: 1\ndata: a\n\nid: 2\nevent: half\ndata: b\r";
	const char second[] = "\ndata: c\n\n";

	(void)state;
	assert_true(sse_feed(&s, first, strlen(first)));
	assert_string_equal(buf_text(&s.last_id), "1");
	sse_reset(&s);
	assert_true(sse_feed(&s, second, strlen(second)));
	assert_string_equal(buf_text(&log.text), "1|message|a;1|message|c;");
	buf_done(&log.text);
}

static void the_reader_may_stop(void **state)
{
	struct log log = { .limit = 2 };
	struct sse CLEANUP(sse_done) s = { .take = note, .arg = &log };
	const char text[] = "data: a\n\ndata: b\n\ndata: c\n\n";

	(void)state;
	assert_false(sse_feed(&s, text, strlen(text)));
	assert_string_equal(buf_text(&log.text), "|message|a;|message|b;");
	buf_done(&log.text);
}

static void the_pause_is_a_number(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} rows[] = {
		{ "retry: 1500\n", 1500 }, { "retry: 0\n", 0 },
		{ "retry:\n", 0 },         { "retry: -1\n", 0 },
		{ "retry: 1.5\n", 0 },     { "retry: 99999999999\n", 0 },
		{ "retry: 12 \n", 0 },     { "retry: 20\nretry: x\n", 20 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sse CLEANUP(sse_done) s = { .take = note };
		assert_true(sse_feed(&s, rows[i].text, strlen(rows[i].text)));
		assert_int_equal(s.retry_ms, rows[i].ms);
	}
}

static void an_id_with_a_nul_is_ignored(void **state)
{
	struct log log = { 0 };
	struct sse CLEANUP(sse_done) s = { .take = note, .arg = &log };
	const char text[] = "id: 1\ndata: a\n\nid: 2\0x\ndata: b\n\n";

	(void)state;
	assert_true(sse_feed(&s, text, sizeof(text) - 1));
	assert_string_equal(buf_text(&log.text), "1|message|a;1|message|b;");
	buf_done(&log.text);
}

static bool feed_many(struct sse *s, const char *piece, size_t total)
{
	for (size_t n = 0; n < total; n += strlen(piece))
		if (!sse_feed(s, piece, strlen(piece)))
			return false;
	return true;
}

static void nothing_grows_without_end(void **state)
{
	struct log log = { 0 };
	char line[65536];

	(void)state;
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	{
		struct sse CLEANUP(sse_done) s = { .take = note, .arg = &log };
		assert_false(feed_many(&s, line, 2 * SSE_MAX_BYTES));
		assert_true(s.line.len <= SSE_MAX_BYTES);
	}
	memcpy(line, "data:", 5);
	line[sizeof(line) - 2] = '\n';
	{
		struct sse CLEANUP(sse_done) s = { .take = note, .arg = &log };
		assert_false(feed_many(&s, line, 2 * SSE_MAX_BYTES));
		assert_true(s.data.len <= SSE_MAX_BYTES);
	}
	assert_int_equal(log.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_event_has_an_id_a_kind_and_data),
		cmocka_unit_test(lines_end_in_three_ways),
		cmocka_unit_test(data_may_have_several_lines),
		cmocka_unit_test(comments_and_unknown_fields_are_nothing),
		cmocka_unit_test(the_id_stays_until_another_comes),
		cmocka_unit_test(an_event_without_data_is_none),
		cmocka_unit_test(what_is_not_finished_is_no_event),
		cmocka_unit_test(a_byte_order_mark_is_skipped_once),
		cmocka_unit_test(a_new_connection_keeps_the_id_of_whole_events),
		cmocka_unit_test(the_reader_may_stop),
		cmocka_unit_test(the_pause_is_a_number),
		cmocka_unit_test(an_id_with_a_nul_is_ignored),
		cmocka_unit_test(nothing_grows_without_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
