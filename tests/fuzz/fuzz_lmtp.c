/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the LMTP door: the conversation, and the mail it brings. The first byte says how the
 * rest is cut into pieces; however it is cut, the session says the same. A mail that is complete is
 * taken apart, and must come out as plain UTF-8 within the limits.
 */
#include <assert.h>
#include <string.h>

#include "base/id.h"
#include "fuzz.h"
#include "lmtp/mime.h"
#include "lmtp/session.h"

#define MAIL_MAX 32768

static int take_recipient(struct lmtp_session *s, const char *address, const char **ret_why)
{
	(void)s;
	*ret_why = "5.1.1 no such mailbox";
	return strchr(address, '@') ? 250 : 550;
}

static bool reserve(struct lmtp_session *s, int64_t bytes)
{
	return s->room + bytes <= 2 * (int64_t)MAIL_MAX;
}

static const struct lmtp_host HOST = { take_recipient, reserve, MAIL_MAX };

static void check_text(const char *text)
{
	assert(!text || utf8_is_valid(text, strlen(text), false));
}

static void check_mail(const struct buf *data)
{
	struct mime_mail mail = { 0 };
	struct problem p = { 0 };
	int r = mime_parse(data->data, data->len, &mail, &p);

	assert(r == LAPSE_OK || (r == LAPSE_EINVAL && p.message[0]));
	if (r == LAPSE_OK) {
		check_text(mail.from);
		check_text(mail.subject);
		check_text(mail.text);
		check_text(mail.html);
		assert(mail.files_count <= MIME_FILES_MAX);
		for (size_t i = 0; i < mail.files_count; i++) {
			const char *name = mail.files[i].name;
			check_text(name);
			assert(name[0] && strlen(name) <= 255 && !strchr(name, '/'));
		}
	}
	mime_done(&mail);
}

/* Talks to the end of the input or of the conversation; `out` gets everything that was said. */
static void talk(const char *bytes, size_t n, size_t piece, bool reads, struct buf *out)
{
	struct lmtp_session s = { 0 };

	lmtp_start(&s, &HOST);
	while (n > 0 && s.state != LMTP_CLOSING) {
		size_t took = lmtp_feed(&s, bytes, piece < n ? piece : n);
		bytes += took;
		n -= took;
		if (s.state != LMTP_BUSY) {
			assert(took > 0 || s.state == LMTP_CLOSING);
			continue;
		}
		assert(s.recipients_count > 0 && s.recipients_count <= LMTP_RECIPIENTS_MAX);
		assert(s.too_much || s.data.len <= MAIL_MAX);
		if (reads && !s.too_much)
			check_mail(&s.data);
		for (size_t i = s.recipients_count; i > 0; i--)
			lmtp_answer(&s, 250, "2.0.0 stored");
		lmtp_continue(&s);
	}
	buf_add(out, s.out.data, s.out.len);
	lmtp_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool ready;
	struct buf whole = { 0 }, cut = { 0 };

	if (!ready)
		mime_init();
	ready = true;
	if (size < 2)
		return 0;
	talk((const char *)data + 1, size - 1, size, true, &whole);
	talk((const char *)data + 1, size - 1, data[0] % 32 + 1, false, &cut);
	assert(whole.len == cut.len && memcmp(buf_text(&whole), buf_text(&cut), whole.len) == 0);
	buf_done(&whole);
	buf_done(&cut);
	return 0;
}
