/* SPDX-License-Identifier: Apache-2.0 */
#include "lmtp/delivery.h"

#include <assert.h>
#include <string.h>

#include "attachment/attachment.h"
#include "base/json.h"

#define STORE_FAILED "4.3.0 the mail could not be stored, try again"

struct delivery *delivery_new(struct engine *e, struct lmtp_session *s)
{
	struct delivery *d = mem_zalloc(1, sizeof(*d));

	assert(s->state == LMTP_BUSY && s->recipients_count > 0);
	d->magic = DELIVERY_MAGIC;
	d->engine = e;
	list_init(&d->link);
	arena_init(&d->arena);
	d->data = s->data;
	s->data = (struct buf){ 0 };
	d->sender = arena_strdup(&d->arena, s->sender);
	d->recipients_count = s->recipients_count;
	for (size_t i = 0; i < s->recipients_count; i++)
		d->recipients[i] = arena_strdup(&d->arena, s->recipients[i]);
	return d;
}

void delivery_refuse(struct delivery *d, int code, const char *text)
{
	for (size_t i = 0; i < d->recipients_count; i++)
		d->results[i] = (struct lmtp_result){ code, text };
}

/* Whose files they are */

static void delivery_add_owner(struct delivery *d, const struct local_target *t)
{
	size_t i = 0;

	while (i < d->owners_count && strcmp(d->owners[i].owner, t->owner) != 0)
		i++;
	if (i == d->owners_count)
		d->owners[d->owners_count++] = (struct delivery_owner){ .owner = t->owner };
	if (t->expires_at > d->owners[i].expires_at)
		d->owners[i].expires_at = t->expires_at;
}

/* Short reads outside a transaction; the transaction looks again. */
static int delivery_find_owners(struct delivery *d, lapse_ms now)
{
	struct local_target t;
	int r = LAPSE_OK;

	for (size_t i = 0; r >= 0 && i < d->recipients_count; i++) {
		r = local_find(d->engine->db, d->recipients[i], now, &d->arena, &t);
		if (r > 0)
			delivery_add_owner(d, &t);
	}
	return r < 0 ? r : LAPSE_OK;
}

/* The files */

static void delivery_write_files(struct offload *o) /* on a worker */
{
	struct delivery *d = CONTAINER_OF(o, struct delivery, offload);
	const struct mime_mail *m = &d->mail;

	for (size_t i = 0; d->err == LAPSE_OK && i < d->owners_count; i++)
		for (size_t k = 0; d->err == LAPSE_OK && k < m->files_count; k++) {
			struct blob *b = &d->owners[i].blobs[k];
			d->err = blob_write(b, m->files[k].bytes, m->files[k].size, &d->problem);
			if (d->err == LAPSE_OK)
				d->err = blob_finish(b, &d->problem);
		}
}

static const char *delivery_files_json(struct delivery *d)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	json_begin(&out, '[');
	for (size_t k = 0; d->owners_count > 0 && k < d->mail.files_count; k++) {
		const struct mime_file *f = &d->mail.files[k];
		json_begin(&out, '{');
		json_put_text(&out, "checksum", d->owners[0].blobs[k].checksum);
		json_put_text(&out, "name", f->name);
		json_put_int(&out, "size", (int64_t)f->size);
		json_put_text(&out, "type", f->type);
		json_end(&out, '}');
	}
	json_end(&out, ']');
	return arena_strndup(&d->arena, out.data, out.len);
}

static void delivery_is_ready(struct delivery *d)
{
	d->state = DELIVERY_READY;
	d->ready(d);
}

static void delivery_files_written(struct offload *o)
{
	struct delivery *d = CONTAINER_OF(o, struct delivery, offload);

	assert(d->magic == DELIVERY_MAGIC && d->state == DELIVERY_FILING);
	if (d->err < 0)
		delivery_refuse(d, 452, "4.3.1 the files of the mail could not be stored");
	else
		d->files_json = delivery_files_json(d);
	delivery_is_ready(d);
}

static void delivery_make_blobs(struct delivery *d, lapse_ms now)
{
	const struct settings *set = d->engine->settings;
	const size_t n = d->mail.files_count;

	for (size_t i = 0; i < d->owners_count; i++) {
		d->owners[i].blobs = arena_alloc(&d->arena, n * sizeof(struct blob));
		for (size_t k = 0; k < n; k++)
			blob_init(&d->owners[i].blobs[k], set->data_dir,
				  id_next(&d->engine->ids, now), set->attachment_max_bytes,
				  strcmp(set->sqlite_synchronous, "off") != 0);
	}
}

/* Taking it apart */

static void delivery_parse(struct offload *o) /* on a worker */
{
	struct delivery *d = CONTAINER_OF(o, struct delivery, offload);

	d->err = mime_parse(buf_text(&d->data), d->data.len, &d->mail, &d->problem);
	buf_done(&d->data);
}

static void delivery_parsed(struct offload *o)
{
	struct delivery *d = CONTAINER_OF(o, struct delivery, offload);
	const lapse_ms now = clock_wall(d->engine->clock);

	assert(d->magic == DELIVERY_MAGIC && d->state == DELIVERY_PARSING);
	d->parsed = true;
	if (d->err < 0) {
		delivery_refuse(d, 554, arena_printf(&d->arena, "5.6.0 %s", d->problem.message));
		delivery_is_ready(d);
		return;
	}
	if (d->mail.files_count == 0) {
		delivery_is_ready(d);
		return;
	}
	d->err = delivery_find_owners(d, now);
	if (d->err < 0) {
		delivery_refuse(d, 451, STORE_FAILED);
		delivery_is_ready(d);
		return;
	}
	delivery_make_blobs(d, now);
	d->state = DELIVERY_FILING;
	d->offload =
		(struct offload){ .work = delivery_write_files, .done = delivery_files_written };
	offload_start(d->engine, &d->offload);
}

