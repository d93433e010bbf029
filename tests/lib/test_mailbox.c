/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of mailboxes and their mail: making, looking, renewing, expiring in every way, sending
 * and reading, and what they refuse. */
#include <stdio.h>
#include <string.h>

#include "lib.h"

#define MINUTE_MS INT64_C(60000)
#define TTL (5 * MINUTE_MS) /* the shortest there is */

struct shown {
	int count;
	struct lapse_mailbox last;
	char id[LAPSE_MAILBOX_ID_SIZE], address[300], ids[8][LAPSE_MAILBOX_ID_SIZE];
};

static void show(void *arg, const struct lapse_mailbox *m)
{
	struct shown *s = arg;

	s->last = *m;
	snprintf(s->id, sizeof(s->id), "%s", m->id);
	snprintf(s->address, sizeof(s->address), "%s", m->address);
	if (s->count < 8)
		snprintf(s->ids[s->count], LAPSE_MAILBOX_ID_SIZE, "%s", m->id);
	s->count++;
}

static struct shown create(struct world *w, const char *username, lapse_ms ttl_ms)
{
	struct shown s = { 0 };

	assert_ok(w, lapse_mailbox_create(w->store, username, NULL, ttl_ms, show, &s));
	assert_int_equal(s.count, 1);
	return s;
}

static struct shown get(struct world *w, const char *id)
{
	struct shown s = { 0 };

	assert_ok(w, lapse_mailbox_get(w->store, id, show, &s));
	assert_int_equal(s.count, 1);
	assert_string_equal(s.id, id);
	return s;
}

static int count_listed(struct world *w, bool include_expired)
{
	struct shown s = { 0 };

	assert_ok(w, lapse_mailbox_list(w->store, include_expired, NULL, 100, show, &s));
	return s.count;
}

static int count_events(struct world *w, const char *kind)
{
	static struct seen s;
	int n = 0;

	s.count = 0;
	assert_ok(w, lapse_events(w->store, 0, 1000, see_event, &s));
	for (size_t i = 0; i < s.count; i++)
		n += strcmp(s.items[i].text, kind) == 0;
	return n;
}

struct letters {
	int count;
	bool read;
	char id[32], subject[64], text[64], from[300], to[300];
	size_t to_count, cc_count;
	bool has_text, has_html;
};

static void see_mail(void *arg, const struct lapse_mail *m)
{
	struct letters *l = arg;

	l->count++;
	l->read = m->read;
	l->to_count = m->to_count;
	l->cc_count = m->cc_count;
	l->has_text = m->text != NULL;
	l->has_html = m->html != NULL;
	snprintf(l->id, sizeof(l->id), "%s", m->id);
	snprintf(l->subject, sizeof(l->subject), "%s", m->subject);
	snprintf(l->from, sizeof(l->from), "%s", m->from);
	snprintf(l->to, sizeof(l->to), "%s", m->to[0]);
	snprintf(l->text, sizeof(l->text), "%s", m->text ? m->text : m->preview);
}

static struct letters letters_in(struct world *w, const char *id, const char *folder)
{
	struct letters l = { 0 };

	assert_ok(w, lapse_mail_list(w->store, id, folder, NULL, 100, see_mail, &l));
	return l;
}

static void send_mail(struct world *w, const struct shown *from, const struct shown *to,
		      const char *subject)
{
	const char *addresses[] = { to->address };
	struct lapse_mail_draft d = {
		.to = addresses, .to_count = 1, .subject = subject, .text = "hello"
	};
	const char *id = NULL;

	assert_ok(w, lapse_mail_send(w->store, from->id, &d, &id));
	assert_int_equal(strlen(id), LAPSE_ID_SIZE - 1);
}

/* Making and looking */

