/* SPDX-License-Identifier: Apache-2.0 */
/* JMAP: listing mail and reading one. */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "provider/jmap.h"

/* Mails in an answer; a page has fewer. Of more the server was not asked, and finding each would
 * take time. */
#define MAILS_MAX 1000

/* What a server may make of a mail's line in a list: a header has no lines longer than 998 bytes,
 * and whatever is longer was not written for people. A page ends early where its mails take more
 * than PAGE_MAX_BYTES. */
#define LINE_MAX_BYTES ((size_t)4096)
#define ADDRESSES_MAX 1000
#define PAGE_MAX_BYTES ((size_t)2 << 20)

static void put_property_names(struct buf *b, const char *key, const char *const *names)
{
	json_key(b, key);
	json_begin(b, '[');
	for (; *names; names++)
		json_text(b, *names);
	json_end(b, ']');
}

/* The page after a mail begins behind it, wherever new mail has moved it to. */
int jmap_build_list(struct buf *b, const struct jmap_session *s, const char *folder,
		    const struct mail_query *q, struct problem *p)
{
	static const char *const properties[] = { "id",       "from",    "to",
						  "cc",       "subject", "receivedAt",
						  "keywords", "preview", NULL };

	assert(s->account && q->limit > 0);
	if (q->after && !jmap_id_is_valid(q->after))
		return problem_set(p, LAPSE_EINVAL, "after", "after is not a cursor of this list");
	jmap_begin(b, JMAP_MAIL);
	jmap_begin_call(b, "Email/query");
	json_put_text(b, "accountId", s->account);
	if (folder) {
		json_key(b, "filter");
		json_begin(b, '{');
		json_put_text(b, "inMailbox", folder);
		json_end(b, '}');
	}
	json_put_raw(b, "sort", "[{\"property\":\"receivedAt\",\"isAscending\":false}]");
	if (q->after) {
		json_put_text(b, "anchor", q->after);
		json_put_int(b, "anchorOffset", 1);
	} else {
		json_put_int(b, "position", 0);
	}
	json_put_int(b, "limit", q->limit + 1);
	json_put_bool(b, "calculateTotal", true);
	jmap_end_call(b, "q");
	jmap_begin_call(b, "Email/get");
	json_put_text(b, "accountId", s->account);
	jmap_put_reference(b, "#ids", "q", "Email/query", "/ids");
	put_property_names(b, "properties", properties);
	jmap_end_call(b, "g");
	jmap_end(b);
	return LAPSE_OK;
}

static void mark_seen(struct buf *b, const struct jmap_session *s, const char *id)
{
	jmap_begin_call(b, "Email/set");
	json_put_text(b, "accountId", s->account);
	json_key(b, "update");
	json_begin(b, '{');
	json_key(b, id);
	json_begin(b, '{');
	json_put_bool(b, "keywords/$seen", true);
	json_end(b, '}');
	json_end(b, '}');
	jmap_end_call(b, "m");
}

void jmap_build_get(struct buf *b, const struct jmap_session *s, const char *id, bool mark)
{
	static const char *const properties[] = { "id",       "from",       "to",         "cc",
						  "subject",  "receivedAt", "keywords",   "preview",
						  "textBody", "htmlBody",   "bodyValues", NULL };
	static const char *const part[] = { "partId", "type", NULL };
	const char *const ids[] = { id, NULL };

	jmap_begin(b, JMAP_MAIL);
	if (mark)
		mark_seen(b, s, id);
	jmap_begin_call(b, "Email/get");
	json_put_text(b, "accountId", s->account);
	put_property_names(b, "ids", ids);
	put_property_names(b, "properties", properties);
	put_property_names(b, "bodyProperties", part);
	json_put_bool(b, "fetchTextBodyValues", true);
	json_put_bool(b, "fetchHTMLBodyValues", true);
	json_put_int(b, "maxBodyValueBytes", JMAP_BODY_MAX_BYTES);
	jmap_end_call(b, "g");
	jmap_end(b);
}

/* One mail */

/* A copy that is one text to the end: NUL, which a sender may have written, becomes a blank. */
static const char *copy_text(const json_t *text, struct arena *arena)
{
	const size_t n = json_string_length(text);
	char *copy = arena_strndup(arena, json_string_value(text), n);

	for (char *c = copy; (c = memchr(c, '\0', n - (size_t)(c - copy)));)
		*c = ' ';
	return copy;
}

