/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/hold.h"
#include "message/rules.h"

/* Time */

static lapse_ms fake_wall(void *ctx)
{
	return ((struct fake_clock *)ctx)->wall;
}

static lapse_us fake_mono(void *ctx)
{
	struct fake_clock *f = ctx;

	f->mono += f->mono_step;
	return f->mono;
}

void fake_clock_init(struct fake_clock *f)
{
	*f = (struct fake_clock){ .wall = NOW,
				  .mono = 1000000000,
				  .clock = { fake_wall, fake_mono, f } };
}

void fake_clock_advance(struct fake_clock *f, lapse_ms ms)
{
	f->wall += ms;
	f->mono += ms * 1000;
}

void fake_clock_to(struct fake_clock *f, lapse_ms wall)
{
	assert_true(wall >= f->wall);
	fake_clock_advance(f, wall - f->wall);
}

/* Files */

void temp_dir_make(char out[TEMP_PATH_MAX])
{
	const char *base = getenv("TMPDIR");

	snprintf(out, TEMP_PATH_MAX, "%.200s/lapse-unit-XXXXXX", base ? base : P_tmpdir);
	assert_non_null(mkdtemp(out));
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

void temp_dir_remove(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void path_join(char out[TEMP_PATH_MAX], const char *dir, const char *name)
{
	int n = snprintf(out, TEMP_PATH_MAX, "%s/%s", dir, name);

	assert_in_range(n, 1, TEMP_PATH_MAX - 1);
}

void file_write(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static char *read_all(int fd)
{
	struct buf out = { 0 };
	char chunk[4096];
	ssize_t n;
	off_t at = 0;

	while ((n = pread(fd, chunk, sizeof(chunk), at)) > 0) {
		buf_add(&out, chunk, (size_t)n);
		at += n;
	}
	assert_int_equal(n, 0);
	return buf_take(&out);
}

char *file_read(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	char *text = read_all(fd);
	close(fd);
	return text;
}

/* A world */

void world_open(struct world *w)
{
	struct engine_config config = { .settings = &w->settings,
					.clock = &w->time.clock,
					.log = &w->log,
					.bounds = ROOM_BOUNDS,
					.schedulers = ROOM_SCHEDULERS,
					.cleanups = ROOM_CLEANUPS,
					.rooms = ROOMS };
	struct problem p = { 0 };
	char path[TEMP_PATH_MAX];

	if (engine_open(&w->engine, &config, &p) < 0)
		fail_msg("engine_open: %s", p.message);
	path_join(path, w->dir, DATADIR_DATABASE);
	assert_int_equal(sqlite3_open(path, &w->side), SQLITE_OK);
	sqlite3_busy_timeout(w->side, 2000);
	w->open = true;
}

void world_close(struct world *w)
{
	if (!w->open)
		return;
	sqlite3_close(w->side);
	w->side = NULL;
	engine_close(&w->engine);
	w->open = false;
}

void world_reopen(struct world *w)
{
	world_close(w);
	world_open(w);
}

int world_setup(void **state)
{
	struct world *w = mem_zalloc(1, sizeof(*w));
	struct problem p = { 0 };

	temp_dir_make(w->dir);
	fake_clock_init(&w->time);
	settings_init(&w->settings);
	settings_set(&w->settings, "data_dir", w->dir, &p);
	settings_set(&w->settings, "sqlite_synchronous", "off", &p); /* no test here pulls a plug */
	w->log = (struct log){ .clock = &w->time.clock,
			       .least = LOG_DEBUG,
			       .fd = memfd_create("log", MFD_CLOEXEC) };
	world_open(w);
	*state = w;
	return 0;
}

int world_teardown(void **state)
{
	struct world *w = *state;

	world_close(w);
	settings_done(&w->settings);
	close(w->log.fd);
	temp_dir_remove(w->dir);
	free(w);
	return 0;
}

char *world_log(const struct world *w)
{
	return read_all(w->log.fd);
}

/* The side connection */

static sqlite3_stmt *side_prepare(struct world *w, const char *sql)
{
	sqlite3_stmt *s = NULL;

	if (sqlite3_prepare_v2(w->side, sql, -1, &s, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(w->side));
	return s;
}

static sqlite3_stmt *side_first(struct world *w, const char *format, va_list ap)
{
	char sql[2048];

	vsnprintf(sql, sizeof(sql), format, ap);
	sqlite3_stmt *s = side_prepare(w, sql);
	if (sqlite3_step(s) != SQLITE_ROW)
		fail_msg("%s: no row: %s", sql, sqlite3_errmsg(w->side));
	return s;
}

void sqlite_do(sqlite3 *db, const char *sql)
{
	char *error = NULL;

	if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
		fail_msg("%s: %s", sql, error);
}

int64_t sqlite_ask(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *s = NULL;

	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(s), SQLITE_ROW);
	int64_t n = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return n;
}

void side_run(struct world *w, const char *format, ...)
{
	char sql[2048];
	va_list ap;

	va_start(ap, format);
	vsnprintf(sql, sizeof(sql), format, ap);
	va_end(ap);
	if (sqlite3_exec(w->side, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(w->side));
}

int64_t side_int(struct world *w, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	sqlite3_stmt *s = side_first(w, format, ap);
	va_end(ap);
	int64_t n = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return n;
}

char *side_text(struct world *w, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	sqlite3_stmt *s = side_first(w, format, ap);
	va_end(ap);
	char *text = mem_strdup((const char *)sqlite3_column_text(s, 0));
	sqlite3_finalize(s);
	return text;
}

static void dump_table(struct world *w, const char *table, struct buf *out)
{
	char sql[128];

	snprintf(sql, sizeof(sql), "SELECT * FROM %s ORDER BY 1, 2", table);
	sqlite3_stmt *s = side_prepare(w, sql);
	while (sqlite3_step(s) == SQLITE_ROW) {
		buf_puts(out, table);
		for (int i = 0; i < sqlite3_column_count(s); i++) {
			const char *text = (const char *)sqlite3_column_text(s, i);
			buf_printf(out, "|%s", text ? text : "NULL");
		}
		buf_putc(out, '\n');
	}
	sqlite3_finalize(s);
}

char *world_dump(struct world *w, const char *except)
{
	struct buf out = { 0 };
	sqlite3_stmt *s =
		side_prepare(w, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1");

	buf_puts(&out, "");
	while (sqlite3_step(s) == SQLITE_ROW) {
		const char *table = (const char *)sqlite3_column_text(s, 0);
		if (!except || !strstr(except, table))
			dump_table(w, table, &out);
	}
	sqlite3_finalize(s);
	return buf_take(&out);
}

/* What a bound counts, where it is not a table: one table may have several bounds. */
static const char *rows_of(const char *table)
{
	static const struct {
		const char *table, *rows;
	} shapes[] = {
		{ "presence_entries", "entries WHERE tbl = 'presence_entries'" },
		{ "connections", "entries WHERE tbl = 'connections'" },
		{ "channel_inbox", "queue_items WHERE tbl = 'channel_inbox'" },
		{ "channel_outbox", "queue_items WHERE tbl = 'channel_outbox'" },
		{ "conversation_leases", "leases WHERE tbl = 'conversation_leases'" },
		{ "workspace_leases", "leases WHERE tbl = 'workspace_leases'" },
		{ "oauth_refresh_leases", "leases WHERE tbl = 'oauth_refresh_leases'" },
		{ "models_dev_refresh_leases", "leases WHERE tbl = 'models_dev_refresh_leases'" },
	};

	if (strcmp(table, "mailboxes") == 0)
		return "mailboxes WHERE status IN ('provisioning', 'active')";
	if (strcmp(table, "mailboxes_expired") == 0)
		return "mailboxes WHERE status IN ('expired', 'deleted')";
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
		if (strcmp(table, shapes[i].table) == 0)
			return shapes[i].rows;
	return table;
}

/* What `inboxes` counts: messages that are read or filed. The others are the tail in memory. */
#define COUNTED                                                                                    \
	"SELECT m.owner, m.agent, count(*), count(u.id) FROM messages AS m LEFT JOIN "             \
	"messages_unread AS u ON u.owner = m.owner AND u.agent = m.agent AND u.id = m.id "         \
	"WHERE m.read = 1 OR u.id IS NOT NULL GROUP BY 1, 2"
#define KEPT "SELECT owner, agent, total, unread FROM inboxes WHERE total > 0"

static void world_check_inboxes(struct world *w)
{
	assert_int_equal(side_int(w, "SELECT count(*) FROM (" COUNTED " EXCEPT " KEPT ")"), 0);
	assert_int_equal(side_int(w, "SELECT count(*) FROM (" KEPT " EXCEPT " COUNTED ")"), 0);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages_unread AS u LEFT JOIN messages "
				     "AS m ON m.id = u.id AND m.read = 0 WHERE m.id IS NULL"),
			 0);
}

void world_check_counters(struct world *w)
{
	for (size_t i = 0; i < w->engine.matrix.count; i++) {
		const char *table = w->engine.matrix.bounds[i]->spec->name;
		int64_t live = w->engine.matrix.bounds[i]->live;
		int64_t rows = side_int(w, "SELECT count(*) FROM %s", rows_of(table));
		int64_t kept = side_int(w, "SELECT live FROM counts WHERE tbl = '%s'", table);
		if (rows != kept || rows != live)
			fail_msg("%s: %" PRId64 " rows, counts %" PRId64 ", state %" PRId64, table,
				 rows, kept, live);
	}
	world_check_inboxes(w);
}

/* Messages */

static void ignore_message(void *arg, const struct message *m)
{
	(void)arg;
	(void)m;
}

int send_one(struct tx *tx, const char *owner, struct message *m, struct problem *p)
{
	return message_send(tx, owner, m, &m->to, 1, m, p);
}

int64_t send_message(struct world *w, const char *owner, const char *agent)
{
	struct message m = {
		.to = agent, .from = "tester", .content = "hello", .type = "text", .metadata = "{}"
	};
	struct problem p = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(send_one(&tx, owner, &m, &p), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return m.id;
}

void read_message(struct world *w, const char *owner, const char *agent, int64_t id)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(message_mark_read(&tx, owner, agent, id, CLAIM_NONE, ignore_message, NULL),
			 LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
}

int64_t send_read_message(struct world *w, const char *owner, const char *agent)
{
	int64_t id = send_message(w, owner, agent);

	read_message(w, owner, agent, id);
	return id;
}

bool message_exists(struct world *w, int64_t id)
{
	return side_int(w, "SELECT count(*) FROM messages WHERE id = %" PRId64, id) == 1;
}

void hold_message(struct world *w, const char *owner, int64_t id, lapse_ms until)
{
	char key[ID_TEXT_LEN + 1];
	struct hold h = { .owner = owner,
			  .table = "messages",
			  .key = key,
			  .reason = "evidence",
			  .until = until };
	struct problem p = { 0 };
	struct tx tx;

	id_format(id, key);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(hold_place(&tx, &h, &p), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
}

void make_read_messages(struct world *w, int64_t n, lapse_ms timestamp)
{
	side_run(
		w,
		"BEGIN IMMEDIATE;"
		"WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < %" PRId64
		") INSERT INTO messages (id, owner, agent, sender, content, type, metadata, "
		"timestamp, event, read, read_at) SELECT coalesce((SELECT max(id) FROM messages), "
		"0) + i, "
		"'o' || (i %% 2), 'bulk' || (i %% 3), 's', 'c', 't', '{}', %" PRId64
		", 0, 1, %" PRId64 " FROM k;"
		"DELETE FROM inboxes; INSERT INTO inboxes SELECT owner, agent, count(*), "
		"sum(read = 0) FROM messages GROUP BY 1, 2;"
		"UPDATE counts SET live = (SELECT count(*) FROM messages) WHERE tbl = 'messages';"
		"COMMIT",
		n, timestamp, timestamp);
	world_reopen(w);
}

int run_sweep(struct world *w, const char *scheduler, bool dry_run, struct sweep *ret)
{
	bool more = true;
	int slices = 0;

	sweep_init(ret, &w->engine, schedule_find(&w->engine, scheduler), dry_run);
	for (; more; slices++)
		assert_int_equal(sweep_slice(ret, &more), LAPSE_OK);
	return slices;
}

void store_fails(struct world *w)
{
	db_script(w->engine.db, "PRAGMA busy_timeout=1"); /* no test waits for it in vain */
	side_run(w, "BEGIN EXCLUSIVE");
}

void store_is_back(struct world *w)
{
	side_run(w, "COMMIT");
}

void tick_until_idle(struct world *w)
{
	for (int i = 0; engine_next_us(&w->engine) == 0; i++) {
		assert_true(i < 100000);
		engine_tick(&w->engine);
	}
}
