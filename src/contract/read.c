/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the nodes of a file to a contract. Every mapping of the format is a table of fields; the
 * tables decide what is unknown, missing, or nearly right.
 */
#include "contract/read.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

static const struct field SCHEDULER_FIELDS[] = {
	{ "every", decode_duration, offsetof(struct contract_scheduler, every), true },
	{ 0 },
};

static int decode_schedulers(struct reader *r, const struct node *n)
{
	struct contract *c = r->c;

	if (n->kind != NODE_MAP || n->count == 0 || n->count > CONTRACT_SCHEDULERS_MAX)
		return refuse(r, n, "'schedulers' must be a mapping of 1 to %d schedulers",
			      CONTRACT_SCHEDULERS_MAX);
	for (const struct node *i = n->first; i; i = i->next) {
		struct contract_scheduler *s = &c->schedulers[c->schedulers_count++];
		int err = decode_label(r, i->key, false, &s->name);
		if (err == LAPSE_OK)
			err = decode_map(r, i, "a scheduler", SCHEDULER_FIELDS, s);
		if (err < 0)
			return err;
		s->at = i->key;
		s->full_name = arena_printf(&c->document.arena, "%s:%s", c->name, s->name);
	}
	return LAPSE_OK;
}

int contract_database(const char *text, enum foreign_engine *ret_engine, const char **ret_target)
{
	static const char sqlite[] = "sqlite:";

	if (strncmp(text, sqlite, strlen(sqlite)) == 0 && text[strlen(sqlite)]) {
		*ret_engine = FOREIGN_SQLITE;
		*ret_target = text + strlen(sqlite);
		return LAPSE_OK;
	}
	if (strncmp(text, "postgresql://", 13) == 0 || strncmp(text, "postgres://", 11) == 0) {
		*ret_engine = FOREIGN_POSTGRES;
		*ret_target = text;
		return LAPSE_OK;
	}
	return LAPSE_EINVAL;
}

/* Replaces each ${NAME} by the environment's value. */
static int expand_environment(struct reader *r, const struct node *n, struct buf *out)
{
	for (const char *p = n->text; *p; p++) {
		if (p[0] != '$' || p[1] != '{') {
			buf_putc(out, *p);
			continue;
		}
		const char *end = strchr(p, '}');
		if (!end || end == p + 2)
			return refuse(r, n, "'${' without a name and '}'");
		char *name = arena_strndup(&r->c->document.arena, p + 2, (size_t)(end - p - 2));
		const char *value = r->env(name);
		if (!value || !value[0])
			return refuse(r, n, "the environment variable %s is not set", name);
		buf_puts(out, value);
		p = end;
	}
	return LAPSE_OK;
}

/* The message never repeats the text: a URI may hold a password. */
static int decode_database(struct reader *r, const struct node *n)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct contract *c = r->c;
	int err = need_text(r, n);

	if (err == LAPSE_OK)
		err = expand_environment(r, n, &text);
	if (err < 0)
		return err;
	c->database_at = n;
	const char *whole = arena_strdup(&c->document.arena, buf_text(&text));
	if (contract_database(whole, &c->engine, &c->database) < 0)
		return refuse(r, n, "'database' must be sqlite:/path/to/file or postgresql://…");
	return LAPSE_OK;
}

struct top {
	const struct node *version, *database, *schedulers, *bounds, *defaults;
	const char *name;
};

static const struct field TOP_FIELDS[] = {
	{ "contract", decode_node, offsetof(struct top, version), true },
	{ "name", decode_name, offsetof(struct top, name), true },
	{ "database", decode_node, offsetof(struct top, database), true },
	{ "schedulers", decode_node, offsetof(struct top, schedulers), true },
	{ "bounds", decode_node, offsetof(struct top, bounds), true },
	{ "defaults", decode_node, offsetof(struct top, defaults), false },
	{ 0 },
};

/* The order is that of what depends on what, not that of the file. */
static int decode_contract(struct reader *r)
{
	struct contract_pace pace = PACE_DEFAULT;
	struct top top = { 0 };
	int err = decode_map(r, r->c->document.root, "a contract", TOP_FIELDS, &top);

	if (err < 0)
		return err;
	r->c->name = top.name;
	if (top.version->kind != NODE_SCALAR || strcmp(top.version->text, "1") != 0)
		return refuse(r, top.version, "this version of lapse reads 'contract: 1'");
	err = decode_database(r, top.database);
	if (err == LAPSE_OK && top.defaults)
		err = decode_map(r, top.defaults, "'defaults'", DEFAULTS_FIELDS, &pace);
	if (err == LAPSE_OK)
		err = decode_schedulers(r, top.schedulers);
	if (err == LAPSE_OK)
		err = decode_bounds(r, top.bounds, &pace);
	return err;
}

static int contract_finish(struct contract *c, int err, contract_env_fn *env, struct contract **ret,
			   struct buf *error)
{
	struct reader r = { .c = c, .env = env, .error = error };

	if (err == LAPSE_OK)
		err = decode_contract(&r);
	if (err < 0) {
		contract_free(c);
		return err;
	}
	assert(c->bounds_count > 0 && c->schedulers_count > 0);
	*ret = c;
	return LAPSE_OK;
}

int contract_read(const char *file, contract_env_fn *env, struct contract **ret, struct buf *error)
{
	struct contract *c = mem_zalloc(1, sizeof(*c));

	return contract_finish(c, document_read(&c->document, file, error), env, ret, error);
}

int contract_parse(const char *file, const char *text, size_t size, contract_env_fn *env,
		   struct contract **ret, struct buf *error)
{
	struct contract *c = mem_zalloc(1, sizeof(*c));

	return contract_finish(c, document_parse(&c->document, file, text, size, error), env, ret,
			       error);
}

void contract_free(struct contract *c)
{
	if (!c)
		return;
	document_done(&c->document);
	free(c->bounds);
	free(c);
}

void contract_freep(struct contract **c)
{
	contract_free(*c);
}

const struct contract_bound *contract_find(const struct contract *c, const char *name)
{
	for (size_t i = 0; i < c->bounds_count; i++)
		if (strcmp(c->bounds[i].name, name) == 0)
			return &c->bounds[i];
	return NULL;
}

/* Appends a subtree in one form, whatever style it was written in. */
static void hash_node(struct buf *out, const struct node *n)
{
	buf_printf(out, "%d%d", (int)n->kind, n->kind == NODE_SCALAR && n->plain);
	if (n->key)
		buf_printf(out, "%zu:%s", strlen(n->key->text), n->key->text);
	if (n->text)
		buf_printf(out, "=%zu:%s", strlen(n->text), n->text);
	buf_putc(out, '(');
	for (const struct node *i = n->first; i; i = i->next)
		hash_node(out, i);
	buf_putc(out, ')');
}

uint64_t contract_bound_hash(const struct contract *c, const struct contract_bound *b)
{
	struct buf CLEANUP(buf_done) text = { 0 };

	buf_printf(&text, "%s\n%s\n", b->name, c->database);
	for (const struct node *n = b->at->first; n; n = n->next)
		if (!reader_field(DEFAULTS_FIELDS, n->key->text) &&
		    strcmp(n->key->text, "scheduler") != 0)
			hash_node(&text, n);
	return XXH3_64bits(text.data, text.len);
}
