/* SPDX-License-Identifier: Apache-2.0 */
/* JMAP: sending a mail, and finding out whether it went. */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "provider/jmap.h"

/* Building */

static void put_mail_header(struct buf *b, const char *key, const struct mail_addresses *a)
{
	if (a->count == 0)
		return;
	json_key(b, key);
	json_begin(b, '[');
	for (size_t i = 0; i < a->count; i++) {
		json_begin(b, '{');
		json_put_text(b, "email", a->items[i]);
		json_end(b, '}');
	}
	json_end(b, ']');
}

static bool is_named_before(const struct mail_addresses *const *lists, size_t list, size_t item)
{
	const char *address = lists[list]->items[item];

	for (size_t l = 0; l <= list; l++)
		for (size_t i = 0; i < (l == list ? item : lists[l]->count); i++)
			if (strcasecmp(lists[l]->items[i], address) == 0)
				return true;
	return false;
}

/* Everybody once. Who gets a blind copy stands here and nowhere else: servers do not all take a
 * Bcc header out again. */
static void put_envelope(struct buf *b, const char *from, const struct mail_draft *d)
{
	const struct mail_addresses *const lists[] = { &d->to, &d->cc, &d->bcc };

	json_key(b, "envelope");
	json_begin(b, '{');
	json_key(b, "mailFrom");
	json_begin(b, '{');
	json_put_text(b, "email", from);
	json_end(b, '}');
	json_key(b, "rcptTo");
	json_begin(b, '[');
	for (size_t l = 0; l < ARRAY_LEN(lists); l++)
		for (size_t i = 0; i < lists[l]->count; i++)
			if (!is_named_before(lists, l, i)) {
				json_begin(b, '{');
				json_put_text(b, "email", lists[l]->items[i]);
				json_end(b, '}');
			}
	json_end(b, ']');
	json_end(b, '}');
}

static void put_body_value(struct buf *b, const char *part, const char *text)
{
	if (!text)
		return;
	json_key(b, part);
	json_begin(b, '{');
	json_put_text(b, "value", text);
	json_end(b, '}');
}

static void put_bodies(struct buf *b, const struct mail_draft *d)
{
	const char *text = d->text || d->html ? d->text : "";

	json_key(b, "bodyValues");
	json_begin(b, '{');
	put_body_value(b, "t", text);
	put_body_value(b, "h", d->html);
	json_end(b, '}');
	if (text)
		json_put_raw(b, "textBody", "[{\"partId\":\"t\",\"type\":\"text/plain\"}]");
	if (d->html)
		json_put_raw(b, "htmlBody", "[{\"partId\":\"h\",\"type\":\"text/html\"}]");
}

static void put_draft(struct buf *b, const char *folder, const char *address,
		      const struct mail_draft *d)
{
	const struct mail_addresses from = { &address, 1 };

	json_key(b, "mailboxIds");
	json_begin(b, '{');
	json_put_bool(b, folder, true);
	json_end(b, '}');
	json_put_raw(b, "keywords", "{\"$draft\":true,\"$seen\":true}");
	put_mail_header(b, "from", &from);
	put_mail_header(b, "to", &d->to);
	put_mail_header(b, "cc", &d->cc);
	json_put_text(b, "subject", d->subject ? d->subject : "");
	put_bodies(b, d);
}

/* Once it is sent: no draft any more, and in the folder of what was sent. */
static void put_on_success(struct buf *b, const char *from, const char *to)
{
	char key[JMAP_ID_MAX + 16];

	json_key(b, "onSuccessUpdateEmail");
	json_begin(b, '{');
	json_key(b, "#s");
	json_begin(b, '{');
	json_put_raw(b, "keywords/$draft", NULL);
	if (to && strcmp(from, to) != 0) {
		snprintf(key, sizeof(key), "mailboxIds/%s", from);
		json_put_raw(b, key, NULL);
		snprintf(key, sizeof(key), "mailboxIds/%s", to);
		json_put_bool(b, key, true);
	}
	json_end(b, '}');
	json_end(b, '}');
}

