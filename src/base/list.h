/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive doubly linked list with a head that is a node of its own. A node outside any list
 * points at itself, so list_remove() is harmless on it and list_is_linked() can tell.
 */
#ifndef LAPSE_BASE_LIST_H
#define LAPSE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_is_linked(const struct list *l)
{
	return l->next != l;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_prepend(struct list *head, struct list *node)
{
	list_append(head->next, node);
}

/* Takes the first node out of the list; NULL when it is empty. */
static inline struct list *list_shift(struct list *head)
{
	struct list *first = head->next;

	if (first == head)
		return NULL;
	list_remove(first);
	return first;
}

/* Moves everything from `from` to the end of `to`. */
static inline void list_move_all(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#endif
