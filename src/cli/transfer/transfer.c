/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/transfer/transfer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "cli/show/show.h"
#include "cli/transfer/progress.h"

/* After the last byte the daemon makes a large file durable before it answers. */
#define SILENCE_MS 120000
#define CONNECTIONS_MAX 4 /* for one download, as long as each brings something */
#define DIGEST_BYTES 32
#define HASH_CHUNK_BYTES (256 * 1024)
#define ASK_MIN_BYTES (64 * 1024) /* below that, sending a file costs less than asking about it */

struct upload {
	struct cli *cli;
	int fd;
	int64_t size; /* -1: not known */
	int64_t left; /* of it */
	struct progress bar;
};

static void upload_done(struct upload *u)
{
	progress_end(&u->bar);
	if (u->fd > STDIN_FILENO)
		close(u->fd);
}

static size_t upload_give(void *arg, char *room, size_t n)
{
	struct upload *u = arg;
	ssize_t got;

	assert(u->fd >= 0 && u->left >= 0);
	if (u->size >= 0 && (int64_t)n > u->left)
		n = (size_t)u->left;
	if (n == 0)
		return 0;
	do
		got = read(u->fd, room, n);
	while (got < 0 && errno == EINTR);
	if (got < 0) {
		cli_fail(u->cli, OUTCOME_USAGE, "%s", strerror(errno));
		return SOURCE_FAILED;
	}
	if (got == 0 && u->left > 0) {
		cli_fail(u->cli, OUTCOME_USAGE, "it became shorter while it was read");
		return SOURCE_FAILED;
	}
	if (u->size >= 0)
		u->left -= got;
	return (size_t)got;
}

static bool start_over(void *arg)
{
	struct upload *u = arg;

	if (u->size < 0 || lseek(u->fd, 0, SEEK_SET) < 0)
		return false;
	u->left = u->size;
	return true;
}

static void show_sent(void *arg, int64_t sent)
{
	struct upload *u = arg;

	progress_at(&u->bar, sent);
}

static enum outcome open_source(const struct cli *cli, const char *path, struct upload *u)
{
	struct stat st;

