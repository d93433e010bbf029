/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMQP 0-9-1, as much as publishing with confirms needs: one channel for each connection,
 * persistent messages to a queue by its name, and a message is answered when the broker has
 * confirmed it.
 *
 * Every message is mandatory. Without that flag, a broker that knows no such queue would drop the
 * message and confirm it at once: the fastest answer of all.
 */
#include "protocol.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define FRAME_METHOD 1
#define FRAME_HEADER 2
#define FRAME_BODY 3
#define FRAME_END 0xce
#define FRAME_HEAD_BYTES 7
#define FRAME_AROUND_BYTES (FRAME_HEAD_BYTES + 1)
/* RabbitMQ's proposal, and what our tune-ok says. Longer bodies are sent in pieces. */
#define FRAME_BYTES_MAX 131072u
#define CHANNEL 1
/* A frame of the greeting; the largest one lists what the broker can do, in less than 1 KiB. */
#define GREETING_BYTES_MAX 16384u

#define METHOD(class_id, id) ((uint32_t)(class_id) << 16 | (uint32_t)(id))
#define CONNECTION_START METHOD(10, 10)
#define CONNECTION_TUNE METHOD(10, 30)
#define CONNECTION_OPEN_OK METHOD(10, 41)
#define CHANNEL_OPEN_OK METHOD(20, 11)
#define BASIC_PUBLISH METHOD(60, 40)
#define BASIC_RETURN METHOD(60, 50)
#define BASIC_ACK METHOD(60, 80)
#define BASIC_NACK METHOD(60, 120)
#define CONFIRM_SELECT_OK METHOD(85, 11)

#define PUBLISH_MANDATORY 1
#define HAS_DELIVERY_MODE 0x1000
#define PERSISTENT 2
#define SHORT_STRING_MAX 255

/* The method and the number of an ack or a nack, its flags and the end of the frame. */
#define CONFIRM_BYTES (4 + 8 + 1 + 1)

enum amqp_stage { AMQP_HEAD, AMQP_METHOD, AMQP_SKIP };

static void amqp_put(struct bytes *out, uint64_t number, unsigned count)
{
	char big_endian[8];

	for (unsigned i = 0; i < count; i++)
		big_endian[i] = (char)(number >> 8 * (count - 1 - i) & 0xff);
	bytes_put(out, big_endian, count);
}

static uint64_t amqp_get(const char *data, unsigned count)
{
	uint64_t number = 0;

	for (unsigned i = 0; i < count; i++)
		number = number << 8 | (unsigned char)data[i];
	return number;
}

static void frame_begin(struct bytes *out, unsigned type, unsigned channel, size_t size)
{
	amqp_put(out, type, 1);
	amqp_put(out, channel, 2);
	amqp_put(out, size, 4);
}

static void frame_end(struct bytes *out)
{
	amqp_put(out, FRAME_END, 1);
}

static void put_publish(struct bytes *out, const struct bytes *queue)
{
	if (queue->len > SHORT_STRING_MAX)
		die("the name of a queue has at most %d bytes", SHORT_STRING_MAX);
	frame_begin(out, FRAME_METHOD, CHANNEL, 4 + 2 + 1 + 1 + queue->len + 1);
	amqp_put(out, BASIC_PUBLISH, 4);
	amqp_put(out, 0, 2); /* reserved */
	amqp_put(out, 0, 1); /* the default exchange, which delivers to the queue of that name */
	amqp_put(out, queue->len, 1);
	bytes_put(out, queue->data, queue->len);
	amqp_put(out, PUBLISH_MANDATORY, 1);
	frame_end(out);
}