/* The same, cut where it is longer than a line may be, between two characters. */
static const char *copy_line(const json_t *text, struct arena *arena)
{
	const char *bytes = json_string_value(text);
	size_t n = json_string_length(text);

	if (n <= LINE_MAX_BYTES)
		return copy_text(text, arena);
	n = LINE_MAX_BYTES;
	while (n > 0 && ((unsigned char)bytes[n] & 0xc0) == 0x80)
		n--;
	json_t *cut = json_stringn(bytes, n);
	const char *copy = copy_text(cut, arena);
	json_decref(cut);
	return copy;
}

/* What has no address (a group's name) is left out, and so is what is no address at all. */
static struct mail_addresses take_jmap_addresses(const json_t *list, struct arena *arena)
{
	struct mail_addresses a = { 0 };
	size_t n = json_array_size(list), max = n < ADDRESSES_MAX ? n : ADDRESSES_MAX;
	const char **items = arena_alloc(arena, (max + 1) * sizeof(*items));
	json_t *entry;
	size_t i;

	json_array_foreach (list, i, entry) {
		const json_t *email = json_object_get(entry, "email");
		if (json_string_length(email) > 0 && a.count < max)
			items[a.count++] = copy_line(email, arena);
	}
	a.items = items;
	return a;
}

static const char *take_jmap_text(const json_t *email, const char *key, struct arena *arena)
{
	const json_t *text = json_object_get(email, key);

	return json_is_string(text) ? copy_line(text, arena) : "";
}

static void take_mail(const json_t *email, struct arena *arena, struct mail *m)
{
	struct mail_addresses from = take_jmap_addresses(json_object_get(email, "from"), arena);
	const char *at = json_string_value(json_object_get(email, "receivedAt"));

	*m = (struct mail){ .id = take_jmap_text(email, "id", arena),
			    .from = from.count > 0 ? from.items[0] : "",
			    .subject = take_jmap_text(email, "subject", arena),
			    .to = take_jmap_addresses(json_object_get(email, "to"), arena),
			    .cc = take_jmap_addresses(json_object_get(email, "cc"), arena),
			    .preview = take_jmap_text(email, "preview", arena) };
	if (!at || !time_parse(at, &m->received_at))
		m->received_at = 0;
	m->read = json_is_true(json_object_get(json_object_get(email, "keywords"), "$seen"));
}

/* The parts of one kind, one after another. An HTML-only mail lists its HTML among the text parts,
 * so the type decides. NULL = there is none. */
static const char *take_jmap_body(const json_t *email, const char *parts, const char *type,
				  struct arena *arena, bool *truncated)
{
	const json_t *values = json_object_get(email, "bodyValues");
	struct buf CLEANUP(buf_done) text = { 0 };
	bool found = false;
	json_t *part;
	size_t i;

	json_array_foreach (json_object_get(email, parts), i, part) {
		const char *id = json_string_value(json_object_get(part, "partId"));
		const char *is = json_string_value(json_object_get(part, "type"));
		const json_t *v = id ? json_object_get(values, id) : NULL;
		const json_t *value = json_object_get(v, "value");
		if (!is || strcasecmp(is, type) != 0 || !json_is_string(value))
			continue;
		found = true;
		*truncated = *truncated || json_is_true(json_object_get(v, "isTruncated"));
		if (text.len + json_string_length(value) >= JMAP_TEXT_MAX_BYTES) {
			*truncated = true;
			break;
		}
		if (text.len > 0 && text.data[text.len - 1] != '\n')
			buf_putc(&text, '\n');
		buf_puts(&text, copy_text(value, arena));
	}
	return found ? arena_strdup(arena, buf_text(&text)) : NULL;
}

int jmap_parse_get(const json_t *answer, struct arena *arena, struct mail **ret, struct problem *p)
{
	json_t *args;
	int r = jmap_find(answer, "Email/get", "g", &args, p);

	if (r < 0)
		return r;
	const json_t *email = json_array_get(json_object_get(args, "list"), 0);
	if (!json_is_object(email))
		return problem_set(p, LAPSE_ENOTFOUND, NULL, "no such mail in this mailbox");
	struct mail *m = arena_alloc(arena, sizeof(*m));
	take_mail(email, arena, m);
	m->text = take_jmap_body(email, "textBody", "text/plain", arena, &m->truncated);
	m->html = take_jmap_body(email, "htmlBody", "text/html", arena, &m->truncated);
	*ret = m;
	return LAPSE_OK;
}

