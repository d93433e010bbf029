/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/lease.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#define LEASE_MAGIC 0x6c656173u

struct lease {
	uint32_t magic;
	char *scheduler, *holder, *file;
	int fd;        /* of the lock file; -1 = not open */
	bool tabled;   /* the last take used the table */
	int64_t token; /* of the row, while it is ours */
};

int lease_table_exists(struct foreign *f, bool *ret)
{
	static const char sqlite[] =
		"SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'lapse_leases'";
	static const char postgres[] =
		"SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = "
		"c.relnamespace WHERE c.relname = 'lapse_leases' AND n.nspname "
		"= 'public' AND c.relkind = 'r'";
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	int err = foreign_read(f, f->engine == FOREIGN_SQLITE ? sqlite : postgres, NULL, 0, &rows);
	if (err == LAPSE_OK)
		*ret = rows_int(&rows, 0, 0) > 0;
	return err;
}

#define TABLE(engine) ((engine) == FOREIGN_SQLITE ? "main.lapse_leases" : "public.lapse_leases")

int lease_table_create(struct foreign *f)
{
	struct buf CLEANUP(buf_done) sql = { 0 };
	int err = foreign_begin(f, true);

	if (err < 0)
		return err;
	buf_printf(
		&sql,
		"CREATE TABLE IF NOT EXISTS %s (scheduler text PRIMARY KEY, holder text NOT NULL, "
		"token bigint NOT NULL, expires_at_ms bigint NOT NULL)",
		TABLE(f->engine));
	err = foreign_run(f, buf_text(&sql), NULL, 0, NULL);
	if (err == LAPSE_OK)
		return foreign_commit(f);
	foreign_rollback(f);
	return err;
}

struct lease *lease_new(const char *scheduler, const char *holder, const char *database)
{
	struct lease *l = mem_zalloc(1, sizeof(*l));
	struct buf file = { 0 };

	l->magic = LEASE_MAGIC;
	l->scheduler = mem_strdup(scheduler);
	l->holder = mem_strdup(holder);
	buf_printf(&file, "%s-lapse-%s.lock", database, scheduler);
	l->file = buf_take(&file);
	l->fd = -1;
	return l;
}

void lease_free(struct lease *l)
{
	if (!l)
		return;
	assert(l->magic == LEASE_MAGIC);
	l->magic = 0;
	if (l->fd >= 0)
		close(l->fd);
	free(l->scheduler);
	free(l->holder);
	free(l->file);
	free(l);
}

int64_t lease_token(const struct lease *l)
{
	return l->token;
}

/* The file stays when the lock goes: removing it would let two processes lock two files. */
static int take_file(struct lease *l)
{
	if (l->fd >= 0)
		return LAPSE_OK;
	int fd = open(l->file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errno == EACCES || errno == EROFS ? LAPSE_EFORBIDDEN : LAPSE_EIO;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		close(fd);
		return errno == EWOULDBLOCK ? LAPSE_EBUSY : LAPSE_EIO;
	}
	l->fd = fd;
	return LAPSE_OK;
}

/* The database's clock decides: holders may disagree about the time. */
static const char *now_sql(const struct foreign *f)
{
	return f->engine == FOREIGN_SQLITE
		       ? "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
		       : "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
}

/* Takes a row that is free, over, or ours; a new holder gets a larger token. */
static void write_take(const struct foreign *f, struct buf *sql)
{
	const char *p = f->engine == FOREIGN_SQLITE ? "?" : "$";

	buf_printf(
		sql,
		"INSERT INTO %s AS l (scheduler, holder, token, expires_at_ms) VALUES (%s1, %s2, "
		"1, "
		"%s + %d) ON CONFLICT (scheduler) DO UPDATE SET holder = excluded.holder, token = "
		"l.token + CASE WHEN l.holder = excluded.holder AND l.expires_at_ms > %s THEN 0 "
		"ELSE 1 END, expires_at_ms = excluded.expires_at_ms WHERE l.holder = "
		"excluded.holder OR l.expires_at_ms <= %s RETURNING token",
		TABLE(f->engine), p, p, now_sql(f), LEASE_MS, now_sql(f), now_sql(f));
}

