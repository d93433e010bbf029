/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/move_table.h"

#include <assert.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/postgres/copy.h"
#include "store/sql.h"

#define COPY_BYTES ((size_t)4 << 20) /* of one transaction: what an interruption costs at most */
#define PIECE_BYTES ((size_t)64 << 10)
#define TELL_ROWS 1000 /* between two words about progress */

void move_table_done(struct move_table *t)
{
	free(t->name);
	buf_done(&t->columns);
	buf_done(&t->key);
	*t = (struct move_table){ 0 };
}

static void move_tell(const struct move_sides *s, const struct move_table *t, enum move_phase phase,
		      int64_t done, const char *checksum)
{
	const struct move_step step = { phase, t->name, done, t->rows, checksum };

	if (s->config->tell)
		s->config->tell(s->config->arg, &step);
}

/* What it looks like */

static const struct db_stmt TABLE_COLUMNS = {
	"SELECT name, type, pk FROM pragma_table_info($1) ORDER BY cid"
};

static void add_column_name(struct buf *names, const char *name)
{
	if (names->len > 0)
		buf_puts(names, ", ");
	sql_name(names, name);
}

static int describe_columns(struct db *source, struct move_table *t)
{
	struct db_query CLEANUP(db_finish) q = db_query(source, &TABLE_COLUMNS);
	char *keys[MOVE_COLUMNS_MAX] = { NULL };
	int r;

	db_bind_text(&q, 1, t->name);
	while ((r = db_step(&q)) > 0) {
		int part = (int)db_int(&q, 2);
		assert(t->columns_count < MOVE_COLUMNS_MAX && part <= MOVE_COLUMNS_MAX);
		add_column_name(&t->columns, db_text(&q, 0));
		t->is_text[t->columns_count] = strcmp(db_text(&q, 1), "TEXT") == 0;
		if (part > 0) {
			keys[part - 1] = mem_strdup(db_text(&q, 0));
			t->key_columns[part - 1] = t->columns_count;
			t->key_count++;
		}
		t->columns_count++;
	}
	for (int i = 0; i < t->key_count; i++) {
		assert(r < 0 || keys[i]);
		add_column_name(&t->key, keys[i] ? keys[i] : "?");
		free(keys[i]);
	}
	assert(r < 0 || t->key_count > 0); /* the order that resuming relies on */
	return r;
}

static int count_table(struct db *db, const char *table, int64_t *ret)
{
	struct buf CLEANUP(buf_done) sql = { 0 };

	buf_puts(&sql, "SELECT count(*) FROM ");
	sql_name(&sql, table);
	const struct db_stmt stmt = { buf_text(&sql) };
	int r;
	{
		struct db_query CLEANUP(db_finish) q = db_query(db, &stmt);
		r = db_step(&q);
		if (r > 0)
			*ret = db_int(&q, 0);
	}
	db_forget(db, stmt.sql);
	return r < 0 ? r : LAPSE_OK;
}

int move_table_describe(struct db *source, const char *name, struct move_table *t)
{
	*t = (struct move_table){ .name = mem_strdup(name) };
	int r = describe_columns(source, t);

	return r < 0 ? r : count_table(source, name, &t->rows);
}

/* Rows of the source, as lines */

struct source_rows {
	const struct move_sides *sides;
	const struct move_table *table;
	struct buf sql;
	struct db_query query;
};

static void source_rows_done(struct source_rows *s)
{
	db_finish(&s->query);
	if (s->sql.len > 0)
		db_forget(s->sides->source, buf_text(&s->sql));
	buf_done(&s->sql);
}

/* The rows whose key is larger than that of `last`, which is an answer with the key's columns; NULL
 * = all of them. `s` must not move. */
static void source_rows_start(struct source_rows *s, const struct db_query *last)
{
	const struct move_table *t = s->table;

	buf_printf(&s->sql, "SELECT %s FROM ", buf_text(&t->columns));
	sql_name(&s->sql, t->name);
	if (last) {
		buf_printf(&s->sql, " WHERE (%s) > (", buf_text(&t->key));
		for (int i = 0; i < t->key_count; i++)
			buf_printf(&s->sql, "%s$%d", i ? ", " : "", i + 1);
		buf_putc(&s->sql, ')');
	}
	buf_printf(&s->sql, " ORDER BY %s", buf_text(&t->key));
	s->query = db_query(s->sides->source, &(struct db_stmt){ buf_text(&s->sql) });
	for (int i = 0; last && i < t->key_count; i++) {
		if (t->is_text[t->key_columns[i]])
			db_bind_text(&s->query, i + 1, db_text(last, i));
		else
			db_bind_int(&s->query, i + 1, db_int(last, i));
	}
}

