/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/finding.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void findings_init(struct findings *f)
{
	*f = (struct findings){ 0 };
	arena_init(&f->arena);
	f->tail = &f->first;
}

void findings_done(struct findings *f)
{
	arena_done(&f->arena);
}

void finding_add(struct findings *f, enum finding_level level, const struct contract_bound *b,
		 const struct node *at, const char *fix, const char *format, ...)
{
	struct finding *n = arena_alloc(&f->arena, sizeof(*n));
	char text[1024];
	va_list ap;

	assert(f->tail && (size_t)level < ARRAY_LEN(f->counts));
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	n->level = level;
	n->bound = b ? b->name : "";
	n->line = at ? at->line : b ? b->at->line : 1;
	n->column = at ? at->column : b ? b->at->column : 1;
	n->text = arena_strdup(&f->arena, text);
	n->fix = fix ? arena_strdup(&f->arena, fix) : NULL;
	f->counts[level]++;
	*f->tail = n;
	f->tail = &n->next;
}

const char *finding_level_name(enum finding_level level)
{
	static const char *const names[] = { "note", "warning", "error" };

	assert((size_t)level < ARRAY_LEN(names));
	return names[level];
}