static int take_row(struct lease *l, struct foreign *f)
{
	struct datum params[] = { datum_text(l->scheduler), datum_text(l->holder) };
	struct buf CLEANUP(buf_done) sql = { 0 };
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	write_take(f, &sql);
	int err = foreign_begin(f, true);
	if (err < 0)
		return err;
	err = foreign_run(f, buf_text(&sql), params, 2, &rows);
	if (err == LAPSE_OK && rows.count == 0)
		err = LAPSE_EBUSY;
	if (err < 0) {
		foreign_rollback(f);
		return err;
	}
	int64_t token = rows_int(&rows, 0, 0);
	err = foreign_commit(f);
	if (err == LAPSE_OK) {
		assert(token >= l->token);
		l->token = token;
	}
	return err;
}

int lease_take(struct lease *l, struct foreign *f)
{
	assert(l->magic == LEASE_MAGIC);
	int err = lease_table_exists(f, &l->tabled);

	if (err < 0)
		return err;
	if (l->tabled)
		return take_row(l, f);
	return f->engine == FOREIGN_SQLITE ? take_file(l) : LAPSE_OK;
}

/* FOR SHARE: a takeover, which changes the row, waits until this slice has ended. */
static int fence_row(struct lease *l, struct foreign *f)
{
	struct datum params[] = { datum_text(l->scheduler), datum_text(l->holder),
				  datum_int(l->token) };
	struct buf CLEANUP(buf_done) sql = { 0 };
	struct rows CLEANUP(rows_done) rows;
	bool sqlite = f->engine == FOREIGN_SQLITE;

	rows_init(&rows);
	buf_printf(&sql, "SELECT 1 FROM %s WHERE scheduler = %s AND holder = %s AND token = %s%s",
		   TABLE(f->engine), sqlite ? "?1" : "$1", sqlite ? "?2" : "$2",
		   sqlite ? "?3" : "$3::bigint", sqlite ? "" : " FOR SHARE");
	int err = foreign_run(f, buf_text(&sql), params, 3, &rows);
	return err == LAPSE_OK && rows.count == 0 ? LAPSE_EPRECONDITION : err;
}

static int fence_advisory(struct lease *l, struct foreign *f)
{
	struct datum key = datum_int((int64_t)XXH3_64bits(l->scheduler, strlen(l->scheduler)));
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	int err = foreign_run(f, "SELECT pg_try_advisory_xact_lock($1::bigint)", &key, 1, &rows);
	return err == LAPSE_OK && !rows_true(&rows, 0, 0) ? LAPSE_ERETRY : err;
}

int lease_fence(struct lease *l, struct foreign *f)
{
	assert(l->magic == LEASE_MAGIC && f->in_transaction && f->writes);
	if (l->tabled)
		return fence_row(l, f);
	if (f->engine == FOREIGN_POSTGRES)
		return fence_advisory(l, f);
	assert(l->fd >= 0);
	return LAPSE_OK;
}

void lease_give(struct lease *l, struct foreign *f)
{
	struct datum params[] = { datum_text(l->scheduler), datum_text(l->holder) };
	struct buf CLEANUP(buf_done) sql = { 0 };
	const char *p = f->engine == FOREIGN_SQLITE ? "?" : "$";

	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	if (!l->tabled || foreign_begin(f, true) < 0)
		return;
	buf_printf(&sql, "UPDATE %s SET expires_at_ms = 0 WHERE scheduler = %s1 AND holder = %s2",
		   TABLE(f->engine), p, p);
	if (foreign_run(f, buf_text(&sql), params, 2, NULL) == LAPSE_OK)
		foreign_commit(f);
	else
		foreign_rollback(f);
}
