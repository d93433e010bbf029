/* SPDX-License-Identifier: Apache-2.0 */
#include "lmtp/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define SIZE_SLACK 4096                /* bytes beyond twice the announced size */
#define ROOM_FIRST ((int64_t)64 << 10) /* bytes reserved for a mail that begins; it doubles */
#define TOO_MUCH_AT_ONCE "4.3.1 too much mail at once, try again"

/* Replies */

static void session_say(struct lmtp_session *s, int code, const char *text)
{
	buf_printf(&s->out, "%d %s\r\n", code, text);
}

static void session_complain(struct lmtp_session *s, int code, const char *text)
{
	if (++s->errors < LMTP_ERRORS_MAX) {
		session_say(s, code, text);
		return;
	}
	session_say(s, 421, "4.7.0 too many errors");
	s->state = LMTP_CLOSING;
}

void lmtp_start(struct lmtp_session *s, const struct lmtp_host *host)
{
	assert(s->magic == 0 && host->recipient && host->reserve && host->mail_max_bytes > 0);
	s->magic = LMTP_MAGIC;
	s->host = host;
	session_say(s, 220, "lapse LMTP");
}

void lmtp_done(struct lmtp_session *s)
{
	buf_done(&s->out);
	buf_done(&s->command);
	buf_done(&s->data);
	s->magic = 0;
}

static void session_forget(struct lmtp_session *s)
{
	buf_done(&s->data);
	s->recipients_count = 0;
	s->sender[0] = '\0';
	s->size = s->host->mail_max_bytes;
	s->too_much = NULL;
	s->room = 0;
}

void lmtp_close(struct lmtp_session *s, const char *why)
{
	assert(s->magic == LMTP_MAGIC);
	if (s->state != LMTP_CLOSING)
		session_say(s, 421, why);
	s->state = LMTP_CLOSING;
}

void lmtp_answer(struct lmtp_session *s, int code, const char *text)
{
	assert(s->magic == LMTP_MAGIC && s->state == LMTP_BUSY);
	assert(code >= 200 && code < 600);
	session_say(s, code, text);
}

void lmtp_continue(struct lmtp_session *s)
{
	assert(s->state == LMTP_BUSY);
	session_forget(s);
	s->state = LMTP_READY;
}

/* Commands */

/* <user@domain>, without the route that RFC 821 allowed before it. The rest is the parameters. */
static bool session_path(const char *text, char out[LMTP_ADDRESS_MAX + 1], const char **ret_rest)
{
	while (*text == ' ')
		text++;
	const char *end = *text == '<' ? strchr(text, '>') : NULL;
	if (!end)
		return false;
	const char *start = text + 1, *colon = memchr(start, ':', (size_t)(end - start));
	if (*start == '@' && colon)
		start = colon + 1;
	size_t n = (size_t)(end - start);
	if (n > LMTP_ADDRESS_MAX)
		return false;
	memcpy(out, start, n);
	out[n] = '\0';
	*ret_rest = end + 1;
	return true;
}

static const char *session_word(const char *line, const char *word)
{
	size_t n = strlen(word);

	return strncasecmp(line, word, n) == 0 ? line + n : NULL;
}

/* SIZE=, BODY= and SMTPUTF8; others are refused, as RFC 5321 wants. */
static bool session_parameters(struct lmtp_session *s, const char *rest)
{
	while (*rest == ' ') {
		rest += strspn(rest, " ");
		size_t n = strcspn(rest, " ");
		const char *size = session_word(rest, "SIZE=");
		if (size)
			s->size = strtoll(size, NULL, 10);
		else if (n > 0 && !session_word(rest, "BODY=") && !session_word(rest, "SMTPUTF8"))
			return false;
		rest += n;
	}
	return *rest == '\0';
}

static void session_lhlo(struct lmtp_session *s, const char *arg)
{
	if (*arg != ' ') {
		session_complain(s, 501, "5.5.4 LHLO needs a name");
		return;
	}
	session_forget(s);
	s->state = LMTP_READY;
	buf_printf(&s->out,
		   "250-lapse\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n"
		   "250-ENHANCEDSTATUSCODES\r\n250 SIZE %lld\r\n",
		   (long long)s->host->mail_max_bytes);
}