void delivery_start(struct delivery *d)
{
	assert(d->magic == DELIVERY_MAGIC && d->state == DELIVERY_NEW && d->ready);
	d->state = DELIVERY_PARSING;
	d->offload = (struct offload){ .work = delivery_parse, .done = delivery_parsed };
	offload_start(d->engine, &d->offload);
}

/* The transaction */

/* Runs `body` in a step of its own; an error that only this step has is undone and returned in
 * *ret, others end the transaction. */
static int delivery_step(struct delivery *d, struct tx *tx, size_t i,
			 int (*body)(struct delivery *d, struct tx *tx, size_t i), int *ret)
{
	int r = tx_step_begin(tx);

	if (r < 0)
		return r;
	*ret = body(d, tx, i);
	if (*ret == LAPSE_ERETRY || !db_in_transaction(tx->db))
		return *ret < 0 ? *ret : LAPSE_EUNAVAILABLE;
	return *ret < 0 ? tx_step_undo(tx) : tx_step_end(tx);
}

static void delivery_staged(void *arg, const struct attachment *a)
{
	(void)arg;
	(void)a;
}

/* As long as the mailbox lives; one that is held is past its time and counts as a day. */
static lapse_ms delivery_ttl(const struct delivery *d, const struct delivery_owner *o, lapse_ms now)
{
	lapse_ms left = time_sub(o->expires_at, now);

	if (left <= 0)
		left = d->engine->settings->attachment_ttl_ms;
	return left < ATTACHMENT_TTL_MAX_MS ? left : ATTACHMENT_TTL_MAX_MS;
}

static int delivery_stage(struct delivery *d, struct tx *tx, size_t i)
{
	struct delivery_owner *o = &d->owners[i];
	int r = LAPSE_OK;

	for (size_t k = 0; r == LAPSE_OK && k < d->mail.files_count; k++) {
		struct attachment_draft draft = { .name = d->mail.files[k].name,
						  .terms = { false, delivery_ttl(d, o, tx->now) } };
		r = attachment_stage(tx, o->owner, &o->blobs[k], &draft, delivery_staged, NULL,
				     &d->problem);
	}
	return r;
}

static int delivery_store(struct delivery *d, struct tx *tx, size_t i)
{
	const struct mime_mail *m = &d->mail;
	const struct local_mail mail = { .sender = m->from[0] ? m->from : d->sender,
					 .subject = m->subject,
					 .recipients = local_pack(&tx->arena, &m->to),
					 .cc = local_pack(&tx->arena, &m->cc),
					 .preview = local_preview(&tx->arena, m->text, m->html),
					 .body = m->text || m->html ? m->text : "",
					 .html = m->html,
					 .files = d->files_json,
					 .truncated = m->truncated };
	struct local_target t;
	int64_t id = 0;
	int r = local_find(tx->db, d->recipients[i], tx->now, &tx->arena, &t);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	for (size_t k = 0; k < d->owners_count; k++)
		if (strcmp(d->owners[k].owner, t.owner) == 0 && d->owners[k].result.code)
			return LAPSE_ELIMIT; /* its files did not fit */
	return local_store(tx, &t, MAIL_INBOX, &mail, &id, &d->problem);
}

static struct lmtp_result delivery_result(int err)
{
	switch (err) {
	case LAPSE_OK:
		return (struct lmtp_result){ 250, "2.1.5 delivered" };
	case LAPSE_ENOTFOUND:
		return (struct lmtp_result){ 550, "5.1.1 no live mailbox has this address" };
	case LAPSE_ELIMIT:
		return (struct lmtp_result){ 452, "4.2.2 the mailbox is full" };
	default:
		return (struct lmtp_result){ 451, STORE_FAILED };
	}
}

int delivery_run(struct delivery *d, struct tx *tx)
{
	int r = LAPSE_OK, err = LAPSE_OK;

	assert(d->magic == DELIVERY_MAGIC && d->state == DELIVERY_READY && tx->write);
	if (d->err < 0) /* refused before */
		return LAPSE_OK;
	for (size_t i = 0; r == LAPSE_OK && i < d->owners_count; i++) {
		r = delivery_step(d, tx, i, delivery_stage, &err);
		d->owners[i].result = err < 0 ? delivery_result(err) : (struct lmtp_result){ 0 };
	}
	for (size_t i = 0; r == LAPSE_OK && i < d->recipients_count; i++) {
		r = delivery_step(d, tx, i, delivery_store, &err);
		d->results[i] = delivery_result(err);
	}
	return r;
}

/* The end */

static void delivery_discard(struct offload *o) /* on a worker */
{
	struct delivery *d = CONTAINER_OF(o, struct delivery, offload);

	for (size_t i = 0; i < d->owners_count; i++)
		for (size_t k = 0; k < d->mail.files_count; k++)
			blob_discard(&d->owners[i].blobs[k]);
}

static void delivery_free(struct offload *o)
{
	struct delivery *d = CONTAINER_OF(o, struct delivery, offload);

	if (d->parsed)
		mime_done(&d->mail);
	buf_done(&d->data);
	arena_done(&d->arena);
	d->magic = 0;
	free(d);
}

void delivery_release(struct delivery *d)
{
	assert(d->magic == DELIVERY_MAGIC && !list_is_linked(&d->link));
	d->state = DELIVERY_RELEASING;
	d->offload = (struct offload){ .work = delivery_discard, .done = delivery_free };
	if (d->owners_count > 0)
		offload_start(d->engine, &d->offload);
	else
		delivery_free(&d->offload);
}