static void test_a_mailbox_comes_back_as_it_was_made(void **state)
{
	struct world *w = *state;
	struct shown s = { 0 };

	assert_ok(w, lapse_mailbox_create(w->store, "Alice", "LAPSE.local", TTL, show, &s));
	assert_string_equal(s.address, "alice@lapse.local");
	assert_int_equal(strncmp(s.id, "mbx_", 4), 0);
	assert_int_equal(s.last.created_at, NOW);
	assert_int_equal(s.last.expires_at, NOW + TTL);
	assert_false(s.last.expired);
	assert_int_equal(s.last.cleanup, LAPSE_CLEANUP_CLEAN);
	assert_int_equal(s.last.cleanup_attempts, 0);
	assert_string_equal(get(w, s.id).address, s.address);
	world_reopen(w);
	assert_int_equal(get(w, s.id).last.expires_at, NOW + TTL);
	assert_int_equal(count_events(w, "mailbox.created"), 1);
}

static void see_texts(void *arg, const struct lapse_mailbox *m)
{
	char address[300];

	(void)arg;
	snprintf(address, sizeof(address), "%s@%s", m->username, m->domain);
	assert_string_equal(m->address, address);
	assert_string_equal(m->domain, "lapse.local");
	assert_string_equal(m->provider, "local");
}

static void test_defaults(void **state)
{
	struct world *w = *state;
	struct shown one = create(w, NULL, LAPSE_TTL_DEFAULT);
	struct shown two = create(w, NULL, LAPSE_TTL_DEFAULT);

	assert_int_equal(one.last.expires_at, NOW + DAY_MS);
	assert_string_not_equal(one.address, two.address);
	assert_ok(w, lapse_mailbox_get(w->store, one.id, see_texts, NULL));
	assert_ok(w, lapse_mailbox_create(w->store, NULL, NULL, TTL, NULL, NULL));
}

static void test_lists_are_newest_first_in_pages_and_the_owners(void **state)
{
	struct world *w = *state;
	struct shown a = create(w, "aaa", TTL), b = create(w, "bbb", TTL),
		     c = create(w, "ccc", TTL);
	struct shown s = { 0 }, rest = { 0 };

	assert_ok(w, lapse_mailbox_list(w->store, false, NULL, 2, show, &s));
	assert_int_equal(s.count, 2);
	assert_string_equal(s.ids[0], c.id);
	assert_string_equal(s.ids[1], b.id);
	assert_ok(w, lapse_mailbox_list(w->store, false, s.ids[1], 2, show, &rest));
	assert_int_equal(rest.count, 1);
	assert_string_equal(rest.ids[0], a.id);
	assert_ok(w, lapse_set_owner(w->store, "other"));
	assert_int_equal(count_listed(w, true), 0);
	assert_error(w, lapse_mailbox_get(w->store, a.id, NULL, NULL), LAPSE_ENOTFOUND, "id");
	assert_error(w, lapse_mailbox_renew(w->store, a.id, TTL, NULL, NULL), LAPSE_ENOTFOUND,
		     "id");
	assert_error(w, lapse_mailbox_delete(w->store, a.id), LAPSE_ENOTFOUND, "id");
	assert_error(w, lapse_mail_list(w->store, a.id, NULL, NULL, 10, NULL, NULL),
		     LAPSE_ENOTFOUND, "mailbox");
	assert_error(w, lapse_mailbox_create(w->store, "aaa", NULL, TTL, NULL, NULL),
		     LAPSE_ECONFLICT, "username"); /* an address is one of all owners */
}

/* Ending. At its very deadline a mailbox lives, a millisecond later it does not. */

