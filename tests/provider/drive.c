/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider and the fetcher of the daemon, driven by lines of JSON: for the tests in Python.
 *
 * Settings come from the environment and the flags, as for lapsed. A line on standard input starts
 * an operation at once, whatever is under way: {"n":1,"op":"create","address":"a@b.test",
 * "secret":"…"}, and {"op":"stop"} stops the provider as the daemon does. Each operation that is
 * over is a line on standard output with its n. The end of the input ends the program when nothing
 * is under way any more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/json.h"
#include "base/mem.h"
#include "daemon/fetch.h"
#include "provider/open.h"

struct drive {
	uv_loop_t loop;
	uv_pipe_t input;
	struct fetches fetches;
	struct provider *provider;
	struct buf line;
	int under_way;
	bool ended;
};

struct operation {
	struct provider_op op;
	struct drive *drive;
	json_t *command;
	struct mail_draft draft;
	bool in_start; /* done() must not come from within start() */
};

static void end_if_over(struct drive *d)
{
	if (!d->ended || d->under_way > 0)
		return;
	fetches_close(&d->fetches);
	uv_close((uv_handle_t *)&d->input, NULL);
}

/* Output */

static void put_addresses(struct buf *b, const char *key, const struct mail_addresses *a)
{
	json_key(b, key);
	json_begin(b, '[');
	for (size_t i = 0; i < a->count; i++)
		json_text(b, a->items[i]);
	json_end(b, ']');
}

static void put_mail(struct buf *b, const struct mail *m)
{
	json_begin(b, '{');
	json_put_text(b, "id", m->id);
	json_put_text(b, "from", m->from);
	json_put_text(b, "subject", m->subject);
	put_addresses(b, "to", &m->to);
	put_addresses(b, "cc", &m->cc);
	json_put_time(b, "received_at", m->received_at);
	json_put_bool(b, "read", m->read);
	json_put_text(b, "preview", m->preview);
	json_put_text(b, "text", m->text);
	json_put_text(b, "html", m->html);
	json_put_bool(b, "truncated", m->truncated);
	json_end(b, '}');
}

static void print(const struct operation *o)
{
	const struct provider_op *op = &o->op;
	struct buf CLEANUP(buf_done) b = { 0 };

	json_begin(&b, '{');
	json_put_int(&b, "n", json_integer_value(json_object_get(o->command, "n")));
	json_put_text(&b, "err", op->err == LAPSE_OK ? "OK" : err_name(op->err));
	json_put_text(&b, "field", op->problem.field);
	json_put_text(&b, "message", op->problem.message);
	json_put_bool(&b, "unknown", op->unknown);
	json_put_text(&b, "account", op->account);
	json_put_text(&b, "next_cursor", op->next_cursor);
	json_put_text(&b, "sent_id", op->sent_id);
	json_key(&b, "mails");
	json_begin(&b, '[');
	for (size_t i = 0; i < op->mails_count; i++)
		put_mail(&b, &op->mails[i]);
	json_end(&b, ']');
	json_end(&b, '}');
	puts(buf_text(&b));
	fflush(stdout);
}

static void over(struct provider_op *op)
{
	struct operation *o = CONTAINER_OF(op, struct operation, op);
	struct drive *d = o->drive;

	if (o->in_start)
		abort();
	print(o);
	provider_op_done(op);
	json_decref(o->command);
	free(o);
	d->under_way--;
	end_if_over(d);
}

/* Input */

static const char *text(const json_t *c, const char *key, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(c, key));

	return s ? s : otherwise;
}

static struct mail_addresses addresses(struct operation *o, const char *key)
{
	const json_t *list = json_object_get(o->command, key);
	const char **items =
		arena_alloc(&o->op.arena, (json_array_size(list) + 1) * sizeof(*items));
	json_t *v;
	size_t i;

	json_array_foreach (list, i, v)
		items[i] = json_string_value(v);
	return (struct mail_addresses){ items, json_array_size(list) };
}

static enum mail_folder folder(const char *name)
{
#define X(f, t)                                                                                    \
	if (strcmp(name, t) == 0)                                                                  \
		return MAIL_##f;
	MAIL_FOLDERS(X)
#undef X
	abort();
}

