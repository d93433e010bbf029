/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LMTP listener: a mail server hands its mail over here, and it lands in the mailboxes of the
 * provider `local`. Connections on libuv's loop, mails taken apart on workers, deliveries in
 * batches of one transaction each. A recipient is told 250 when that transaction is durable.
 *
 * Start: lmtp_open() with a socket that listens. Shutdown: lmtp_quiesce() takes no further mail;
 * what is under way is finished and answered; once lmtp_is_idle(), lmtp_shut() closes the rest.
 */
#ifndef LAPSE_LMTP_DOOR_H
#define LAPSE_LMTP_DOOR_H

#include <uv.h>

#include "base/list.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "lmtp/session.h"

#define LMTP_BATCH_MAX 64   /* recipients of one transaction */
#define LMTP_PARSING_MAX 4  /* mails taken apart at once */
#define LMTP_IDLE_MS 300000 /* a silent client is told 421: RFC 5321 wants five minutes */
#define LMTP_MEMORY_MIN_BYTES (INT64_C(64) << 20) /* for mails under way; or one of the largest */

#define LMTP_DOOR_MAGIC 0x4c4d5044u

struct lmtp {
	uint32_t magic; /* 0 = it is off */
	struct engine *engine;
	uv_loop_t *loop;
	union {
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} listener;
	uv_prepare_t prepare;
	bool is_unix, stopping;
	struct lmtp_host host;

	struct list connections;
	int64_t connections_count;
	int64_t reserved; /* bytes of mails under way */

	struct list waiting; /* struct delivery: not parsed yet */
	struct list ready;   /* for the next transaction */
	struct list running; /* of the transaction that is becoming durable */
	int64_t parsing;
	struct job job;
	int64_t mark;
};

void lmtp_open(struct lmtp *l, struct engine *e, uv_loop_t *loop, int fd, bool is_unix);
void lmtp_quiesce(struct lmtp *l);
bool lmtp_is_idle(const struct lmtp *l);
void lmtp_shut(struct lmtp *l);

#endif