	u->size = -1;
	if (strcmp(path, "-") == 0) {
		u->fd = STDIN_FILENO;
		return OUTCOME_OK;
	}
	u->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (u->fd < 0 || fstat(u->fd, &st) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", strerror(errno));
	if (S_ISDIR(st.st_mode))
		return cli_fail(cli, OUTCOME_USAGE, "it is a directory: give the files in it");
	if (S_ISREG(st.st_mode))
		u->size = u->left = st.st_size;
	return OUTCOME_OK;
}

static bool hash_file(int fd, EVP_MD_CTX *md)
{
	char *CLEANUP(mem_freep) chunk = mem_alloc(HASH_CHUNK_BYTES);
	ssize_t n;

	if (EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1)
		return false;
	do {
		n = read(fd, chunk, HASH_CHUNK_BYTES);
		if (n > 0 && EVP_DigestUpdate(md, chunk, (size_t)n) != 1)
			return false;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n == 0;
}

int64_t transfer_size(const char *path)
{
	struct stat st;

	if (strcmp(path, "-") == 0 || stat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size < ASK_MIN_BYTES)
		return -1;
	return st.st_size;
}

bool transfer_checksum(const char *path, char ret[static 65])
{
	unsigned char digest[DIGEST_BYTES];
	bool good = false;

	int fd = open(path, O_RDONLY | O_CLOEXEC);
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	if (fd >= 0 && md && hash_file(fd, md) && EVP_DigestFinal_ex(md, digest, NULL) == 1) {
		hex_encode(digest, sizeof(digest), ret);
		good = true;
	}
	EVP_MD_CTX_free(md);
	if (fd >= 0)
		close(fd);
	return good;
}

enum outcome transfer_up(struct cli *cli, const char *path, struct request *request,
			 struct answer *ret)
{
	struct upload CLEANUP(upload_done) u = { .cli = cli, .fd = -1 };

	enum outcome r = open_source(cli, path, &u);
	if (r != OUTCOME_OK)
		return r;
	const char *slash = strrchr(path, '/');
	progress_begin(&u.bar, cli, slash ? slash + 1 : path, 0, u.size);
	/* Who types does not want to be written over. */
	u.bar.is_shown &= !isatty(u.fd);
	request->source = &(struct source){ .give = upload_give,
					    .rewind = start_over,
					    .tick = show_sent,
					    .arg = &u,
					    .size = u.size };
	request->repeatable = true;
	request->timeout_ms = SILENCE_MS;
	r = client_call(cli, request, ret);
	request->source = NULL;
	return r;
}

/* A download while it runs. */
struct inflow {
	struct cli *cli;
	struct download *what;
	EVP_MD_CTX *hash;
	int64_t done;    /* bytes that were hashed and written */
	int64_t skip;    /* bytes that come again, of an answer that begins at the beginning */
	const char *bad; /* why it makes no sense to go on; in the run's arena */
	struct buf why;  /* what the client says about the last connection */
	struct progress bar;
};

static void inflow_done(struct inflow *in)
{
	progress_end(&in->bar);
	EVP_MD_CTX_free(in->hash);
	buf_done(&in->why);
}

static void add_to_hash(void *arg, const void *bytes, size_t n)
{
	EVP_DigestUpdate(arg, bytes, n);
}

static void start_hash(struct inflow *in)
{
	if (!in->hash)
		in->hash = EVP_MD_CTX_new();
	if (!in->hash || EVP_DigestInit_ex(in->hash, EVP_sha256(), NULL) != 1)
		abort();
}

static bool download_begin(void *arg, long status, const char *range)
{
	struct inflow *in = arg;

	in->skip = status == 200 ? in->done : 0;
	if (status == 200)
		return true;
	if (!range || strncmp(range, "bytes ", 6) != 0 || strtoll(range + 6, NULL, 10) != in->done)
		in->bad = "the daemon sends another part than was asked for";
	return !in->bad;
}

static bool download_take(void *arg, const char *bytes, size_t n)
{
	struct inflow *in = arg;
	size_t known = in->skip < (int64_t)n ? (size_t)in->skip : n;

	assert(in->skip >= 0 && in->done <= in->what->size);
	in->skip -= (int64_t)known;
	bytes += known;
	n -= known;
	if ((int64_t)n > in->what->size - in->done) {
		in->bad = "the daemon sends more than the attachment has";
		return false;
	}
	int number = in->what->part ? part_add(in->what->part, bytes, n)
				    : write_all(in->what->fd, bytes, n);
	if (number != 0) {
		in->bad = arena_printf(&in->cli->arena, "cannot write %s: %s",
				       in->what->part ? in->what->part->path : "the output",
				       strerror(number));
		return false;
	}
	add_to_hash(in->hash, bytes, n);
	in->done += (int64_t)n;
	return true;
}

static bool show_received(void *arg)
{
	struct inflow *in = arg;

	progress_at(&in->bar, in->done);
	return true;
}

/* One connection, to its end. */
static enum outcome download_receive(struct inflow *in)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct stream stream = {
		.begin = download_begin, .take = download_take, .tick = show_received, .arg = in
	};
	struct request request = { .method = "GET",
				   .path = "/v1/attachments/%/content",
				   .segments = { in->what->checksum },
				   .accept = "*/*",
				   .stream = &stream,
				   .timeout_ms = SILENCE_MS };
	char range[40], tag[80];

	if (in->done > 0) {
		snprintf(range, sizeof(range), "bytes=%lld-", (long long)in->done);
		snprintf(tag, sizeof(tag), "\"%s\"", in->what->checksum);
		request.headers[0].name = "Range", request.headers[0].value = range;
		request.headers[1].name = "If-Range", request.headers[1].value = tag;
	}
	buf_done(&in->why);
	in->cli->complaint = &in->why;
	enum outcome r = client_call(in->cli, &request, &answer);
	if (r == OUTCOME_OK && !in->bad && in->done < in->what->size)
		r = cli_fail(in->cli, OUTCOME_UNREACHABLE, "%s ended the answer too early",
			     in->cli->client.url);
	in->cli->complaint = NULL;
	return r;
}

/* What is left of it, over as many connections as it takes. */
static enum outcome receive_rest(struct inflow *in)
{
	enum outcome r = OUTCOME_OK;
	int64_t before;
	int connections = 0;

