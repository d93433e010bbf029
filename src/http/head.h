/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a request: every header the server looks at, found in one walk over them all, and
 * whether all of its bytes were what they seem.
 *
 * libmicrohttpd keeps headers in a list and walks it for each lookup; with ten names to look for,
 * that was a sixth of the time of a heartbeat. A header that only one route asks for is better
 * looked up there.
 *
 * libmicrohttpd also forgives: a space before a colon makes another header of Content-Length, a NUL
 * cuts a value short, and a line that begins with a NUL ends the head. A proxy in front may read
 * all of these in another way, and the difference is a second request that only we see. So the walk
 * accounts for every byte: libmicrohttpd parses in place and puts NULs where separators were, and
 * from the method to the end of the head there may be nothing but the request line, names, values
 * and their separators. A head with anything else has a fault, is answered 400, and its connection
 * closes.
 */
#ifndef LAPSE_HTTP_HEAD_H
#define LAPSE_HTTP_HEAD_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

/* Where libmicrohttpd has left the parts of the request line. */
struct head_line {
	const char *method, *target, *version;
	size_t target_len; /* before libmicrohttpd cut the query into its parts */
};

/* Values are libmicrohttpd's and live as long as the request; the first counts where there are
 * many, NULL = it is not there. */
struct head {
	const char *accept, *authorization, *content_length, *content_type, *fetch_site, *host;
	const char *idempotency_key, *if_match, *if_none_match, *origin, *owner;
	const char *transfer_encoding;
	const char *fault;       /* what makes the head no proper one, as a text; NULL = nothing */
	const char *fault_field; /* the header it is in; NULL = none alone */
	int framings;            /* Content-Length and Transfer-Encoding, together */
	int hosts;
	bool forwarded; /* any Forwarded or X-Forwarded-… */
	bool has_query;
};

void head_read(struct MHD_Connection *mhd, const struct head_line *line, struct head *ret);

/* The rest is pure, and is what the fuzzer drives. */

/* The walk: begin, every field in the order it came, end. The first fault stays. */
struct head_walk {
	const char *at;    /* the end of what is accounted for */
	const char *end;   /* of the head */
	const char *fault; /* NULL = none so far */
	const char *field; /* the header it is in, when it has a name */
};
void head_walk_begin(struct head_walk *w, const struct head_line *line, size_t size);
void head_walk_field(struct head_walk *w, const char *name, size_t name_len, const char *value,
		     size_t value_len);
void head_walk_end(struct head_walk *w);

/* What is wrong with the fields together, for a version of "HTTP/1.x"; NULL = nothing. */
const char *head_fault(const struct head *h, const char *version);

/* The bytes of a target before its end; *ret_clean = none of them is a control character or a
 * space. */
size_t head_target_length(const char *target, bool *ret_clean);

/* Where the path of a target begins. In the absolute form ("http://HOST/path") *ret_host and
 * *ret_host_len are its HOST, else NULL and 0. NULL = the absolute form is broken. */
const char *head_target_path(const char *target, const char **ret_host, size_t *ret_host_len);

#endif
