/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML file as a tree of nodes, each with its place in the file.
 *
 * Only what a contract needs is read: mappings, lists and scalars of one document. Tags, anchors,
 * aliases and duplicate keys are errors, because a reader of the file would not expect what they
 * do. The tree has limits on bytes, depth and nodes, so a hostile file costs little.
 */
#ifndef LAPSE_CONTRACT_DOCUMENT_H
#define LAPSE_CONTRACT_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/mem.h"

#define DOCUMENT_BYTES_MAX (1 << 20)
#define DOCUMENT_DEPTH_MAX 8
#define DOCUMENT_NODES_MAX 50000

enum node_kind { NODE_SCALAR, NODE_LIST, NODE_MAP };

struct node {
	enum node_kind kind;
	int line, column;   /* both from 1 */
	const char *text;   /* of a scalar; has no NUL inside */
	bool plain;         /* of a scalar: it was written without quotes */
	struct node *key;   /* of a mapping's value: what it is called */
	struct node *first; /* of a list or mapping: its values in order */
	struct node *next;  /* of a value: the one after it */
	size_t count;
};

/* Where messages begin: "FILE:LINE:COLUMN: ". */
struct document {
	struct arena arena;
	char *file;
	struct node *root;
};

/* Reads the file. On failure `error` holds one line that begins with the place, and the document
 * is empty; document_done() takes it either way. */
int document_read(struct document *d, const char *file, struct buf *error);
int document_parse(struct document *d, const char *file, const char *text, size_t size,
		   struct buf *error);
void document_done(struct document *d);

/* Writes "FILE:LINE:COLUMN: message" and returns LAPSE_EINVAL. */
int document_refuse(const struct document *d, const struct node *at, struct buf *error,
		    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The value of a key, or NULL. */
const struct node *node_get(const struct node *map, const char *key);

/* Whether a scalar stands for null: written plain, as `null`, `~` or nothing. */
bool node_is_null(const struct node *n);

/* The name nearest to `text`, or NULL when none is near: at most one mistake for short names, two
 * for longer ones. `names` ends with NULL. */
const char *suggest(const char *text, const char *const *names);

#endif