static void assert_over(struct world *w, const char *id)
{
	struct shown s = get(w, id);
	const char *to[] = { "x@lapse.local" };
	struct lapse_mail_draft d = { .to = to, .to_count = 1, .subject = "s" };

	assert_true(s.last.expired);
	assert_error(w, lapse_mailbox_renew(w->store, id, TTL, show, &s), LAPSE_EEXPIRED, "id");
	assert_error(w, lapse_mailbox_renew(w->store, id, 1, show, &s), LAPSE_EEXPIRED, "id");
	assert_error(w, lapse_mail_list(w->store, id, NULL, NULL, 10, NULL, NULL), LAPSE_EEXPIRED,
		     "mailbox");
	assert_error(w, lapse_mail_get(w->store, id, "0000000000000001", NULL, NULL),
		     LAPSE_EEXPIRED, "mailbox");
	assert_error(w, lapse_mail_send(w->store, id, &d, NULL), LAPSE_EEXPIRED, "mailbox");
	assert_int_equal(s.count, 1); /* nobody was shown anything by what failed */
}

static void test_a_look_lets_it_expire(void **state)
{
	struct world *w = *state;
	struct shown s = create(w, "alice", TTL);

	world_pass(w, TTL - 1);
	assert_false(get(w, s.id).last.expired);
	world_pass(w, 1);
	assert_false(get(w, s.id).last.expired);
	assert_int_equal(count_listed(w, false), 1);
	world_pass(w, 1);
	assert_int_equal(count_events(w, "mailbox.expired"), 0); /* nobody has noticed yet */
	struct shown over = get(w, s.id);
	assert_true(over.last.expired);
	assert_int_equal(over.last.cleanup, LAPSE_CLEANUP_CLEAN);
	assert_int_equal(count_events(w, "mailbox.expired"), 1);
	assert_over(w, s.id);
	assert_int_equal(count_events(w, "mailbox.expired"), 1);
	world_reopen(w);
	assert_over(w, s.id);
}

/* The look that fails is one, too: the error must not undo the end. */
static void test_every_use_is_a_look(void **state)
{
	struct world *w = *state;
	struct shown s[5];
	const char *to[] = { "x@lapse.local" };
	struct lapse_mail_draft d = { .to = to, .to_count = 1, .subject = "s" };

	for (int i = 0; i < 5; i++)
		s[i] = create(w, NULL, TTL);
	world_pass(w, TTL + 1);
	assert_error(w, lapse_mailbox_renew(w->store, s[0].id, TTL, NULL, NULL), LAPSE_EEXPIRED,
		     "id");
	assert_int_equal(count_events(w, "mailbox.expired"), 1);
	assert_error(w, lapse_mail_list(w->store, s[1].id, NULL, NULL, 10, NULL, NULL),
		     LAPSE_EEXPIRED, "mailbox");
	assert_int_equal(count_events(w, "mailbox.expired"), 2);
	assert_error(w, lapse_mail_get(w->store, s[2].id, "0000000000000001", NULL, NULL),
		     LAPSE_EEXPIRED, "mailbox");
	assert_int_equal(count_events(w, "mailbox.expired"), 3);
	assert_error(w, lapse_mail_send(w->store, s[3].id, &d, NULL), LAPSE_EEXPIRED, "mailbox");
	assert_int_equal(count_events(w, "mailbox.expired"), 4);
	assert_int_equal(count_listed(w, false), 0);
	assert_int_equal(count_events(w, "mailbox.expired"), 5);
	assert_int_equal(count_listed(w, true), 5);
}

static void test_the_tick_at_the_deadline(void **state)
{
	struct world *w = *state;

	create(w, "alice", TTL);
	tick_until_idle(w);
	assert_true(lapse_next_us(w->store) <= (TTL + 1) * 1000);
	world_pass(w, TTL);
	tick_until_idle(w);
	assert_int_equal(count_events(w, "mailbox.expired"), 0);
	assert_true(lapse_next_us(w->store) <= 1000);
	world_pass(w, 1);
	assert_int_equal(lapse_next_us(w->store), 0);
	tick_until_idle(w);
	assert_int_equal(count_events(w, "mailbox.expired"), 1);
}