static void put_content(struct bytes *out, const struct bytes *body)
{
	const size_t piece_max = FRAME_BYTES_MAX - FRAME_AROUND_BYTES;

	frame_begin(out, FRAME_HEADER, CHANNEL, 2 + 2 + 8 + 2 + 1);
	amqp_put(out, BASIC_PUBLISH >> 16, 2);
	amqp_put(out, 0, 2); /* weight, unused */
	amqp_put(out, body->len, 8);
	amqp_put(out, HAS_DELIVERY_MODE, 2);
	amqp_put(out, PERSISTENT, 1);
	frame_end(out);
	for (size_t at = 0; at < body->len; at += piece_max) {
		const size_t rest = body->len - at, piece = rest < piece_max ? rest : piece_max;
		frame_begin(out, FRAME_BODY, CHANNEL, piece);
		bytes_put(out, body->data + at, piece);
		frame_end(out);
	}
}

static void amqp_render(struct request *r, const struct numbers *from, struct draw draw,
			struct bytes *out)
{
	bytes_reset(&r->scratch);
	template_put(&r->path, from, draw, &r->scratch);
	put_publish(out, &r->scratch);
	bytes_reset(&r->scratch);
	template_put(&r->body, from, draw, &r->scratch);
	put_content(out, &r->scratch);
}

/* Gathers bytes in p->line until there are `wanted` of them, which is at most REPLY_LINE_MAX. */
static bool amqp_gather(struct parser *p, size_t wanted, const char *data, size_t len,
			size_t *ret_used)
{
	const size_t missing = wanted - p->line_len;
	const size_t taken = len < missing ? len : missing;

	memcpy(p->line + p->line_len, data, taken);
	p->line_len += taken;
	*ret_used = taken;
	if (taken < missing)
		return false;
	p->line_len = 0;
	return true;
}

/* Methods are looked into; the header and the body of a returned message are passed over. */
static enum reply_state frame_head(struct parser *p)
{
	const uint64_t type = amqp_get(p->line, 1), size = amqp_get(p->line + 3, 4);

	if (type < FRAME_METHOD || type > FRAME_BODY || size > REPLY_BYTES_MAX)
		return REPLY_BROKEN;
	p->skip = size + 1; /* with the end of the frame */
	p->stage = type == FRAME_METHOD ? AMQP_METHOD : AMQP_SKIP;
	return type == FRAME_METHOD && p->skip < CONFIRM_BYTES ? REPLY_BROKEN : REPLY_MORE;
}

/* With one message under way, `multiple` says nothing new: the number must be this message's. */
static enum reply_state confirmed(const struct parser *p, bool acknowledged)
{
	if (p->skip != CONFIRM_BYTES || (unsigned char)p->line[CONFIRM_BYTES - 1] != FRAME_END ||
	    amqp_get(p->line + 4, 8) != p->turn)
		return REPLY_BROKEN;
	return acknowledged && !p->failed ? REPLY_OK : REPLY_ERROR;
}

/* p->line holds the first CONFIRM_BYTES of a method. */
static enum reply_state amqp_method(struct parser *p)
{
	switch (amqp_get(p->line, 4)) {
	case BASIC_ACK:
		return confirmed(p, true);
	case BASIC_NACK:
		return confirmed(p, false);
	case BASIC_RETURN: /* there is no such queue; the confirm follows */
		p->failed = true;
		p->skip -= CONFIRM_BYTES;
		p->stage = p->skip ? AMQP_SKIP : AMQP_HEAD;
		return REPLY_MORE;
	default: /* the broker closes the channel or the connection */
		return REPLY_BROKEN;
	}
}

static enum reply_state amqp_step(struct parser *p, const char *data, size_t len, size_t *ret_used)
{
	if (p->stage == AMQP_SKIP) {
		*ret_used = parser_skip(p, len);
		if (p->skip == 0)
			p->stage = AMQP_HEAD;
		return REPLY_MORE;
	}
	if (p->stage == AMQP_METHOD)
		return amqp_gather(p, CONFIRM_BYTES, data, len, ret_used) ? amqp_method(p)
									  : REPLY_MORE;
	return amqp_gather(p, FRAME_HEAD_BYTES, data, len, ret_used) ? frame_head(p) : REPLY_MORE;
}

