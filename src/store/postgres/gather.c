/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/gather.h"

#include <inttypes.h>

#include "base/buf.h"
#include "store/sql.h"

#define GATHER_ROWS 1000          /* beyond this a row gets no cheaper */
#define GATHER_BYTES (256 * 1024) /* of all arrays of a statement */

struct pg_gathered {
	struct list link;  /* of the connection; linked while there are rows */
	char *sql;         /* the statement over many rows */
	int params;        /* of either statement */
	bool *numbers;     /* of each parameter: it is an integer */
	struct buf *items; /* of each parameter: the array's text, without its end */
	int64_t rows;
	int64_t expected; /* rows that must change; negative = any number */
};

static bool is_number(const struct db_value *v)
{
	return v->kind == DB_INT;
}

bool gather_takes(const struct pg_prepared *p)
{
	if (p->head.params == 0)
		return false;
	for (int i = 0; p->gathered && i < p->head.params; i++)
		if (is_number(&p->head.values[i]) != p->gathered->numbers[i])
			return false;
	return true;
}

static struct pg_gathered *gather_new(const struct pg_prepared *p)
{
	struct pg_gathered *g = mem_zalloc(1, sizeof(*g));
	struct buf sql = { 0 };

	g->params = p->head.params;
	g->numbers = mem_zalloc((size_t)g->params, sizeof(*g->numbers));
	g->items = mem_zalloc((size_t)g->params, sizeof(*g->items));
	for (int i = 0; i < g->params; i++)
		g->numbers[i] = is_number(&p->head.values[i]);
	sql_over_rows(&sql, DIALECT_POSTGRES, p->text, g->params, g->numbers);
	g->sql = buf_take(&sql);
	list_init(&g->link);
	return g;
}

static void gather_clear(struct pg_gathered *g)
{
	for (int i = 0; i < g->params; i++)
		buf_clear(&g->items[i]);
	g->rows = g->expected = 0;
	list_remove(&g->link);
}

void gather_free(struct pg_gathered *g)
{
	if (!g)
		return;
	for (int i = 0; i < g->params; i++)
		buf_done(&g->items[i]);
	free(g->items);
	free(g->numbers);
	free(g->sql);
	free(g);
}

bool gather_has_rows(const struct pg_prepared *p)
{
	return p->gathered && p->gathered->rows > 0;
}

/* As one statement, whose values are the arrays. */
static int send_gathered(struct pg_db *db, struct pg_gathered *g)
{
	struct pg_prepared *many = pg_find(db, g->sql);
	int r = pg_make_room(db);

	if (r < 0) /* the rows go with the transaction, if they have not gone with the session */
		return r;
	assert(g->rows > 0 && many->head.params == g->params && !many->head.open);
	for (int i = 0; i < g->params; i++) {
		buf_putc(&g->items[i], '}');
		many->head.values[i] =
			(struct db_value){ .kind = DB_TEXT, .text = buf_text(&g->items[i]) };
	}
	r = pg_send_expecting(db, many, false, g->expected);
	gather_clear(g);
	return r;
}

static size_t put_value(struct buf *out, const struct db_value *v)
{
	size_t before = out->len;

	buf_putc(out, before ? ',' : '{');
	if (v->kind == DB_INT)
		buf_printf(out, "%" PRId64, v->number);
	else if (v->kind == DB_TEXT)
		sql_array_item(out, v->text);
	else
		buf_puts(out, "NULL");
	return out->len;
}

int gather_add(struct pg_db *db, struct pg_prepared *p, int64_t rows)
{
	size_t bytes = 0;

	if (!p->gathered)
		p->gathered = gather_new(p);
	struct pg_gathered *g = p->gathered;
	assert(gather_takes(p) && (rows < 0 || rows == 1));
	for (int i = 0; i < g->params; i++)
		bytes += put_value(&g->items[i], &p->head.values[i]);
	if (g->rows++ == 0)
		list_append(&db->gathering, &g->link);
	g->expected = rows < 0 ? rows : g->rows;
	return g->rows == GATHER_ROWS || bytes >= GATHER_BYTES ? send_gathered(db, g) : LAPSE_OK;
}

static struct pg_gathered *first_gathered(struct pg_db *db)
{
	return list_empty(&db->gathering)
		       ? NULL
		       : CONTAINER_OF(db->gathering.next, struct pg_gathered, link);
}

int gather_send(struct pg_db *db)
{
	int r = LAPSE_OK;

	for (struct pg_gathered *g; r == LAPSE_OK && (g = first_gathered(db));)
		r = send_gathered(db, g);
	return r;
}

void gather_drop(struct pg_db *db)
{
	for (struct pg_gathered *g; (g = first_gathered(db));)
		gather_clear(g);
}
