/* SPDX-License-Identifier: Apache-2.0 */
#include "lmtp/mime.h"

#include <assert.h>
#include <gmime/gmime.h>
#include <string.h>

#include "attachment/rules.h"
#include "base/id.h"

#define SUBJECT_MAX 998
#define TYPE_MAX 100

/* A mail without a charset is UTF-8, or what Western mailers wrote before it. */
static const char *FALLBACK_CHARSETS[] = { "utf-8", "windows-1252", NULL };

void mime_init(void)
{
	g_mime_init();
}

void mime_done(struct mime_mail *m)
{
	arena_done(&m->arena);
}

/* Before GMime: each line can cost it an object. */
static int mime_check_lines(const char *bytes, size_t n, struct problem *p)
{
	size_t lines = 0, dashes = 0;
	const char *end = bytes + n;

	for (const char *s = bytes; s < end; lines++) {
		const char *next = memchr(s, '\n', (size_t)(end - s));
		dashes += end - s >= 2 && s[0] == '-' && s[1] == '-';
		s = next ? next + 1 : end;
	}
	if (dashes > MIME_DASHES_MAX)
		return problem_set(p, LAPSE_EINVAL, NULL, "the mail may have too many parts");
	if (lines > n / MIME_LINE_BYTES + MIME_LINES_FREE)
		return problem_set(p, LAPSE_EINVAL, NULL, "the mail has too many short lines");
	return LAPSE_OK;
}

/* Texts */

static bool mime_is_control(char c, bool lines)
{
	if (lines && (c == '\n' || c == '\t'))
		return false;
	return (unsigned char)c < ' ' || c == 0x7f;
}

/* UTF-8 of at most `max` bytes, whole characters; controls are blanks, and with `lines` the ends
 * of lines stay. */
static char *mime_text(struct arena *arena, const char *s, size_t n, size_t max, bool lines,
		       bool *truncated)
{
	char *CLEANUP(mem_freep) valid = g_utf8_make_valid(s, (gssize)n);
	size_t len = strlen(valid), k = 0;

	if (len > max) {
		for (len = max; len > 0 && ((unsigned char)valid[len] & 0xc0) == 0x80;)
			len--;
		if (truncated)
			*truncated = true;
	}
	char *out = arena_alloc(arena, len + 1);
	for (size_t i = 0; i < len; i++) {
		if (lines && valid[i] == '\r' && valid[i + 1] == '\n')
			continue;
		out[k++] = valid[i];
		if (mime_is_control(valid[i], lines))
			out[k - 1] = ' ';
	}
	out[k] = '\0';
	return out;
}

static const char *mime_line(struct arena *arena, const char *s, size_t max)
{
	return s ? mime_text(arena, s, strlen(s), max, false, NULL) : "";
}

/* Addresses */

struct mime_addresses {
	struct arena *arena;
	const char *items[MAIL_RECIPIENTS_MAX];
	size_t count;
};

static void mime_add_addresses(struct mime_addresses *a, InternetAddressList *list, int depth)
{
	int n = list ? internet_address_list_length(list) : 0;

	for (int i = 0; i < n && a->count < MAIL_RECIPIENTS_MAX; i++) {
		InternetAddress *one = internet_address_list_get_address(list, i);
		if (INTERNET_ADDRESS_IS_GROUP(one) && depth < MIME_DEPTH_MAX)
			mime_add_addresses(
				a, internet_address_group_get_members((InternetAddressGroup *)one),
				depth + 1);
		else if (INTERNET_ADDRESS_IS_MAILBOX(one))
			a->items[a->count++] = mime_line(
				a->arena,
				internet_address_mailbox_get_addr((InternetAddressMailbox *)one),
				SUBJECT_MAX);
	}
}

static struct mail_addresses mime_addresses(struct arena *arena, InternetAddressList *list)
{
	struct mime_addresses a = { .arena = arena };

	mime_add_addresses(&a, list, 0);
	const char **items = arena_alloc(arena, (a.count + 1) * sizeof(*items));
	memcpy(items, a.items, a.count * sizeof(*items));
	return (struct mail_addresses){ items, a.count };
}

/* Parts */

struct mime_walk {
	struct mime_mail *mail;
	struct problem *problem;
	size_t parts;
};

static int mime_walk(struct mime_walk *w, GMimeObject *o, int depth);