/* A page */

static const json_t *find_email(const json_t *list, const char *id)
{
	json_t *email;
	size_t i;

	json_array_foreach (list, i, email) {
		const char *is = json_string_value(json_object_get(email, "id"));
		if (is && strcmp(is, id) == 0)
			return email;
	}
	return NULL;
}

static size_t addresses_bytes(const struct mail_addresses *a)
{
	size_t n = 0;

	for (size_t i = 0; i < a->count; i++)
		n += strlen(a->items[i]);
	return n;
}

static size_t mail_bytes(const struct mail *m)
{
	return strlen(m->subject) + strlen(m->preview) + strlen(m->from) + strlen(m->id) +
	       addresses_bytes(&m->to) + addresses_bytes(&m->cc);
}

/* Whether an id comes a second time: each costs the server nothing and us a mail. */
static bool has_duplicates(const json_t *ids)
{
	json_t *CLEANUP(json_freep) seen = json_object(), *id;
	size_t i;

	json_array_foreach (ids, i, id) {
		const char *text = json_string_value(id);
		if (text && json_object_get(seen, text))
			return true;
		if (text)
			json_object_set_new(seen, text, json_true());
	}
	return false;
}

/* Whether a server that gives fewer than it was asked for has more all the same. */
static bool has_more(const json_t *query, size_t count, int64_t limit)
{
	const json_t *most = json_object_get(query, "limit"), *total;

	if ((int64_t)count > limit)
		return true;
	total = json_object_get(query, "total");
	return json_is_integer(most) && json_integer_value(most) <= limit &&
	       json_integer_value(most) == (int64_t)count && json_is_integer(total) &&
	       time_add(json_integer_value(json_object_get(query, "position")), (int64_t)count) <
		       json_integer_value(total);
}

static int find_both(const json_t *answer, json_t **query, json_t **get, struct problem *p)
{
	const char *error = jmap_error_type(answer, "q");

	if (error && strcmp(error, "anchorNotFound") == 0)
		return problem_set(p, LAPSE_EINVAL, "after",
				   "after is not in this list any more: begin again without it");
	int r = jmap_find(answer, "Email/query", "q", query, p);
	return r < 0 ? r : jmap_find(answer, "Email/get", "g", get, p);
}

/* Email/get answers in any order; the order is that of the ids. One that went in between is left
 * out. */
int jmap_parse_list(const json_t *answer, int64_t limit, struct arena *arena, struct jmap_list *ret,
		    struct problem *p)
{
	json_t *query = NULL, *get = NULL, *id;
	struct jmap_list l = { 0 };
	size_t i, bytes = 0;
	int r = find_both(answer, &query, &get, p);

	if (r < 0)
		return r;
	const json_t *ids = json_object_get(query, "ids"), *list = json_object_get(get, "list");
	if (!json_is_array(ids) || !json_is_array(list))
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server answered nonsense: no list of mails");
	size_t count = json_array_size(ids), shown = count;
	if (count > MAILS_MAX || json_array_size(list) > MAILS_MAX)
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server listed more mails than it was asked for");
	if (has_duplicates(ids))
		return problem_set(p, LAPSE_EUPSTREAM, NULL, "the mail server listed a mail twice");
	if ((int64_t)shown > limit)
		shown = (size_t)limit;
	l.mails = arena_alloc(arena, (shown + 1) * sizeof(*l.mails));
	json_array_foreach (ids, i, id) {
		const char *text = json_string_value(id);
		const json_t *email = text ? find_email(list, text) : NULL;
		if (i < shown && email) {
			take_mail(email, arena, &l.mails[l.count]);
			bytes += mail_bytes(&l.mails[l.count++]);
		}
		if (i < shown && text && bytes > PAGE_MAX_BYTES && i + 1 < count) {
			l.next = arena_strdup(arena, text);
			break;
		}
		if (i + 1 == shown && text && has_more(query, count, limit))
			l.next = arena_strdup(arena, text);
	}
	*ret = l;
	return LAPSE_OK;
}
