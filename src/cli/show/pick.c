/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show/pick.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define CODE_MIN 4
#define CODE_MAX 10
#define NEAR_BYTES 80  /* how far before a code the word may stand that announces it */
#define AFTER_BYTES 24 /* and how far after it, on its line: "123456 is your code" */
#define LINK_MAX 2000

/* Points. A candidate needs ENOUGH to be taken for a code. */
enum { ENOUGH = 5, ANNOUNCED = 10, ALONE = 4, SIX_DIGITS = 4, DIGITS = 3, MIXED = 1, NO_CODE = -8 };

static const char *const CODE_WORDS[] = { "code",  "otp",  "pin",    "passcode", "password",
					  "token", "kode", "código", "codice",   "verif" };
static const char *const LINK_WORDS[] = { "verif", "confirm", "activat", "magic", "token",
					  "login", "signin",  "sign-in", "reset", "invit" };

/* HTML as text */

static bool tag_is(const char *tag, const char *name)
{
	size_t n = strlen(name);

	tag += *tag == '/';
	return strncasecmp(tag, name, n) == 0 && !isalnum((unsigned char)tag[n]);
}

static bool tag_breaks(const char *tag)
{
	static const char *const names[] = { "br", "p",  "div", "td", "tr",   "li",
					     "h1", "h2", "h3",  "h4", "table" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (tag_is(tag, names[i]))
			return true;
	return false;
}

/* The end of a style or script, which holds no text; NULL = this tag opens neither. */
static const char *tag_skip(const char *tag)
{
	static const char *const ends[][2] = { { "style", "</style" }, { "script", "</script" } };

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (*tag != '/' && tag_is(tag, ends[i][0])) {
			const char *end = strcasestr(tag, ends[i][1]);
			return end ? end : tag + strlen(tag);
		}
	return NULL;
}

static const char *put_entity(struct buf *out, const char *s)
{
	static const struct {
		const char *name, *text;
	} entities[] = {
		{ "&amp;", "&" },   { "&nbsp;", " " }, { "&lt;", "<" },   { "&gt;", ">" },
		{ "&quot;", "\"" }, { "&#39;", "'" },  { "&#160;", " " }, { "&zwnj;", "" }
	};

	for (size_t i = 0; i < ARRAY_LEN(entities); i++) {
		size_t n = strlen(entities[i].name);
		if (strncasecmp(s, entities[i].name, n) == 0) {
			buf_puts(out, entities[i].text);
			return s + n;
		}
	}
	buf_putc(out, *s);
	return s + 1;
}

static void html_to_text(const char *html, struct buf *out)
{
	for (const char *s = html; *s;) {
		if (*s == '&') {
			s = put_entity(out, s);
			continue;
		}
		if (*s != '<') {
			buf_putc(out, *s++);
			continue;
		}
		const char *skip = tag_skip(s + 1), *from = skip ? skip : s;
		const char *end = strchr(from, '>');
		if (tag_breaks(s + 1))
			buf_putc(out, '\n');
		s = end ? end + 1 : from + strlen(from);
	}
}

/* Codes */

static bool has_word(const char *from, const char *to, const char *const *words, size_t n)
{
	struct buf CLEANUP(buf_done) text = { 0 };

	buf_add(&text, from, (size_t)(to - from));
	for (size_t i = 0; i < n; i++)
		if (strcasestr(buf_text(&text), words[i]))
			return true;
	return false;
}

static bool is_code_byte(char c)
{
	return isdigit((unsigned char)c) || isupper((unsigned char)c);
}

/* A blank or a dash between two groups of digits, as in "123 456". */
static bool joins(const char *s)
{
	return (*s == ' ' || *s == '-') && isdigit((unsigned char)s[1]) &&
	       isdigit((unsigned char)s[-1]);
}

/* The end of the run of code bytes that begins here. */
static const char *run_end(const char *s)
{
	while (is_code_byte(*s) || joins(s))
		s++;
	return s;
}

static bool stands_alone(const char *start, const char *from, const char *to)
{
	while (from > start && (from[-1] == ' ' || from[-1] == '\t' || from[-1] == '*'))
		from--;
	while (*to == ' ' || *to == '\t' || *to == '\r' || *to == '*')
		to++;
	return (from == start || from[-1] == '\n') && (*to == '\n' || *to == '\0');
}

static bool looks_like_year(const char *from, size_t n)
{
	return n == 4 && (strncmp(from, "19", 2) == 0 || strncmp(from, "20", 2) == 0);
}

/* How many bytes and digits a run has without its blanks and dashes. */
static void run_measure(const char *from, const char *to, size_t *ret_bytes, size_t *ret_digits)
{
	size_t bytes = 0, digits = 0;

	for (const char *s = from; s < to; s++) {
		bytes += is_code_byte(*s);
		digits += isdigit((unsigned char)*s) != 0;
	}
	*ret_bytes = bytes;
	*ret_digits = digits;
}

static bool is_announced(const char *start, const char *from, const char *to)
{
	const char *near = from - start > NEAR_BYTES ? from - NEAR_BYTES : start;
	size_t after = strcspn(to, "\n");

	if (after > AFTER_BYTES)
		after = AFTER_BYTES;
	return has_word(near, from, CODE_WORDS, ARRAY_LEN(CODE_WORDS)) ||
	       has_word(to, to + after, CODE_WORDS, ARRAY_LEN(CODE_WORDS));
}

static int run_score(const char *start, const char *from, const char *to)
{
	size_t n, digits;

	run_measure(from, to, &n, &digits);
	if (n < CODE_MIN || n > CODE_MAX || digits == 0)
		return NO_CODE;
	if (isalnum((unsigned char)*to) || *to == '_' || *to == '@' || *to == '%')
		return NO_CODE;
	if (from > start && strchr("$+#_@/=.,", from[-1]))
		return NO_CODE;
	int score = digits < n ? MIXED : digits == 6 ? SIX_DIGITS : DIGITS;
	if (is_announced(start, from, to))
		score += ANNOUNCED;
	else if (looks_like_year(from, n))
		return NO_CODE;
	return score + (stands_alone(start, from, to) ? ALONE : 0);
}

static const char *skip_link(const char *s)
{
	if (strncmp(s, "http://", 7) != 0 && strncmp(s, "https://", 8) != 0)
		return NULL;
	return s + strcspn(s, " \t\r\n<>\"");
}

/* The best run of a text; *best is what the texts before it had. */
static void code_find(const char *text, int *best, struct buf *out)
{
	for (const char *s = text; *s;) {
		const char *end = skip_link(s);
		bool inside = s > text && (isalnum((unsigned char)s[-1]) || s[-1] == '_');
		if (end || !is_code_byte(*s) || inside) {
			s = end ? end : s + 1;
			continue;
		}
		end = run_end(s);
		int score = run_score(text, s, end);
		if (score > *best) {
			*best = score;
			buf_clear(out);
			for (const char *c = s; c < end; c++)
				if (*c != ' ')
					buf_putc(out, *c);
		}
		s = end;
	}
}

/* Digits need less in a mail whose subject speaks of a code. */
static int enough_for(const struct pick_mail *m)
{
	bool spoken = m->subject && has_word(m->subject, m->subject + strlen(m->subject),
					     CODE_WORDS, ARRAY_LEN(CODE_WORDS));

	return spoken ? DIGITS : ENOUGH;
}

bool pick_code(const struct pick_mail *m, struct buf *out)
{
	const int enough = enough_for(m);
	struct buf CLEANUP(buf_done) plain = { 0 };
	int best = enough - 1;

	if (m->text && *m->text)
		code_find(m->text, &best, out);
	if (m->html && best < enough) {
		html_to_text(m->html, &plain);
		code_find(buf_text(&plain), &best, out);
	}
	if (m->subject)
		code_find(m->subject, &best, out);
	return best >= enough;
}

/* Links */

static size_t link_length(const char *s)
{
	const char *end = skip_link(s);
	size_t n = (size_t)(end - s);

	while (n > 0 && strchr(".,;:!?)]'", s[n - 1]))
		n--;
	return n <= LINK_MAX ? n : 0;
}

/* Takes the link if it is the first, or the first that looks like a confirmation. */
static void link_consider(const char *s, size_t n, bool *likely, struct buf *out)
{
	bool is_likely = has_word(s, s + n, LINK_WORDS, ARRAY_LEN(LINK_WORDS));

	if (out->len > 0 && (!is_likely || *likely))
		return;
	*likely = is_likely;
	buf_clear(out);
	for (const char *end = s + n; s < end;)
		if (*s == '&')
			s = put_entity(out, s);
		else
			buf_putc(out, *s++);
}

static void links_find(const char *text, bool *likely, struct buf *out)
{
	for (const char *s = text; (s = strcasestr(s, "http"));) {
		size_t n = skip_link(s) ? link_length(s) : 0;
		if (n > strlen("https://"))
			link_consider(s, n, likely, out);
		s += n > 4 ? n : 4;
	}
}

bool pick_link(const struct pick_mail *m, struct buf *out)
{
	bool likely = false;

	if (m->text)
		links_find(m->text, &likely, out);
	if (m->html && !likely)
		links_find(m->html, &likely, out);
	return out->len > 0;
}