/* The name a sender chose, made harmless. */
static const char *mime_file_name(struct arena *arena, const char *given, const char *fallback)
{
	char *name = mime_text(arena, given ? given : "", given ? strlen(given) : 0,
			       ATTACHMENT_NAME_MAX, false, NULL);

	for (char *c = name; *c; c++)
		if (*c == '/' || *c == '\\')
			*c = '_';
	bool dots = strspn(name, ". ") == strlen(name);
	return dots || !utf8_is_valid(name, strlen(name), true) ? fallback : name;
}

static int mime_add_file(struct mime_walk *w, GMimeObject *o, const char *name, GMimeStream *stream)
{
	struct mime_mail *m = w->mail;
	GByteArray *bytes = g_mime_stream_mem_get_byte_array(GMIME_STREAM_MEM(stream));
	char *CLEANUP(mem_freep) type =
		g_mime_content_type_get_mime_type(g_mime_object_get_content_type(o));

	if (m->files_count == MIME_FILES_MAX)
		return problem_set(w->problem, LAPSE_EINVAL, NULL, "the mail has too many files");
	char *copy = arena_alloc(&m->arena, bytes->len + 1);
	if (bytes->len > 0)
		memcpy(copy, bytes->data, bytes->len);
	m->files[m->files_count++] = (struct mime_file){
		.name = mime_file_name(&m->arena, name,
				       GMIME_IS_MESSAGE_PART(o) ? "message.eml"
								: ATTACHMENT_NAME_DEFAULT),
		.type = mime_line(&m->arena, type, TYPE_MAX),
		.bytes = copy,
		.size = bytes->len,
	};
	return LAPSE_OK;
}

static int mime_take_file(struct mime_walk *w, GMimeObject *o)
{
	GMimeStream *stream = g_mime_stream_mem_new();
	const char *name = NULL;

	if (GMIME_IS_MESSAGE_PART(o)) {
		GMimeMessage *inner = g_mime_message_part_get_message((GMimeMessagePart *)o);
		if (inner)
			g_mime_object_write_to_stream((GMimeObject *)inner, NULL, stream);
	} else {
		GMimeDataWrapper *content = g_mime_part_get_content((GMimePart *)o);
		name = g_mime_part_get_filename((GMimePart *)o);
		if (content)
			g_mime_data_wrapper_write_to_stream(content, stream);
	}
	int r = mime_add_file(w, o, name, stream);
	g_object_unref(stream);
	return r;
}

static char *mime_decode(GMimeObject *o, size_t *ret_n)
{
	GMimeDataWrapper *content = g_mime_part_get_content((GMimePart *)o);
	GMimeStream *stream = g_mime_stream_mem_new();

	if (content)
		g_mime_data_wrapper_write_to_stream(content, stream);
	GByteArray *bytes = g_mime_stream_mem_get_byte_array(GMIME_STREAM_MEM(stream));
	char *copy = mem_alloc(bytes->len + 1);
	if (bytes->len > 0)
		memcpy(copy, bytes->data, bytes->len);
	*ret_n = bytes->len;
	g_object_unref(stream);
	return copy;
}

/* The text as UTF-8. Without a charset GMime would take it for ASCII, and lose the rest. */
static char *mime_read_text(GMimeObject *o, size_t *ret_n)
{
	const char *charset = g_mime_text_part_get_charset((GMimeTextPart *)o);
	bool is_named = charset && strcasecmp(charset, "us-ascii") != 0;
	char *text = is_named ? g_mime_text_part_get_text((GMimeTextPart *)o) : NULL;

	if (text) {
		*ret_n = strlen(text);
		return text;
	}
	text = mime_decode(o, ret_n);
	if (g_utf8_validate(text, (gssize)*ret_n, NULL))
		return text;
	gsize n = 0;
	char *converted =
		g_convert(text, (gssize)*ret_n, "utf-8", FALLBACK_CHARSETS[1], NULL, &n, NULL);
	if (!converted)
		return text;
	free(text);
	*ret_n = n;
	return converted;
}