void jmap_build_send(struct buf *b, const struct jmap_session *s, const struct jmap_folders *f,
		     const char *address, const struct mail_draft *draft)
{
	const char *folder = f->ids[MAIL_DRAFTS] ? f->ids[MAIL_DRAFTS]
			     : f->ids[MAIL_SENT] ? f->ids[MAIL_SENT]
						 : f->ids[MAIL_INBOX];

	jmap_begin(b, JMAP_MAIL);
	jmap_begin_call(b, "Email/set");
	json_put_text(b, "accountId", s->account);
	json_key(b, "create");
	json_begin(b, '{');
	json_key(b, "d");
	json_begin(b, '{');
	put_draft(b, folder, address, draft);
	json_end(b, '}');
	json_end(b, '}');
	jmap_end_call(b, "e");
	jmap_begin_call(b, "EmailSubmission/set");
	json_put_text(b, "accountId", s->submission ? s->submission : s->account);
	json_key(b, "create");
	json_begin(b, '{');
	json_key(b, "s");
	json_begin(b, '{');
	json_put_text(b, "emailId", "#d");
	json_put_text(b, "identityId", f->identity);
	put_envelope(b, address, draft);
	json_end(b, '}');
	json_end(b, '}');
	put_on_success(b, folder, f->ids[MAIL_SENT]);
	jmap_end_call(b, "s");
	jmap_end(b);
}

void jmap_build_delivery(struct buf *b, const struct jmap_session *s, const char *submission)
{
	assert(jmap_id_is_valid(submission));
	jmap_begin(b, JMAP_MAIL);
	jmap_begin_call(b, "EmailSubmission/get");
	json_put_text(b, "accountId", s->submission ? s->submission : s->account);
	json_key(b, "ids");
	json_begin(b, '[');
	json_text(b, submission);
	json_end(b, ']');
	json_put_raw(b, "properties", "[\"id\",\"undoStatus\",\"deliveryStatus\"]");
	jmap_end_call(b, "d");
	jmap_end(b);
}

void jmap_build_discard(struct buf *b, const struct jmap_session *s, const char *email)
{
	assert(jmap_id_is_valid(email)); /* what is destroyed is what we made */
	jmap_begin(b, JMAP_MAIL);
	jmap_begin_call(b, "Email/set");
	json_put_text(b, "accountId", s->account);
	json_key(b, "destroy");
	json_begin(b, '[');
	json_text(b, email);
	json_end(b, ']');
	jmap_end_call(b, "x");
	jmap_end(b);
}

/* Judging */

/* Why a draft was not made: which of its fields the server did not like. */
static int judge_draft(const json_t *set, const char *type, struct problem *p)
{
	static const struct {
		const char *property, *field;
	} fields[] = { { "to", "to" }, { "cc", "cc" }, { "subject", "subject" } };
	const json_t *e = json_object_get(json_object_get(set, "notCreated"), "d");
	const char *property =
		json_string_value(json_array_get(json_object_get(e, "properties"), 0));

	if (strcmp(type, "tooLarge") == 0)
		return problem_set(p, LAPSE_EINVAL, "body",
				   "body is larger than the mail server allows");
	for (size_t i = 0; property && i < ARRAY_LEN(fields); i++)
		if (strcmp(type, "invalidProperties") == 0 &&
		    strcmp(property, fields[i].property) == 0)
			return problem_set(p, LAPSE_EINVAL, fields[i].field,
					   "%s was refused by the mail server", fields[i].field);
	return problem_set(p, LAPSE_EUPSTREAM, NULL, "the mail server did not take the mail: %.60s",
			   type);
}