	assert(in->done >= 0 && in->done <= in->what->size);
	if (in->done == in->what->size)
		return OUTCOME_OK;
	do {
		before = in->done;
		r = download_receive(in);
	} while (r == OUTCOME_UNREACHABLE && !in->bad && in->done > before &&
		 ++connections < CONNECTIONS_MAX);
	return in->bad ? OUTCOME_REFUSED : r;
}

/* Says what went wrong, and that it can go on. */
static enum outcome download_explain(struct inflow *in, enum outcome how)
{
	struct buf CLEANUP(buf_done) have = { 0 };
	const struct part *part = in->what->part;
	const char *why = in->bad ? in->bad : buf_text(&in->why);

	assert(how != OUTCOME_OK);
	progress_end(&in->bar);
	if (!part || part->size == 0)
		return cli_fail(in->cli, how, "%s", why);
	text_bytes(&have, part->size);
	return cli_fail(in->cli, how, "%s; %s has %s of it, the same command goes on from there",
			why, part->path, buf_text(&have));
}

static bool is_right(struct inflow *in, char got[2 * DIGEST_BYTES + 1])
{
	unsigned char digest[EVP_MAX_MD_SIZE];

	assert(in->done == in->what->size);
	EVP_DigestFinal_ex(in->hash, digest, NULL);
	hex_encode(digest, DIGEST_BYTES, got);
	return strcmp(got, in->what->checksum) == 0;
}

static enum outcome reject(struct inflow *in, const char *got)
{
	const char *url = in->cli->client.url;

	progress_end(&in->bar);
	if (in->what->part && part_truncate(in->what->part) == 0)
		return cli_fail(in->cli, OUTCOME_REFUSED,
				"%s sent wrong bytes: their SHA-256 is %s; they are thrown away",
				url, got);
	return cli_fail(in->cli, OUTCOME_REFUSED,
			"%s sent wrong bytes: their SHA-256 is %s; do not use them", url, got);
}

/* Takes over what the part has. More than there can be is of something else. */
static enum outcome resume(struct inflow *in)
{
	struct part *part = in->what->part;

	start_hash(in);
	in->done = 0;
	if (part && part->size > in->what->size && part_truncate(part) != 0)
		return cli_fail(in->cli, OUTCOME_REFUSED, "cannot write %s", part->path);
	if (!part || part->size == 0)
		return OUTCOME_OK;
	enum outcome r = part_read(in->cli, part, add_to_hash, in->hash);
	in->done = in->what->resumed_at = part->size;
	return r;
}

/* The part was of something else: begins at the beginning. */
static enum outcome download_forget(struct inflow *in)
{
	assert(in->what->part && in->what->resumed_at > 0);
	start_hash(in);
	in->done = in->what->resumed_at = 0;
	if (part_truncate(in->what->part) == 0)
		return OUTCOME_OK;
	in->bad = "the part cannot be emptied";
	return OUTCOME_REFUSED;
}

enum outcome transfer_down(struct cli *cli, struct download *download)
{
	struct inflow CLEANUP(inflow_done) in = { .cli = cli, .what = download };
	char got[2 * DIGEST_BYTES + 1];
	bool right = false, again = true;

	download->resumed_at = 0;
	enum outcome r = resume(&in);
	if (r != OUTCOME_OK)
		return r;
	progress_begin(&in.bar, cli, download->label, in.done, download->size);
	while (r == OUTCOME_OK && again) {
		r = receive_rest(&in);
		right = r == OUTCOME_OK && is_right(&in, got);
		again = r == OUTCOME_OK && !right && download->resumed_at > 0;
		if (again)
			r = download_forget(&in);
	}
	if (r != OUTCOME_OK)
		return download_explain(&in, r);
	return right ? OUTCOME_OK : reject(&in, got);
}