static void test_a_sweep(void **state)
{
	struct world *w = *state;
	struct shown s = create(w, "alice", TTL);

	create(w, "bob", 2 * TTL);
	world_pass(w, TTL);
	assert_int_equal(swept(w, "mailboxes", false), 0);
	world_pass(w, 1);
	assert_int_equal(swept(w, "mailboxes", true), 1);
	assert_int_equal(count_events(w, "mailbox.expired"), 0); /* that was a dry run */
	assert_int_equal(swept(w, "mailboxes", false), 1);
	assert_int_equal(count_events(w, "mailbox.expired"), 1);
	assert_int_equal(swept(w, "mailboxes", false), 0);
	assert_over(w, s.id);
	world_pass(w, 30 * DAY_MS);
	assert_int_equal(swept(w, "mailboxes", false), 2); /* bob expires, the row of alice goes */
	assert_error(w, lapse_mailbox_get(w->store, s.id, NULL, NULL), LAPSE_ENOTFOUND, "id");
}

static void test_the_address_is_free_again(void **state)
{
	struct world *w = *state;
	struct shown old = create(w, "alice", TTL);

	assert_error(w, lapse_mailbox_create(w->store, "alice", NULL, TTL, NULL, NULL),
		     LAPSE_ECONFLICT, "username");
	world_pass(w, TTL + 1);
	struct shown s = create(w, "alice", TTL);
	assert_string_not_equal(s.id, old.id);
	assert_over(w, old.id);
	assert_ok(w, lapse_mailbox_delete(w->store, s.id));
	create(w, "alice", TTL);
}

static void test_a_renewal_counts_from_now(void **state)
{
	struct world *w = *state;
	struct shown s = create(w, "alice", TTL), renewed = { 0 };

	world_pass(w, TTL);
	assert_ok(w, lapse_mailbox_renew(w->store, s.id, 2 * TTL, show, &renewed));
	assert_int_equal(renewed.last.expires_at, NOW + 3 * TTL);
	world_pass(w, 2 * TTL);
	tick_until_idle(w);
	assert_ok(w, lapse_mailbox_renew(w->store, s.id, LAPSE_TTL_DEFAULT, NULL, NULL));
	assert_int_equal(get(w, s.id).last.expires_at, NOW + 3 * TTL + DAY_MS);
	assert_int_equal(count_events(w, "mailbox.renewed"), 2);
	assert_int_equal(count_events(w, "mailbox.expired"), 0);
}

static void test_deleting_and_holds(void **state)
{
	struct world *w = *state;
	struct shown s = create(w, "alice", TTL), other = create(w, "bob", TTL);

	assert_ok(w, lapse_hold_place(w->store, "mailboxes", s.id, "audit", LAPSE_NEVER));
	assert_error(w, lapse_mailbox_delete(w->store, s.id), LAPSE_ECONFLICT, "id");
	world_pass(w, TTL + 1);
	tick_until_idle(w);
	swept(w, "mailboxes", false);
	assert_over(w, s.id);
	assert_int_equal(get(w, s.id).last.cleanup, LAPSE_CLEANUP_PENDING);
	assert_int_equal(count_events(w, "mailbox.expired"), 1); /* that of bob */
	assert_ok(w, lapse_hold_release(w->store, "mailboxes", s.id));
	assert_int_equal(get(w, s.id).last.cleanup, LAPSE_CLEANUP_CLEAN);
	assert_ok(w, lapse_mailbox_delete(w->store, s.id));
	assert_ok(w, lapse_mailbox_delete(w->store, other.id));
	assert_error(w, lapse_mailbox_delete(w->store, other.id), LAPSE_ENOTFOUND, "id");
	assert_int_equal(count_listed(w, true), 0);
}

/* Mail */

