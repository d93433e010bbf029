/* SPDX-License-Identifier: Apache-2.0 */
/* What both drivers share: values, answers, and the order of calls. */
#include "contract/foreign.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct datum datum_text(const char *text)
{
	if (!text)
		return (struct datum){ .kind = DATUM_NULL };
	return (struct datum){ .kind = DATUM_TEXT, .text = text, .size = strlen(text) };
}

void datum_write(const struct datum *d, struct buf *out)
{
	switch (d->kind) {
	case DATUM_NULL:
		return;
	case DATUM_INT:
		buf_int(out, d->number);
		return;
	case DATUM_REAL:
		buf_printf(out, "%.17g", d->real);
		return;
	case DATUM_TEXT:
		buf_add(out, d->text, d->size);
		return;
	case DATUM_BLOB:
		buf_puts(out, "\\x");
		for (size_t i = 0; i < d->size; i++)
			buf_printf(out, "%02x", (unsigned char)d->text[i]);
		return;
	}
}

struct datum datum_copy(struct arena *arena, const struct datum *d)
{
	struct datum copy = *d;

	if (d->kind == DATUM_TEXT || d->kind == DATUM_BLOB) {
		char *bytes = arena_alloc(arena, d->size + 1);
		memcpy(bytes, d->text, d->size);
		copy.text = bytes;
	}
	return copy;
}

void rows_init(struct rows *r)
{
	*r = (struct rows){ 0 };
	arena_init(&r->arena);
}

void rows_reset(struct rows *r)
{
	arena_reset(&r->arena);
	r->columns = r->count = 0;
	r->changed = 0;
}

void rows_done(struct rows *r)
{
	arena_done(&r->arena);
	free(r->cells);
	r->cells = NULL;
}

struct datum *rows_add(struct rows *r)
{
	size_t used = r->count * r->columns;

	assert(r->columns > 0);
	if (used + r->columns > r->room) {
		r->room = (used + r->columns) * 2;
		r->cells = mem_realloc(r->cells, r->room * sizeof(*r->cells));
	}
	r->count++;
	memset(&r->cells[used], 0, r->columns * sizeof(*r->cells));
	return &r->cells[used];
}

const struct datum *rows_at(const struct rows *r, size_t row, size_t column)
{
	assert(row < r->count && column < r->columns);
	return &r->cells[row * r->columns + column];
}

const char *rows_text(const struct rows *r, size_t row, size_t column)
{
	const struct datum *d = rows_at(r, row, column);

	return d->kind == DATUM_TEXT ? d->text : NULL;
}

int64_t rows_int(const struct rows *r, size_t row, size_t column)
{
	const struct datum *d = rows_at(r, row, column);

	switch (d->kind) {
	case DATUM_INT:
		return d->number;
	case DATUM_REAL:
		return (int64_t)d->real;
	case DATUM_TEXT:
		return strtoll(d->text, NULL, 10);
	case DATUM_NULL:
	case DATUM_BLOB:
		break;
	}
	return 0;
}

bool rows_true(const struct rows *r, size_t row, size_t column)
{
	const struct datum *d = rows_at(r, row, column);

	return d->kind == DATUM_TEXT ? d->text[0] == 't' : d->kind == DATUM_INT && d->number != 0;
}

static const struct foreign_driver *foreign_driver_of(enum foreign_engine engine)
{
	switch (engine) {
	case FOREIGN_SQLITE:
		return &FOREIGN_SQLITE_DRIVER;
	case FOREIGN_POSTGRES:
		return &FOREIGN_POSTGRES_DRIVER;
	}
	abort();
}

int foreign_open(const struct foreign_config *config, struct foreign **ret, struct buf *error)
{
	const struct foreign_driver *driver = foreign_driver_of(config->engine);
	struct foreign *f = NULL;
	int err = driver->open(config, &f, error);

	if (err < 0)
		return err;
	assert(f && f->driver == driver);
	f->magic = FOREIGN_MAGIC;
	f->engine = config->engine;
	f->dialect = config->engine == FOREIGN_SQLITE ? DIALECT_SQLITE : DIALECT_POSTGRES;
	*ret = f;
	return LAPSE_OK;
}