/* Appends the next row as a line; 1, 0 at the end, or an error. */
static int source_rows_next(struct source_rows *s, struct buf *out)
{
	int r = db_step(&s->query);

	if (r <= 0)
		return r;
	for (int i = 0; i < s->table->columns_count; i++) {
		if (i > 0)
			buf_putc(out, '\t');
		if (s->table->is_text[i] || db_is_null(&s->query, i))
			copy_put_text(out, db_text(&s->query, i));
		else
			buf_int(out, db_int(&s->query, i));
	}
	buf_putc(out, '\n');
	return 1;
}

/* Copying */

struct copying {
	struct source_rows rows;
	struct buf sql;
	struct buf piece; /* lines that are not sent yet */
	int64_t done;
};

static void copying_done(struct copying *c)
{
	source_rows_done(&c->rows);
	buf_done(&c->sql);
	buf_done(&c->piece);
}

static int send_piece(struct copying *c)
{
	int r = copy_in_put(c->rows.sides->wire, &c->piece);

	buf_clear(&c->piece);
	return r;
}

/* One transaction; 1 = there is more. */
static int copy_some(struct copying *c)
{
	const struct move_sides *s = c->rows.sides;
	size_t bytes = 0;
	int more = 1;
	int r = copy_in_begin(s->wire, buf_text(&c->sql));

	if (r < 0)
		return r;
	while (r == LAPSE_OK && more > 0 && bytes < COPY_BYTES) {
		size_t before = c->piece.len;
		more = source_rows_next(&c->rows, &c->piece);
		bytes += c->piece.len - before;
		c->done += more > 0;
		if (c->piece.len >= PIECE_BYTES)
			r = send_piece(c);
		if (c->done % TELL_ROWS == 0)
			move_tell(s, c->rows.table, MOVE_COPYING, c->done, NULL);
	}
	if (r == LAPSE_OK)
		r = send_piece(c);
	int end = copy_in_end(s->wire);
	if (r < 0 || more < 0)
		return r < 0 ? r : more;
	return end < 0 ? end : more;
}

static int say_copy_failed(const struct move_sides *s, const struct move_table *t, int err,
			   struct problem *p)
{
	bool theirs = s->wire->error[0];

	return problem_set(p, err, NULL, "cannot copy the table %.60s: %.160s", t->name,
			   theirs ? s->wire->error : db_error(s->source));
}

static int copy_after(const struct move_sides *s, const struct move_table *t,
		      const struct db_query *last, int64_t done, struct problem *p)
{
	struct copying CLEANUP(copying_done)
		c = { .rows = { .sides = s, .table = t }, .done = done };
	int r = 1;

	s->wire->error[0] = '\0';
	buf_puts(&c.sql, "COPY ");
	sql_name(&c.sql, t->name);
	buf_printf(&c.sql, " (%s) FROM STDIN", buf_text(&t->columns));
	source_rows_start(&c.rows, last);
	while (r > 0) {
		r = copy_some(&c);
		move_tell(s, t, MOVE_COPYING, c.done, NULL);
	}
	return r < 0 ? say_copy_failed(s, t, r, p) : LAPSE_OK;
}

/* The largest key of the target; its order is that of the source, since both compare bytes. */
static void last_key_sql(const struct move_table *t, struct buf *sql)
{
	buf_printf(sql, "SELECT %s FROM ", buf_text(&t->key));
	sql_name(sql, t->name);
	buf_puts(sql, " ORDER BY ");
	for (int i = 0; i < t->key_count; i++)
		buf_printf(sql, "%s%d DESC", i ? ", " : "", i + 1);
	buf_puts(sql, " LIMIT 1");
}