/* What a client announces is an estimate: it may have counted ends of lines as one byte. */
static int64_t session_room_for(const struct lmtp_session *s)
{
	int64_t room = 2 * s->size + SIZE_SLACK;

	assert(s->size >= 0 && s->size <= s->host->mail_max_bytes);
	return s->size == 0 || room > s->host->mail_max_bytes ? s->host->mail_max_bytes : room;
}

static void session_mail(struct lmtp_session *s, const char *arg)
{
	const char *path = session_word(arg, " FROM:"), *rest = NULL;

	if (s->state != LMTP_READY) {
		session_complain(s, 503,
				 s->state == LMTP_START ? "5.5.1 say LHLO first"
							: "5.5.1 one mail at a time");
		return;
	}
	session_forget(s);
	if (!path || !session_path(path, s->sender, &rest)) {
		session_complain(s, 501, "5.1.7 MAIL FROM:<address>");
	} else if (!session_parameters(s, rest) || s->size < 0) {
		session_complain(s, 555, "5.5.4 unknown parameter");
	} else if (s->size > s->host->mail_max_bytes) {
		session_say(s, 552, "5.3.4 the mail is too large (lmtp_mail_max_bytes)");
	} else {
		s->size = session_room_for(s);
		s->state = LMTP_MAIL;
		session_say(s, 250, "2.1.0 go on");
	}
}

static void session_rcpt(struct lmtp_session *s, const char *arg)
{
	const char *path = session_word(arg, " TO:"), *rest = NULL, *why = NULL;
	const bool full = s->recipients_count == LMTP_RECIPIENTS_MAX;
	char *to = full ? NULL : s->recipients[s->recipients_count];

	if (s->state != LMTP_MAIL) {
		session_complain(s, 503, "5.5.1 say MAIL first");
	} else if (full) {
		session_say(s, 452, "4.5.3 too many recipients, send the others next");
	} else if (!path || !session_path(path, to, &rest) || *to == '\0') {
		session_complain(s, 501, "5.1.3 RCPT TO:<address>");
	} else if (*rest != '\0') {
		session_complain(s, 555, "5.5.4 unknown parameter");
	} else {
		int code = s->host->recipient(s, to, &why);
		session_say(s, code, code == 250 ? "2.1.5 go on" : why);
		s->recipients_count += code == 250;
	}
}

/* Memory is reserved as the mail comes: what a client announces, or could send, is not what it
 * sends. */
static bool session_grow(struct lmtp_session *s, int64_t needed)
{
	int64_t room = s->room > 0 ? s->room : ROOM_FIRST;

	while (room < needed)
		room *= 2;
	room = room < s->size ? room : s->size;
	if (room > s->room && !s->host->reserve(s, room - s->room))
		return false;
	s->room = room;
	return true;
}

static void session_data(struct lmtp_session *s, const char *arg)
{
	(void)arg;
	if (s->state != LMTP_MAIL || s->recipients_count == 0) {
		session_complain(s, 503, "5.5.1 no recipient was accepted");
	} else if (!session_grow(s, 1)) {
		session_say(s, 452, TOO_MUCH_AT_ONCE);
		session_forget(s);
		s->state = LMTP_READY;
	} else {
		s->state = LMTP_DATA;
		s->place = AT_START;
		s->line_bytes = 0;
		session_say(s, 354, "end with a dot on a line of its own");
	}
}

static void session_rset(struct lmtp_session *s, const char *arg)
{
	(void)arg;
	session_forget(s);
	s->state = s->state == LMTP_START ? LMTP_START : LMTP_READY;
	session_say(s, 250, "2.0.0 forgotten");
}

static void session_noop(struct lmtp_session *s, const char *arg)
{
	(void)arg;
	session_say(s, 250, "2.0.0 fine");
}

static void session_vrfy(struct lmtp_session *s, const char *arg)
{
	(void)arg;
	session_say(s, 252, "2.5.2 send some mail and see");
}

static void session_quit(struct lmtp_session *s, const char *arg)
{
	(void)arg;
	session_say(s, 221, "2.0.0 good-bye");
	s->state = LMTP_CLOSING;
}

static void session_wrong(struct lmtp_session *s, const char *arg)
{
	(void)arg;
	session_complain(s, 500, "5.5.1 this is LMTP: say LHLO");
}

static const struct {
	const char *word;
	void (*run)(struct lmtp_session *s, const char *arg);
} COMMANDS[] = {
	{ "LHLO", session_lhlo },  { "MAIL", session_mail }, { "RCPT", session_rcpt },
	{ "DATA", session_data },  { "RSET", session_rset }, { "NOOP", session_noop },
	{ "VRFY", session_vrfy },  { "QUIT", session_quit }, { "EHLO", session_wrong },
	{ "HELO", session_wrong },
};

