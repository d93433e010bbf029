/* SPDX-License-Identifier: Apache-2.0 */
#include "mailbox/mail.h"

#include <string.h>

#include "base/address.h"
#include "mailbox/outside.h"

/* What may be asked for */

int mail_folder_parse(const char *name, enum mail_folder *ret, struct problem *p)
{
	static const char *const names[] = {
#define X(folder, text) [MAIL_##folder] = text,
		MAIL_FOLDERS(X)
#undef X
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(names[i], name) == 0) {
			*ret = (enum mail_folder)i;
			return LAPSE_OK;
		}
	return problem_set(p, LAPSE_EINVAL, "folder",
			   "folder must be inbox, sent, drafts, junk or all");
}

static int check_addresses(const char *field, const struct mail_addresses *list, struct problem *p)
{
	for (size_t i = 0; i < list->count; i++) {
		const char *why = "is required";
		if (!list->items[i] || !address_is_valid(list->items[i], &why))
			return problem_set(p, LAPSE_EINVAL, field, "%s[%zu] %s", field, i, why);
	}
	return LAPSE_OK;
}

static int check_recipients(const struct mail_draft *d, struct problem *p)
{
	const size_t max = MAIL_RECIPIENTS_MAX;

	if (d->to.count == 0)
		return problem_set(p, LAPSE_EINVAL, "to", "to must name an address");
	/* Each one first, because the sum of three huge numbers could wrap. */
	if (d->to.count > max || d->cc.count > max || d->bcc.count > max ||
	    d->to.count + d->cc.count + d->bcc.count > max)
		return problem_set(p, LAPSE_EINVAL, "to",
				   "to, cc and bcc may name %zu addresses in all", max);
	int r = check_addresses("to", &d->to, p);
	if (r == LAPSE_OK)
		r = check_addresses("cc", &d->cc, p);
	return r == LAPSE_OK ? check_addresses("bcc", &d->bcc, p) : r;
}

int mail_draft_check(struct mail_draft *d, struct problem *p)
{
	int r = check_recipients(d, p);

	if (r < 0)
		return r;
	if (!d->subject || strlen(d->subject) > MAIL_SUBJECT_MAX ||
	    !utf8_is_valid(d->subject, strlen(d->subject), true))
		return problem_set(p, LAPSE_EINVAL, "subject",
				   "subject must be one line of up to %d bytes of UTF-8",
				   MAIL_SUBJECT_MAX);
	if (!d->text && !d->html)
		d->text = "";
	return LAPSE_OK;
}

/* Asking */

int mail_explain(enum provider_verb verb, int err, struct problem *p)
{
	if (err == LAPSE_ENOTFOUND && (verb == PROVIDER_GET || verb == PROVIDER_READ))
		return problem_set(p, err, NULL, "there is no such message");
	return err;
}

static bool is_mail_id(const char *text)
{
	size_t n = strlen(text);

	return n <= MAIL_ID_MAX && utf8_is_valid(text, n, true);
}

static int mail_run_inside(struct tx *tx, struct provider *in, const struct mailbox *m,
			   struct provider_op *op, struct problem *p)
{
	op->who = outside_principal(m, "");
	int r = in->run(in, tx, op);
	if (r < 0)
		*p = op->problem;
	return mail_explain(op->verb, r, p);
}

int mailbox_mail(struct tx *tx, const char *owner, const char *id, struct arena *arena,
		 struct provider_op *op, struct mailbox *ret, struct problem *p)
{
	struct mailbox m;

	if ((op->verb == PROVIDER_GET || op->verb == PROVIDER_READ) && !is_mail_id(op->mail_id)) {
		op->err = LAPSE_ENOTFOUND;
		return mail_explain(op->verb, op->err, p);
	}
	int r = mailbox_look(tx, owner, id, MAILBOX_OPERATE, arena, &m, p);
	if (r != LAPSE_OK)
		return r;
	*ret = m;
	struct provider *in = mailbox_provider_of(tx->engine, &m);
	return in && in->run ? mail_run_inside(tx, in, &m, op, p) : MAIL_IS_OUTSIDE;
}