static void test_mail_between_owners(void **state)
{
	struct world *w = *state;
	struct shown alice = create(w, "alice", TTL);

	assert_ok(w, lapse_set_owner(w->store, "other"));
	struct shown bob = create(w, "bob", TTL);
	send_mail(w, &bob, &alice, "one");
	struct letters sent = letters_in(w, bob.id, "sent");
	assert_int_equal(sent.count, 1);
	assert_true(sent.read);
	assert_error(w, lapse_mail_list(w->store, alice.id, NULL, NULL, 10, NULL, NULL),
		     LAPSE_ENOTFOUND, "mailbox");

	assert_ok(w, lapse_set_owner(w->store, "local"));
	struct letters l = letters_in(w, alice.id, NULL);
	assert_int_equal(l.count, 1);
	assert_string_equal(l.subject, "one");
	assert_string_equal(l.from, "bob@lapse.local");
	assert_string_equal(l.to, "alice@lapse.local");
	assert_false(l.read || l.has_text || l.has_html);
	assert_string_equal(l.text, "hello"); /* its preview */
	assert_int_equal(letters_in(w, alice.id, "drafts").count, 0);
	assert_int_equal(letters_in(w, alice.id, "all").count, 1);
}

static void test_reading_is_remembered(void **state)
{
	struct world *w = *state;
	struct shown alice = create(w, "alice", DAY_MS * 3);
	struct letters got = { 0 };

	send_mail(w, &alice, &alice, "read");
	struct letters l = letters_in(w, alice.id, NULL);
	send_mail(w, &alice, &alice, "unread");
	assert_ok(w, lapse_mail_get(w->store, alice.id, l.id, see_mail, &got));
	assert_int_equal(got.count, 1);
	assert_true(got.read && got.has_text && !got.has_html);
	assert_string_equal(got.text, "hello");
	world_reopen(w);
	world_pass(w, DAY_MS);
	assert_ok(w, lapse_mail_get(w->store, alice.id, l.id, see_mail, &got));
	world_pass(w, 1); /* read and older than a day: it is over, unread ones are not */
	assert_error(w, lapse_mail_get(w->store, alice.id, l.id, see_mail, &got), LAPSE_ENOTFOUND,
		     "id");
	l = letters_in(w, alice.id, NULL);
	assert_int_equal(l.count, 1);
	assert_string_equal(l.subject, "unread");
	assert_int_equal(swept(w, "mailboxes", false), 3); /* two copies in "sent", too */
}

static void test_mail_in_pages(void **state)
{
	struct world *w = *state;
	struct shown alice = create(w, "alice", TTL);
	struct letters first = { 0 }, second = { 0 };

	send_mail(w, &alice, &alice, "1");
	send_mail(w, &alice, &alice, "2");
	send_mail(w, &alice, &alice, "3");
	assert_ok(w, lapse_mail_list(w->store, alice.id, NULL, NULL, 2, see_mail, &first));
	assert_int_equal(first.count, 2);
	assert_string_equal(first.subject, "2");
	assert_ok(w, lapse_mail_list(w->store, alice.id, NULL, first.id, 2, see_mail, &second));
	assert_int_equal(second.count, 1);
	assert_string_equal(second.subject, "1");
}

static void test_copies(void **state)
{
	struct world *w = *state;
	struct shown alice = create(w, "alice", TTL), bob = create(w, "bob", TTL),
		     carol = create(w, "carol", TTL);
	const char *to[] = { alice.address, "ALICE@lapse.local" }, *cc[] = { bob.address },
		   *bcc[] = { carol.address };
	struct lapse_mail_draft d = { .to = to,
				      .to_count = 2,
				      .cc = cc,
				      .cc_count = 1,
				      .bcc = bcc,
				      .bcc_count = 1,
				      .subject = "",
				      .html = "<b>hi</b>" };
	struct letters got = { 0 };

	assert_ok(w, lapse_mail_send(w->store, alice.id, &d, NULL));
	struct letters l = letters_in(w, carol.id, NULL);
	assert_int_equal(l.count, 1);
	assert_int_equal(l.to_count, 2);
	assert_int_equal(l.cc_count, 1);
	assert_ok(w, lapse_mail_get(w->store, carol.id, l.id, see_mail, &got));
	assert_true(got.has_html && !got.has_text);
	assert_int_equal(letters_in(w, bob.id, NULL).count, 1);
	assert_int_equal(letters_in(w, alice.id, NULL).count, 1); /* named twice, sent once */
}