/* Joined to what is there already: a mail may say its text in several parts. */
static void mime_take_text(struct mime_walk *w, GMimeObject *o, const char **body)
{
	struct mime_mail *m = w->mail;
	size_t n = 0;
	char *CLEANUP(mem_freep) text = mime_read_text(o, &n);
	const char *more = mime_text(&m->arena, text, n, MIME_BODY_MAX, true, &m->truncated);

	if (!*body) {
		*body = more;
		return;
	}
	size_t had = strlen(*body);
	if (had + strlen(more) + 1 > MIME_BODY_MAX)
		m->truncated = true;
	else
		*body = arena_printf(&m->arena, "%s\n%s", *body, more);
}

static bool mime_is_attached(GMimeObject *o)
{
	const char *disposition = g_mime_object_get_disposition(o);

	return (disposition && strcasecmp(disposition, "attachment") == 0) ||
	       (GMIME_IS_PART(o) && g_mime_part_get_filename((GMimePart *)o));
}

static int mime_take_leaf(struct mime_walk *w, GMimeObject *o)
{
	GMimeContentType *type = g_mime_object_get_content_type(o);

	if (!GMIME_IS_TEXT_PART(o) || mime_is_attached(o))
		return mime_take_file(w, o);
	if (g_mime_content_type_is_type(type, "text", "html"))
		mime_take_text(w, o, &w->mail->html);
	else if (g_mime_content_type_is_type(type, "text", "plain"))
		mime_take_text(w, o, &w->mail->text);
	else
		return mime_take_file(w, o);
	return LAPSE_OK;
}

static int mime_walk_multipart(struct mime_walk *w, GMimeMultipart *all, int depth)
{
	int r = LAPSE_OK, n = g_mime_multipart_get_count(all);

	for (int i = 0; r == LAPSE_OK && i < n; i++)
		r = mime_walk(w, g_mime_multipart_get_part(all, i), depth + 1);
	return r;
}

static int mime_walk(struct mime_walk *w, GMimeObject *o, int depth)
{
	if (depth > MIME_DEPTH_MAX)
		return problem_set(w->problem, LAPSE_EINVAL, NULL,
				   "the mail's parts are nested too deep");
	if (++w->parts > MIME_PARTS_MAX)
		return problem_set(w->problem, LAPSE_EINVAL, NULL, "the mail has too many parts");
	if (GMIME_IS_MULTIPART(o))
		return mime_walk_multipart(w, (GMimeMultipart *)o, depth);
	if (GMIME_IS_PART(o) || GMIME_IS_MESSAGE_PART(o))
		return mime_take_leaf(w, o);
	return LAPSE_OK; /* a kind that holds nothing, message/partial for one */
}

/* The whole */

static int mime_take(GMimeMessage *message, struct mime_mail *m, struct problem *p)
{
	struct mime_walk w = { .mail = m, .problem = p };
	struct mail_addresses from = mime_addresses(&m->arena, g_mime_message_get_from(message));
	GMimeObject *body = g_mime_message_get_mime_part(message);

	m->from = from.count > 0 ? from.items[0] : "";
	m->subject = mime_line(&m->arena, g_mime_message_get_subject(message), SUBJECT_MAX);
	m->to = mime_addresses(&m->arena, g_mime_message_get_to(message));
	m->cc = mime_addresses(&m->arena, g_mime_message_get_cc(message));
	return body ? mime_walk(&w, body, 0) : LAPSE_OK;
}

int mime_parse(const char *bytes, size_t n, struct mime_mail *ret, struct problem *p)
{
	*ret = (struct mime_mail){ .from = "", .subject = "" };
	arena_init(&ret->arena);
	if (n == 0)
		bytes = ""; /* an empty mail has no buffer */
	int r = mime_check_lines(bytes, n, p);
	if (r < 0)
		return r;
	GMimeParserOptions *options = g_mime_parser_options_new();
	GMimeStream *stream = g_mime_stream_mem_new_with_buffer(bytes, n);
	GMimeParser *parser = g_mime_parser_new_with_stream(stream);

	g_mime_parser_options_set_fallback_charsets(options, FALLBACK_CHARSETS);
	GMimeMessage *message = g_mime_parser_construct_message(parser, options);
	if (message) {
		r = mime_take(message, ret, p);
		g_object_unref(message);
	} else { /* no header in it: all of it is text */
		ret->text = mime_text(&ret->arena, bytes, n, MIME_BODY_MAX, true, &ret->truncated);
	}
	g_object_unref(parser);
	g_object_unref(stream);
	g_mime_parser_options_free(options);
	assert(r == LAPSE_OK || r == LAPSE_EINVAL);
	return r;
}