/* -- the greeting: blocking, before the first request is due -- */

#define TEXT(bytes) (bytes), sizeof(bytes) - 1

/* What to await and what to send then; all sent frames are methods. */
static const struct {
	uint32_t awaited; /* 0: nothing */
	unsigned channel; /* of what is sent */
	const char *sent; /* the method and its arguments, or NULL */
	size_t sent_len;
} GREETING[] = {
	/* start-ok: no properties, user and password of a fresh broker */
	{ CONNECTION_START, 0,
	  TEXT("\0\x0a\0\x0b"
	       "\0\0\0\0"
	       "\5PLAIN"
	       "\0\0\0\x0c\0guest\0guest"
	       "\5en_US") },
	/* tune-ok: one channel, frames of FRAME_BYTES_MAX, no heartbeats */
	{ CONNECTION_TUNE, 0, TEXT("\0\x0a\0\x1f\0\x01\0\x02\0\0\0\0") },
	/* open: the virtual host "/" */
	{ 0, 0, TEXT("\0\x0a\0\x28\x01/\0\0") },
	{ CONNECTION_OPEN_OK, CHANNEL, TEXT("\0\x14\0\x0a\0") }, /* channel.open */
	{ CHANNEL_OPEN_OK, CHANNEL, TEXT("\0\x55\0\x0a\0") },    /* confirm.select */
	{ CONFIRM_SELECT_OK, 0, NULL, 0 },
};

static void amqp_read(int fd, char *data, size_t len)
{
	const ssize_t n = recv(fd, data, len, MSG_WAITALL);

	if (n != (ssize_t)len)
		die("the server hung up during the AMQP greeting: %s",
		    n < 0 ? strerror(errno) : "end of file");
}

static void amqp_write(int fd, const struct bytes *out)
{
	if (send(fd, out->data, out->len, MSG_NOSIGNAL) != (ssize_t)out->len)
		die("send: %s", strerror(errno));
}

/* Reads one frame, which must be this method. */
static void amqp_await(int fd, uint32_t method)
{
	char head[FRAME_HEAD_BYTES], payload[GREETING_BYTES_MAX];

	amqp_read(fd, head, sizeof(head));
	const uint64_t size = amqp_get(head + 3, 4);
	if (head[0] != FRAME_METHOD || size < 4 || size >= sizeof(payload))
		die("the greeting is not amqp");
	amqp_read(fd, payload, size + 1);
	const uint64_t got = amqp_get(payload, 4);
	if ((unsigned char)payload[size] != FRAME_END || got != method)
		die("the AMQP greeting has method %u.%u instead of %u.%u", (unsigned)(got >> 16),
		    (unsigned)(got & 0xffff), method >> 16, method & 0xffff);
	/* The broker would refuse our larger frames later, and say it less clearly. */
	if (method == CONNECTION_TUNE && size >= 10) {
		const uint64_t proposed = amqp_get(payload + 6, 4);
		if (proposed != 0 && proposed < FRAME_BYTES_MAX)
			die("the broker allows frames of %u bytes only", (unsigned)proposed);
	}
}

static void amqp_greet(int fd)
{
	struct bytes out = { 0 };

	bytes_put(&out, TEXT("AMQP\0\0\x09\x01"));
	amqp_write(fd, &out);
	for (size_t i = 0; i < sizeof(GREETING) / sizeof(GREETING[0]); i++) {
		if (GREETING[i].awaited)
			amqp_await(fd, GREETING[i].awaited);
		if (!GREETING[i].sent)
			continue;
		bytes_reset(&out);
		frame_begin(&out, FRAME_METHOD, GREETING[i].channel, GREETING[i].sent_len);
		bytes_put(&out, GREETING[i].sent, GREETING[i].sent_len);
		frame_end(&out);
		amqp_write(fd, &out);
	}
	bytes_done(&out);
}

const struct protocol protocol_amqp = { "amqp", amqp_render, amqp_step, amqp_greet };