static int judge_submission(const json_t *set, const char *type, struct problem *p)
{
	const json_t *e = json_object_get(json_object_get(set, "notCreated"), "s");
	const char *who =
		json_string_value(json_array_get(json_object_get(e, "invalidRecipients"), 0));

	if (strcmp(type, "invalidRecipients") == 0)
		return problem_set(p, LAPSE_EINVAL, "to",
				   "the mail server refused the recipient %.120s; the mail was not "
				   "sent to anyone",
				   who ? who : "(it did not say which)");
	if (strcmp(type, "tooManyRecipients") == 0)
		return problem_set(
			p, LAPSE_EINVAL, "to",
			"to, cc and bcc are more recipients than the mail server allows");
	if (strcmp(type, "tooLarge") == 0)
		return problem_set(p, LAPSE_EINVAL, "body",
				   "body is larger than the mail server allows");
	return problem_set(p, LAPSE_EUPSTREAM, NULL, "the mail server did not send the mail: %.60s",
			   type);
}

/* An SMTP reply of the 5xx kind, or plainly "no". */
static bool is_refused(const json_t *status)
{
	const char *delivered = json_string_value(json_object_get(status, "delivered"));
	const char *reply = json_string_value(json_object_get(status, "smtpReply"));

	return (delivered && strcmp(delivered, "no") == 0) || (reply && reply[0] == '5');
}

static int judge_recipients(const json_t *statuses, struct jmap_sent *sent, struct problem *p)
{
	const char *who, *refused = NULL;
	size_t count = 0;
	json_t *status;

	json_object_foreach ((json_t *)statuses, who, status)
		if (is_refused(status)) {
			refused = refused ? refused : who;
			count++;
		}
	if (!refused)
		return LAPSE_OK;
	sent->discard = count == json_object_size(statuses);
	const char *reply =
		json_string_value(json_object_get(json_object_get(statuses, refused), "smtpReply"));
	return problem_set(
		p, LAPSE_EINVAL, "to", "the mail server refused the recipient %.100s (%.60s); %s",
		refused, reply ? reply : "it did not say why",
		sent->discard ? "the mail was not sent to anyone" : "the others get the mail");
}

static const char *created_id(const json_t *set, const char *key, struct arena *arena)
{
	const json_t *made = json_object_get(json_object_get(set, "created"), key);
	const char *id = json_string_value(json_object_get(made, "id"));

	return id && jmap_id_is_valid(id) ? arena_strdup(arena, id) : NULL;
}

/* The order matters: method errors, then what was not created, then what was. */
int jmap_parse_send(const json_t *answer, struct arena *arena, struct jmap_sent *ret,
		    struct problem *p)
{
	json_t *email, *submission;
	const char *type;
	int r = jmap_find(answer, "Email/set", "e", &email, p);

	*ret = (struct jmap_sent){ 0 };
	if (r < 0)
		return r;
	if ((type = jmap_set_error(email, "notCreated", "d")))
		return judge_draft(email, type, p);
	ret->email = created_id(email, "d", arena);
	ret->discard = jmap_error_type(answer, "s") != NULL;
	r = jmap_find(answer, "EmailSubmission/set", "s", &submission, p);
	if (r < 0)
		return r;
	if ((type = jmap_set_error(submission, "notCreated", "s"))) {
		ret->discard = true;
		return judge_submission(submission, type, p);
	}
	ret->submission = created_id(submission, "s", arena);
	if (!ret->email || !ret->submission)
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server answered nonsense: whether the mail was sent "
				   "cannot be told");
	assert(!ret->discard); /* it was sent */
	const json_t *made = json_object_get(json_object_get(submission, "created"), "s");
	const json_t *statuses = json_object_get(made, "deliveryStatus");
	ret->ask = !statuses;
	return judge_recipients(statuses, ret, p);
}

int jmap_parse_delivery(const json_t *answer, struct jmap_sent *sent, struct problem *p)
{
	json_t *args;
	struct problem ignored;

	if (jmap_find(answer, "EmailSubmission/get", "d", &args, &ignored) < 0)
		return LAPSE_OK;
	const json_t *s = json_array_get(json_object_get(args, "list"), 0);
	return judge_recipients(json_object_get(s, "deliveryStatus"), sent, p);
}
