/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/copy.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* What stands for a byte that a line cannot hold. */
static char copy_escape(char c)
{
	static const char bytes[] = "\b\f\n\r\t\v\\", letters[] = "bfnrtv\\";
	const char *at = strchr(bytes, c);

	assert(c && at);
	return letters[at - bytes];
}

void copy_put_text(struct buf *line, const char *text)
{
	if (!text) {
		buf_puts(line, "\\N");
		return;
	}
	for (;;) {
		size_t plain = strcspn(text, "\b\f\n\r\t\v\\");
		buf_add(line, text, plain);
		text += plain;
		if (!*text)
			return;
		buf_putc(line, '\\');
		buf_putc(line, copy_escape(*text++));
	}
}

/* What the connection says, where there is no result to say it. */
static int copy_lost(struct wire *w)
{
	snprintf(w->error, sizeof(w->error), "%s", PQerrorMessage(w->conn));
	w->error[strcspn(w->error, "\n")] = '\0';
	return LAPSE_EUNAVAILABLE;
}

static int copy_start(struct wire *w, const char *sql, ExecStatusType wanted)
{
	if (!w->conn)
		return LAPSE_EUNAVAILABLE;
	if (PQpipelineStatus(w->conn) != PQ_PIPELINE_OFF && !PQexitPipelineMode(w->conn))
		return copy_lost(w);
	if (PQsetnonblocking(w->conn, 0) != 0)
		return copy_lost(w);
	PGresult *result = PQexec(w->conn, sql);
	int r = PQresultStatus(result) == wanted ? LAPSE_OK : wire_judge(w, result);
	PQclear(result);
	assert(r <= LAPSE_OK);
	return r;
}

/* The results after the data, up to the last. */
static int copy_finish(struct wire *w)
{
	PGresult *result;
	int first = LAPSE_OK;

	while ((result = PQgetResult(w->conn)) != NULL) {
		int r = wire_judge(w, result);
		PQclear(result);
		first = first < 0 ? first : r;
	}
	if (PQstatus(w->conn) != CONNECTION_OK)
		return copy_lost(w);
	return first;
}

int copy_in_begin(struct wire *w, const char *sql)
{
	return copy_start(w, sql, PGRES_COPY_IN);
}

int copy_in_put(struct wire *w, const struct buf *bytes)
{
	assert(bytes->len == 0 || bytes->data[bytes->len - 1] == '\n');
	assert(bytes->len <= INT_MAX);
	return PQputCopyData(w->conn, bytes->data, (int)bytes->len) == 1 ? LAPSE_OK : copy_lost(w);
}

int copy_in_end(struct wire *w)
{
	return PQputCopyEnd(w->conn, NULL) == 1 ? copy_finish(w) : copy_lost(w);
}

int copy_out(struct wire *w, const char *sql, copy_line_fn *fn, void *arg)
{
	char *line = NULL;
	int r = copy_start(w, sql, PGRES_COPY_OUT);
	int n;

	if (r < 0)
		return r;
	while ((n = PQgetCopyData(w->conn, &line, 0)) > 0) {
		fn(arg, line, (size_t)n);
		PQfreemem(line);
	}
	return n == -1 ? copy_finish(w) : copy_lost(w);
}