static void test_mail_goes_to_all_or_to_none(void **state)
{
	struct world *w = *state;
	struct shown alice = create(w, "alice", 2 * TTL), bob = create(w, "bob", TTL);
	const char *to[] = { alice.address, bob.address }, *cc[] = { "x@example.org" };
	struct lapse_mail_draft d = { .to = to, .to_count = 2, .subject = "s" };
	const char *id = "untouched";

	d.cc = cc;
	d.cc_count = 1;
	assert_error(w, lapse_mail_send(w->store, alice.id, &d, &id), LAPSE_EINVAL, "cc");
	d.cc_count = 0;
	world_pass(w, TTL + 1); /* bob is over, whether anybody has noticed or not */
	assert_error(w, lapse_mail_send(w->store, alice.id, &d, &id), LAPSE_EINVAL, "to");
	assert_non_null(strstr(lapse_error_message(w->store), "bob@lapse.local"));
	assert_string_equal(id, "untouched");
	assert_int_equal(letters_in(w, alice.id, "all").count, 0);
}

static void test_much_mail_goes_with_its_mailbox(void **state)
{
	struct world *w = *state;
	struct shown alice = create(w, "alice", 2 * TTL), bob = create(w, "bob", TTL);
	static struct seen s;

	for (int i = 0; i < 250; i++)
		send_mail(w, &alice, &bob, "s");
	world_pass(w, TTL + 1);
	for (int i = 0; i < 50; i++) { /* slices have pauses between them */
		tick_until_idle(w);
		world_pass(w, 10);
	}
	s.count = 0;
	assert_ok(w, lapse_matrix(w->store, see_bound, &s));
	for (size_t i = 0; i < s.count; i++)
		if (strcmp(s.items[i].text, "mailbox_messages") == 0)
			assert_int_equal(s.items[i].claim_id, 250); /* those in alice's "sent" */
}

/* Refusals */

static void test_what_is_refused(void **state)
{
	struct world *w = *state;
	struct lapse_store *store = w->store;

#define REFUSE(username, domain, ttl, field)                                                       \
	assert_error(w, lapse_mailbox_create(store, username, domain, ttl, NULL, NULL),            \
		     LAPSE_EINVAL, field)
	REFUSE("al", NULL, TTL, "username");
	REFUSE("a b", NULL, TTL, "username");
	REFUSE("\xff\xfe\xfd", NULL, TTL, "username");
	REFUSE("", NULL, TTL, "username");
	REFUSE("alice", "example.org", TTL, "domain");
	REFUSE("alice", "no domain", TTL, "domain");
	REFUSE("alice", NULL, TTL - 1, "ttl_ms");
	REFUSE("alice", NULL, 7 * DAY_MS + 1, "ttl_ms");
	REFUSE("alice", NULL, 0, "ttl_ms");
	REFUSE("alice", NULL, -2, "ttl_ms");
	REFUSE("alice", NULL, INT64_MIN, "ttl_ms");
	REFUSE("alice", NULL, LAPSE_NEVER, "ttl_ms");
#undef REFUSE
	assert_error(w, lapse_mailbox_get(store, NULL, NULL, NULL), LAPSE_EINVAL, "id");
	assert_error(w, lapse_mailbox_get(store, "0123456789abcdef", NULL, NULL), LAPSE_EINVAL,
		     "id");
	assert_error(w, lapse_mailbox_get(store, "mbx_0123456789abcdef", NULL, NULL),
		     LAPSE_ENOTFOUND, "id");
	assert_error(w, lapse_mailbox_delete(store, "mbx_"), LAPSE_EINVAL, "id");
	assert_error(w, lapse_mailbox_renew(store, "", TTL, NULL, NULL), LAPSE_EINVAL, "id");
	assert_error(w, lapse_mailbox_list(store, false, NULL, 0, NULL, NULL), LAPSE_EINVAL,
		     "limit");
	assert_error(w, lapse_mailbox_list(store, false, "x", 1, NULL, NULL), LAPSE_EINVAL,
		     "before");
	assert_int_equal(count_listed(w, true), 0);
	struct shown s = create(w, "alice", TTL);
	assert_error(w, lapse_mailbox_renew(store, s.id, TTL - 1, NULL, NULL), LAPSE_EINVAL,
		     "ttl_ms");
	assert_error(w, lapse_mailbox_renew(store, s.id, 0, NULL, NULL), LAPSE_EINVAL, "ttl_ms");
	assert_int_equal(get(w, s.id).last.expires_at, NOW + TTL);
}