void foreign_close(struct foreign *f)
{
	if (!f)
		return;
	assert(f->magic == FOREIGN_MAGIC);
	foreign_rollback(f);
	f->magic = 0;
	f->driver->close(f);
}

void foreign_closep(struct foreign **f)
{
	foreign_close(*f);
}

static int begin_transaction(struct foreign *f, bool write, int64_t lock_ms)
{
	assert(f->magic == FOREIGN_MAGIC && !f->in_transaction);
	f->error[0] = '\0';
	int err = f->driver->begin(f, write, lock_ms);
	f->in_transaction = err == LAPSE_OK;
	f->writes = write;
	return err;
}

int foreign_begin(struct foreign *f, bool write)
{
	return begin_transaction(f, write, 0);
}

int foreign_begin_removal(struct foreign *f, int64_t lock_ms, bool lazy)
{
	assert(f->magic == FOREIGN_MAGIC && !f->in_transaction && lock_ms >= 0);
	f->error[0] = '\0';
	int err = f->driver->begin_removal(f, lock_ms, lazy);
	f->in_transaction = err == LAPSE_OK;
	f->writes = true;
	return err;
}

int foreign_flush(struct foreign *f)
{
	assert(f->magic == FOREIGN_MAGIC && !f->in_transaction);
	return f->driver->flush(f);
}

void foreign_tidy(struct foreign *f)
{
	assert(f->magic == FOREIGN_MAGIC && !f->in_transaction);
	f->driver->tidy(f);
}

int foreign_commit(struct foreign *f)
{
	assert(f->in_transaction);
	int err = f->driver->commit(f);
	f->in_transaction = false;
	return err;
}

void foreign_rollback(struct foreign *f)
{
	if (f->in_transaction)
		f->driver->rollback(f);
	f->in_transaction = false;
}

int foreign_run(struct foreign *f, const char *sql, const struct datum *params, size_t count,
		struct rows *ret)
{
	struct rows CLEANUP(rows_done) none;

	assert(f->magic == FOREIGN_MAGIC && f->in_transaction);
	rows_init(&none);
	if (ret)
		rows_reset(ret);
	return f->driver->run(f, sql, params, count, ret ? ret : &none);
}

int foreign_read(struct foreign *f, const char *sql, const struct datum *params, size_t count,
		 struct rows *ret)
{
	int err = foreign_begin(f, false);

	if (err == LAPSE_OK)
		err = foreign_run(f, sql, params, count, ret);
	if (err == LAPSE_OK)
		return foreign_commit(f);
	foreign_rollback(f);
	return err;
}

int foreign_now(struct foreign *f, lapse_ms *ret)
{
	return f->driver->now(f, ret);
}

void foreign_cancel(struct foreign *f)
{
	assert(f->magic == FOREIGN_MAGIC);
	f->driver->cancel(f);
}

void foreign_limit(struct foreign *f, int64_t statement_ms)
{
	assert(statement_ms > 0 && !f->in_transaction);
	f->driver->limit(f, statement_ms);
}

const char *foreign_error(const struct foreign *f)
{
	return f->error[0] ? f->error : "no details";
}

int foreign_fail(struct foreign *f, int err, const char *words)
{
	size_t n = 0;

	assert(err < 0);
	for (; words && *words && n + 1 < sizeof(f->error); words++)
		if (!iscntrl((unsigned char)*words))
			f->error[n++] = *words;
		else if (n > 0 && f->error[n - 1] != ' ')
			f->error[n++] = ' ';
	while (n > 0 && f->error[n - 1] == ' ')
		n--;
	f->error[n] = '\0';
	return err;
}