int move_table_copy(const struct move_sides *s, const struct move_table *t, struct problem *p)
{
	struct buf CLEANUP(buf_done) sql = { 0 };
	int64_t done = 0;
	int r = count_table(s->target, t->name, &done);

	last_key_sql(t, &sql);
	const struct db_stmt stmt = { buf_text(&sql) };
	if (r == LAPSE_OK) {
		struct db_query CLEANUP(db_finish) last = db_query(s->target, &stmt);
		r = db_step(&last);
		if (r >= 0)
			r = copy_after(s, t, r > 0 ? &last : NULL, done, p);
	}
	db_forget(s->target, stmt.sql);
	if (r < 0 && !p->message[0])
		problem_set(p, r, NULL, "cannot copy the table %.60s: %.160s", t->name,
			    db_error(s->target));
	return r;
}

/* Checking */

struct summing {
	const struct move_sides *sides;
	const struct move_table *table;
	EVP_MD_CTX *hash;
	int64_t rows;
	int64_t before; /* rows of the side that was read first */
};

static void summing_done(struct summing *s)
{
	EVP_MD_CTX_free(s->hash);
}

static void summing_init(struct summing *s, const struct move_sides *sides,
			 const struct move_table *table)
{
	*s = (struct summing){ .sides = sides, .table = table, .hash = EVP_MD_CTX_new() };
	int ok = s->hash ? EVP_DigestInit_ex(s->hash, EVP_sha256(), NULL) : 0;
	assert(ok == 1);
}

static void sum_line(void *arg, const char *line, size_t n)
{
	struct summing *s = arg;
	int ok = EVP_DigestUpdate(s->hash, line, n);

	assert(ok == 1);
	if (++s->rows % TELL_ROWS == 0)
		move_tell(s->sides, s->table, MOVE_CHECKING, (s->before + s->rows) / 2, NULL);
}

static void sum_text(struct summing *s, char ret[MOVE_CHECKSUM_LEN + 1])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	int ok = EVP_DigestFinal_ex(s->hash, digest, &n);

	assert(ok == 1 && 2 * n == MOVE_CHECKSUM_LEN);
	for (unsigned i = 0; i < n; i++) {
		ret[2 * i] = digits[digest[i] >> 4];
		ret[2 * i + 1] = digits[digest[i] & 15];
	}
	ret[MOVE_CHECKSUM_LEN] = '\0';
}

static int sum_source(struct summing *s)
{
	struct source_rows CLEANUP(source_rows_done)
		rows = { .sides = s->sides, .table = s->table };
	struct buf CLEANUP(buf_done) line = { 0 };
	int r;

	source_rows_start(&rows, NULL);
	while ((r = source_rows_next(&rows, &line)) > 0) {
		sum_line(s, line.data, line.len);
		buf_clear(&line);
	}
	return r;
}

static int sum_target(struct summing *s)
{
	struct buf CLEANUP(buf_done) sql = { 0 };

	buf_printf(&sql, "COPY (SELECT %s FROM ", buf_text(&s->table->columns));
	sql_name(&sql, s->table->name);
	buf_printf(&sql, " ORDER BY %s) TO STDOUT", buf_text(&s->table->key));
	return copy_out(s->sides->wire, buf_text(&sql), sum_line, s);
}

int move_table_check(const struct move_sides *s, const struct move_table *t, bool *ret_same,
		     struct problem *p)
{
	struct summing CLEANUP(summing_done) ours = { 0 }, theirs = { 0 };
	char sums[2][MOVE_CHECKSUM_LEN + 1];

	summing_init(&ours, s, t);
	summing_init(&theirs, s, t);
	int r = sum_source(&ours);
	if (r < 0)
		return problem_set(p, r, NULL, "cannot read the table %.60s: %.160s", t->name,
				   db_error(s->source));
	theirs.before = ours.rows;
	r = sum_target(&theirs);
	if (r < 0)
		return problem_set(p, r, NULL, "cannot read the table %.60s: %.160s", t->name,
				   s->wire->error);
	sum_text(&ours, sums[0]);
	sum_text(&theirs, sums[1]);
	*ret_same = ours.rows == theirs.rows && strcmp(sums[0], sums[1]) == 0;
	if (*ret_same)
		move_tell(s, t, MOVE_CHECKED, ours.rows, sums[0]);
	return LAPSE_OK;
}