static void test_what_mail_is_refused(void **state)
{
	struct world *w = *state;
	struct lapse_store *store = w->store;
	struct shown s = create(w, "alice", TTL);
	const char *many[LAPSE_RECIPIENTS_MAX], *bad[] = { "a\r\nb@c" }, *none[] = { NULL };
	struct lapse_mail_draft good = { .to = many, .to_count = 1, .subject = "s" }, d;
	char long_subject[1000];

	for (int i = 0; i < LAPSE_RECIPIENTS_MAX; i++)
		many[i] = s.address;
	memset(long_subject, 'x', 999);
	long_subject[999] = '\0';
#define REFUSE(change, field)                                                                      \
	d = good, change;                                                                          \
	assert_error(w, lapse_mail_send(store, s.id, &d, NULL), LAPSE_EINVAL, field)
	REFUSE(d.to_count = 0, "to");
	REFUSE(d.to = NULL, "to");
	REFUSE(d.to = bad, "to");
	REFUSE(d.to = none, "to");
	REFUSE(d.to_count = LAPSE_RECIPIENTS_MAX + 1, "to");
	REFUSE((d.cc = many, d.cc_count = LAPSE_RECIPIENTS_MAX), "to");
	REFUSE((d.cc = many, d.cc_count = SIZE_MAX), "to");
	REFUSE((d.cc = bad, d.cc_count = 1), "cc");
	REFUSE(d.cc_count = 1, "cc");
	REFUSE((d.bcc = bad, d.bcc_count = 1), "bcc");
	REFUSE(d.subject = NULL, "subject");
	REFUSE(d.subject = "a\nb", "subject");
	REFUSE(d.subject = long_subject, "subject");
	REFUSE(d.text = "\xff", "text");
	REFUSE(d.html = "\xff", "html");
#undef REFUSE
	assert_error(w, lapse_mail_send(store, s.id, NULL, NULL), LAPSE_EINVAL, "draft");
	assert_error(w, lapse_mail_send(store, NULL, &good, NULL), LAPSE_EINVAL, "mailbox");
	assert_error(w, lapse_mail_send(store, "x", &good, NULL), LAPSE_EINVAL, "mailbox");
	assert_error(w, lapse_mail_list(store, s.id, "attic", NULL, 1, NULL, NULL), LAPSE_EINVAL,
		     "folder");
	assert_error(w, lapse_mail_list(store, s.id, NULL, "x", 1, NULL, NULL), LAPSE_EINVAL,
		     "before");
	assert_error(w, lapse_mail_list(store, s.id, NULL, NULL, 1001, NULL, NULL), LAPSE_EINVAL,
		     "limit");
	assert_error(w, lapse_mail_get(store, s.id, NULL, NULL, NULL), LAPSE_EINVAL, "id");
	assert_error(w, lapse_mail_get(store, s.id, "x", NULL, NULL), LAPSE_ENOTFOUND, "id");
	assert_error(w, lapse_mail_get(store, s.id, "\xff\n", NULL, NULL), LAPSE_ENOTFOUND, "id");
	assert_int_equal(letters_in(w, s.id, "all").count, 0);
}