static enum provider_verb verb(const char *name)
{
	static const char *const verbs[] = {
		[PROVIDER_CREATE] = "create", [PROVIDER_DELETE] = "delete",
		[PROVIDER_LIST] = "list",     [PROVIDER_GET] = "get",
		[PROVIDER_READ] = "read",     [PROVIDER_SEND] = "send",
	};

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (strcmp(name, verbs[i]) == 0)
			return (enum provider_verb)i;
	fprintf(stderr, "drive: no such operation\n");
	exit(2);
}

static void fill(struct operation *o)
{
	const json_t *c = o->command;
	struct provider_op *op = &o->op;
	const json_t *limit = json_object_get(c, "limit");

	op->who = (struct principal){ .mailbox = 1,
				      .owner = "local",
				      .address = text(c, "address", ""),
				      .name = text(c, "name", text(c, "address", "")),
				      .account = text(c, "account", ""),
				      .secret = text(c, "secret", "") };
	op->query = (struct mail_query){ .folder = folder(text(c, "folder", "inbox")),
					 .limit = limit ? json_integer_value(limit) : 20,
					 .after = text(c, "after", NULL) };
	op->mail_id = text(c, "id", "");
	o->draft = (struct mail_draft){ .to = addresses(o, "to"),
					.cc = addresses(o, "cc"),
					.bcc = addresses(o, "bcc"),
					.subject = text(c, "subject", ""),
					.text = text(c, "text", NULL),
					.html = text(c, "html", NULL) };
	op->draft = &o->draft;
	op->done = over;
}

static void run_line(struct drive *d, const char *line, size_t n)
{
	struct problem p = { 0 };
	json_t *command;

	if (json_parse_object(line, n, &command, &p) < 0) {
		fprintf(stderr, "drive: %s\n", p.message);
		exit(2);
	}
	if (strcmp(text(command, "op", ""), "stop") == 0) {
		json_decref(command);
		d->provider->stop(d->provider);
		fetches_stop(&d->fetches);
		return;
	}
	struct operation *o = mem_zalloc(1, sizeof(*o));
	o->drive = d;
	o->command = command;
	provider_op_init(&o->op, verb(text(command, "op", "")));
	fill(o);
	d->under_way++;
	o->in_start = true;
	d->provider->start(d->provider, &o->op);
	o->in_start = false;
}

static void want_memory(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
	(void)h;
	*buf = uv_buf_init(mem_alloc(size), (unsigned)size);
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct drive *d = CONTAINER_OF((uv_pipe_t *)stream, struct drive, input);
	char *end;

	if (n > 0)
		buf_add(&d->line, buf->base, (size_t)n);
	free(buf->base);
	while (d->line.data && (end = strchr(d->line.data, '\n'))) {
		size_t used = (size_t)(end - d->line.data) + 1;
		run_line(d, d->line.data, used);
		memmove(d->line.data, d->line.data + used, d->line.len - used + 1);
		d->line.len -= used;
	}
	if (n < 0) {
		uv_read_stop(stream);
		d->ended = true;
		end_if_over(d);
	}
}

int main(int argc, char **argv)
{
	struct drive *d = mem_zalloc(1, sizeof(*d));
	struct settings settings;
	struct problem p = { 0 };

	settings_init(&settings);
	uv_loop_init(&d->loop);
	int r = settings_load(&settings, argc - 1, argv + 1, environ, &p);
	if (r == LAPSE_OK)
		r = fetches_init(&d->fetches, &d->loop, &CLOCK_SYSTEM,
				 settings.stalwart_connections_max, &p);
	if (r == LAPSE_OK)
		r = provider_open(&settings, getenv("CREDENTIALS_DIRECTORY"), &d->fetches.fetcher,
				  &CLOCK_SYSTEM, &d->provider, &p);
	if (r < 0 || !d->provider) {
		fprintf(stderr, "drive: %s\n", r < 0 ? problem_text(&p, r) : "local");
		exit(2);
	}
	uv_pipe_init(&d->loop, &d->input, 0);
	uv_pipe_open(&d->input, STDIN_FILENO);
	uv_read_start((uv_stream_t *)&d->input, want_memory, on_input);
	uv_run(&d->loop, UV_RUN_DEFAULT);
	uv_loop_close(&d->loop);
	provider_free(d->provider);
	buf_done(&d->line);
	settings_done(&settings);
	free(d);
	return 0;
}
