/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How accounts are managed at Stalwart, both generations; pure, like provider/jmap.h.
 *
 * Up to 0.15 there are principals under /api/principal, and errors come as HTTP 200 with
 * {"error":…}. From 0.16 on there is a registry spoken to in JMAP (x:Domain, x:Account), and
 * /api/principal is a bare 404.
 */
#ifndef LAPSE_PROVIDER_REGISTRY_H
#define LAPSE_PROVIDER_REGISTRY_H

#include "base/json.h"
#include "base/mem.h"
#include "provider/jmap.h"

/* The local part and the domain of an address, split at its last '@'; false when it has none. */
bool address_split(const char *address, struct arena *arena, const char **ret_local,
		   const char **ret_domain);

/* Principals, 0.10 to 0.15 */

enum rest_verdict {
	REST_DONE,
	REST_NOT_FOUND, /* said by the API itself: 200 with {"error":"notFound"} */
	REST_EXISTS,
	REST_NO_ROUTE, /* 404: another generation, another path, or nothing there */
	REST_REFUSED,  /* 401, 403: our credentials */
	REST_BUSY,     /* 429 */
	REST_ERROR,    /* the API said no: nothing was done */
	REST_BROKEN,   /* anything else: what was done cannot be told */
};

struct rest_answer {
	enum rest_verdict verdict;
	const char *error;   /* its name for it; "" where there is none */
	const char *item;    /* what was not found; "" */
	const char *account; /* id of what was created; "" */
	const char *mark;    /* of what was read, see below; "" */
};
void rest_judge(int status, const char *text, size_t n, struct arena *arena,
		struct rest_answer *ret);

/* The mark is an account's description. It tells whose work an account is when its making was never
 * answered: one with another mark, or none, was there before and is not ours to delete. */
int account_not_ours(struct problem *p);
void rest_build_create(struct buf *b, const char *name, const char *address, const char *secret,
		       const char *mark);

/* /api/principal/ and the name, as it can stand in a URL. */
void rest_put_path(struct buf *b, const char *name);

/* The registry, 0.16 and later */

void registry_build_domain(struct buf *b, const char *domain);
/* `*ret_id` is NULL when the server does not know the domain. */
int registry_parse_domain(const json_t *answer, const char *domain, struct arena *arena,
			  const char **ret_id, struct problem *p);

void registry_build_create(struct buf *b, const char *local, const char *domain_id,
			   const char *secret, const char *mark);
/* LAPSE_ECONFLICT: taken. `*ret_definite` tells for errors whether nothing was created. */
int registry_parse_create(const json_t *answer, struct arena *arena, const char **ret_id,
			  bool *ret_definite, struct problem *p);

/* One account by its id, or those of a domain with this name. */
void registry_build_get(struct buf *b, const char *id);
void registry_build_find(struct buf *b, const char *local, const char *domain_id);
/* The id of the account whose address it is; NULL when there certainly is none. One without the
 * mark, unless that is NULL, is account_not_ours(). For registry_build_get() `is_find` is false. */
int registry_parse_found(const json_t *answer, bool is_find, const char *address, const char *mark,
			 struct arena *arena, const char **ret_id, struct problem *p);

void registry_build_destroy(struct buf *b, const char *id);
int registry_parse_destroy(const json_t *answer, const char *id, struct problem *p);

#endif