static void session_run(struct lmtp_session *s, const char *line)
{
	for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++) {
		const char *arg = session_word(line, COMMANDS[i].word);
		if (arg && (*arg == '\0' || *arg == ' ')) {
			COMMANDS[i].run(s, arg);
			return;
		}
	}
	session_complain(s, 500, "5.5.2 unknown command");
}

/* Takes bytes up to the end of a line, and runs it. */
static size_t session_feed_command(struct lmtp_session *s, const char *bytes, size_t n)
{
	const char *end = memchr(bytes, '\n', n);
	size_t take = end ? (size_t)(end - bytes) + 1 : n;
	struct buf *line = &s->command;

	if (line->len <= LMTP_COMMAND_MAX)
		buf_add(line, bytes, take < LMTP_COMMAND_MAX ? take : LMTP_COMMAND_MAX + 1);
	if (!end)
		return take;
	if (line->len > LMTP_COMMAND_MAX || memchr(line->data, '\0', line->len)) {
		session_complain(s, 500, "5.5.2 the line is too long, or has a NUL in it");
	} else {
		while (line->len > 0 && strchr("\r\n", line->data[line->len - 1]))
			line->data[--line->len] = '\0';
		session_run(s, line->data);
	}
	buf_clear(line);
	return take;
}

/* The mail */

/* A mail that is refused is read to its end and forgotten: the client must hear why. */
static void session_keep(struct lmtp_session *s, const char *bytes, size_t n)
{
	s->line_bytes += n;
	if (s->too_much)
		return;
	s->too_much_code = 552;
	if ((int64_t)(s->data.len + n) > s->size)
		s->too_much = "5.3.4 the mail is larger than announced or allowed "
			      "(lmtp_mail_max_bytes)";
	else if (s->line_bytes > LMTP_LINE_MAX)
		s->too_much = "5.6.0 a line of the mail is too long";
	else if ((int64_t)(s->data.len + n) > s->room &&
		 !session_grow(s, (int64_t)(s->data.len + n))) {
		s->too_much = TOO_MUCH_AT_ONCE;
		s->too_much_code = 452;
	} else
		buf_add(&s->data, bytes, n);
	if (s->too_much)
		buf_done(&s->data);
}

static void session_keep_byte(struct lmtp_session *s, char c)
{
	session_keep(s, &c, 1);
	if (c == '\n')
		s->line_bytes = 0;
}

/* The place after a byte that is part of the mail. */
static enum lmtp_place session_place_after(enum lmtp_place place, char c)
{
	if (c == '\r')
		return AFTER_CR;
	return c == '\n' && place == AFTER_CR ? AT_START : IN_LINE;
}

/* One byte; true = it was the last of the mail. */
static bool session_feed_byte(struct lmtp_session *s, char c)
{
	if (s->place == AT_START && c == '.') {
		s->place = AFTER_DOT; /* the end, or a dot that the client has doubled */
		return false;
	}
	if (s->place == AFTER_DOT && c == '\r') {
		s->place = AFTER_DOT_CR;
		return false;
	}
	if (s->place == AFTER_DOT_CR) {
		if (c == '\n')
			return true;
		session_keep_byte(s, '\r');
		s->place = AFTER_CR;
	}
	session_keep_byte(s, c);
	s->place = session_place_after(s->place, c);
	return false;
}

static size_t session_feed_data(struct lmtp_session *s, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (s->place == IN_LINE) { /* the quick way: up to the next end of a line */
			size_t run = i;
			while (run < n && bytes[run] != '\r' && bytes[run] != '\n')
				run++;
			session_keep(s, bytes + i, run - i);
			i = run;
			if (i == n)
				return n;
		}
		if (session_feed_byte(s, bytes[i])) {
			s->state = LMTP_BUSY;
			return i + 1;
		}
	}
	return n;
}

size_t lmtp_feed(struct lmtp_session *s, const char *bytes, size_t n)
{
	size_t used = 0;

	assert(s->magic == LMTP_MAGIC);
	while (used < n && s->state != LMTP_BUSY && s->state != LMTP_CLOSING)
		used += (s->state == LMTP_DATA ? session_feed_data
					       : session_feed_command)(s, bytes + used, n - used);
	assert(used <= n);
	return used;
}