static void test_limits_are_settings(void **state)
{
	struct world *w = *state;
	static const struct lapse_setting settings[] = { { "mailboxes_max", "1" },
							 { "mailbox_unread_max", "1" },
							 { "mailbox_domain", "Example.org" },
							 { "body_max_bytes", "1024" } };
	static char large[1025];

	lapse_close(w->store);
	w->options.settings = settings;
	w->options.settings_count = 4;
	world_open(w);
	struct shown s = create(w, "alice", TTL);
	assert_string_equal(s.address, "alice@example.org");
	assert_error(w, lapse_mailbox_create(w->store, NULL, NULL, TTL, NULL, NULL), LAPSE_ELIMIT,
		     "");
	const char *to[] = { s.address };
	struct lapse_mail_draft d = { .to = to, .to_count = 1, .subject = "s", .text = large };
	memset(large, 'x', 1024);
	d.html = "1";
	assert_error(w, lapse_mail_send(w->store, s.id, &d, NULL), LAPSE_ETOOLARGE, "html");
	d.html = NULL;
	assert_ok(w, lapse_mail_send(w->store, s.id, &d, NULL));
	assert_error(w, lapse_mail_send(w->store, s.id, &d, NULL), LAPSE_ELIMIT, "to");
}

/* Callbacks */

static void come_back(void *arg, const struct lapse_mailbox *m)
{
	struct world *w = arg;

	assert_error(w, lapse_mailbox_get(w->store, m->id, NULL, NULL), LAPSE_EINVAL, "");
	assert_error(w, lapse_mailbox_create(w->store, NULL, NULL, TTL, NULL, NULL), LAPSE_EINVAL,
		     "");
	assert_error(w, lapse_mailbox_list(w->store, true, NULL, 1, NULL, NULL), LAPSE_EINVAL, "");
	assert_error(w, lapse_mailbox_renew(w->store, m->id, TTL, NULL, NULL), LAPSE_EINVAL, "");
	assert_error(w, lapse_mailbox_delete(w->store, m->id), LAPSE_EINVAL, "");
	assert_error(w, lapse_mail_list(w->store, m->id, NULL, NULL, 1, NULL, NULL), LAPSE_EINVAL,
		     "");
	assert_error(w, lapse_mail_get(w->store, m->id, "x", NULL, NULL), LAPSE_EINVAL, "");
	assert_error(w, lapse_mail_send(w->store, m->id, NULL, NULL), LAPSE_EINVAL, "");
}

static void test_a_callback_must_not_come_back(void **state)
{
	struct world *w = *state;
	struct shown s = create(w, "alice", TTL);

	assert_ok(w, lapse_mailbox_create(w->store, "bob", NULL, 2 * TTL, come_back, w));
	assert_ok(w, lapse_mailbox_get(w->store, s.id, come_back, w));
	assert_ok(w, lapse_mailbox_renew(w->store, s.id, TTL, come_back, w));
	world_pass(w, TTL + 1);
	assert_ok(w, lapse_mailbox_list(w->store, true, NULL, 10, come_back, w));
	assert_int_equal(count_events(w, "mailbox.expired"), 1);
	assert_int_equal(count_listed(w, true), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
		T(test_a_mailbox_comes_back_as_it_was_made),
		T(test_defaults),
		T(test_lists_are_newest_first_in_pages_and_the_owners),
		T(test_a_look_lets_it_expire),
		T(test_every_use_is_a_look),
		T(test_the_tick_at_the_deadline),
		T(test_a_sweep),
		T(test_the_address_is_free_again),
		T(test_a_renewal_counts_from_now),
		T(test_deleting_and_holds),
		T(test_mail_between_owners),
		T(test_reading_is_remembered),
		T(test_mail_in_pages),
		T(test_copies),
		T(test_mail_goes_to_all_or_to_none),
		T(test_much_mail_goes_with_its_mailbox),
		T(test_what_is_refused),
		T(test_what_mail_is_refused),
		T(test_limits_are_settings),
		T(test_a_callback_must_not_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
