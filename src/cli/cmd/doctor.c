/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lapse doctor: looks at this machine as a daemon would find it. It uses the settings
 * of the daemon if it answers and the caller may see them, otherwise those of a daemon started
 * here. Each check is one function that says what it found; nothing is changed.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/settings.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define DISK_LOW_PERCENT 5
#define SKEW_MAX_MS 5000         /* between this machine's clock and the daemon's */
#define CERTIFICATE_SOON_DAYS 14 /* renew it before the fleet notices */
#define DATABASE_FILE "lapse.db"
#define DATABASE_MAGIC "SQLite format 3"

struct doctor {
	struct cli *cli;
	json_t *settings; /* name: value */
	json_t *rows;     /* what was found */
	bool is_up;       /* the daemon answers */
	bool is_sick;     /* some check failed */
};

static void doctor_done(struct doctor *d)
{
	json_decref(d->settings);
	json_decref(d->rows);
}

/* Notes what a check found. `help` is what to do about it; NULL when it is well. */
static void doctor_note(struct doctor *d, const char *check, const char *help, const char *format,
			...) __attribute__((format(printf, 4, 5)));

static void doctor_note(struct doctor *d, const char *check, const char *help, const char *format,
			...)
{
	json_t *row = json_object();
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	json_object_set_new(row, "check", json_string(check));
	json_object_set_new(row, "state", json_string(help ? "problem" : "ok"));
	json_object_set_new(row, "found", json_string(text));
	json_object_set_new(row, "help", help ? json_string(help) : json_null());
	json_array_append_new(d->rows, row);
	d->is_sick |= help != NULL;
}

static const char *doctor_setting(const struct doctor *d, const char *name)
{
	const char *value = json_string_value(json_object_get(d->settings, name));

	return value ? value : "";
}

static const char *doctor_data_dir(const struct doctor *d)
{
	if (args_has(&d->cli->args, OPT_DATA_DIR))
		return d->cli->args.text[OPT_DATA_DIR];
	return doctor_setting(d, "data_dir");
}

static void doctor_take_settings(struct doctor *d, const json_t *answer)
{
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(answer, "data"), i, row) {
		const char *name = json_string_value(json_object_get(row, "name"));
		if (name)
			json_object_set(d->settings, name, json_object_get(row, "value"));
	}
}

/* The daemon's, or those of this place. */
static void learn_settings(struct doctor *d)
{
	struct settings CLEANUP(settings_done) own;
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) ignored = { 0 };
	struct buf CLEANUP(buf_done) text = { 0 };
	struct problem p = { 0 };

	assert(!d->cli->complaint);
	settings_init(&own);
	d->cli->complaint = &ignored;
	enum outcome r = client_call(
		d->cli, &(struct request){ .method = "GET", .path = "/v1/settings" }, &answer);
	d->cli->complaint = NULL;
	if (r == OUTCOME_OK) {
		doctor_take_settings(d, answer.json);
		doctor_note(d, "settings", NULL, "those of the daemon");
		return;
	}
	int err = settings_load(&own, 0, NULL, environ, &p);
	settings_write_json(&own, &text);
	json_t *CLEANUP(json_freep) here = json_loadb(buf_text(&text), text.len, 0, NULL);
	doctor_take_settings(d, here);
	doctor_note(d, "settings", err < 0 ? "correct the settings" : NULL, "%s",
		    err < 0 ? problem_text(&p, err) : "those of a daemon started here");
}

static void doctor_daemon(struct doctor *d)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) why = { 0 };

	assert(!d->cli->complaint);
	d->cli->complaint = &why;
	enum outcome r = client_call(
		d->cli, &(struct request){ .method = "GET", .path = "/readyz", .any_status = true },
		&answer);
	d->cli->complaint = NULL;
	d->is_up = r == OUTCOME_OK;
	if (!d->is_up)
		doctor_note(d, "daemon", "start lapsed, or give --url", "%s", buf_text(&why));
	else if (answer.status != 200)
		doctor_note(d, "daemon", "lapse status", "%s answers, but is not ready",
			    d->cli->client.url);
	else
		doctor_note(d, "daemon", NULL, "%s is ready", d->cli->client.url);
}

/* Trusted time against the wall clock, and the daemon's clock against ours. */
static void doctor_clock(struct doctor *d)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) why = { 0 };
	lapse_ms wall = 0;

	if (!d->is_up)
		return;
	d->cli->complaint = &why;
	enum outcome r = client_call(
		d->cli, &(struct request){ .method = "GET", .path = "/v1/clock" }, &answer);
	d->cli->complaint = NULL;
	const char *text = json_string_value(json_object_get(answer.json, "wall"));
	const char *state = json_string_value(json_object_get(answer.json, "state"));
	if (r != OUTCOME_OK || !text || !state || !time_parse(text, &wall)) {
		doctor_note(d, "clock", "set LAPSE_TOKEN or give --token-file", "not known: %s",
			    buf_text(&why));
		return;
	}
	lapse_ms skew = time_sub(clock_wall(d->cli->clock), wall);
	struct buf CLEANUP(buf_done) span = { 0 };
	text_span(&span, skew < 0 ? -skew : skew);
	if (strcmp(state, "trusted") != 0)
		doctor_note(d, "clock", "lapse clock", "the wall clock has leapt");
	else if (skew > SKEW_MAX_MS || skew < -SKEW_MAX_MS)
		doctor_note(d, "clock", "set up time synchronization on both machines",
			    "this machine's clock and the daemon's differ by %s", buf_text(&span));
	else
		doctor_note(d, "clock", NULL, "trusted, and the same as here");
}

/* Whether the directory is ours alone. */
static bool doctor_directory(struct doctor *d)
{
	const char *dir = doctor_data_dir(d);
	struct stat st;

	if (stat(dir, &st) < 0) {
		bool fresh = errno == ENOENT && !d->is_up;
		doctor_note(d, "data directory",
			    fresh ? NULL : "give --data-dir, or run doctor where the daemon runs",
			    "%s: %s", dir,
			    fresh ? "is not there yet; lapsed will make it" : strerror(errno));
		return false;
	}
	if (!S_ISDIR(st.st_mode))
		doctor_note(d, "data directory", "choose another data_dir", "%s is no directory",
			    dir);
	else if (st.st_mode & 077)
		doctor_note(d, "data directory", "chmod 700",
			    "%s can be read by others (mode %03o)", dir,
			    (unsigned)(st.st_mode & 0777));
	else if (geteuid() != 0 && st.st_uid != geteuid())
		doctor_note(d, "data directory", "run doctor as the daemon's user",
			    "%s belongs to another user (uid %u)", dir, (unsigned)st.st_uid);
	else
		doctor_note(d, "data directory", NULL, "%s, for its owner only", dir);
	return S_ISDIR(st.st_mode);
}

/* The daemon holds the lock; without one nothing else may. */
static void doctor_lock(struct doctor *d)
{
	struct buf CLEANUP(buf_done) path = { 0 };

	buf_printf(&path, "%s/lock", doctor_data_dir(d));
	int fd = open(buf_text(&path), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	bool taken = (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) ||
		     (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	close(fd);
	if (taken && !d->is_up)
		doctor_note(d, "lock", "end the other process, or give its --url",
			    "another process uses the data directory");
	else
		doctor_note(d, "lock", NULL, taken ? "held by the daemon" : "free");
}

/* 0 = a daemon could listen there, else the errno of the attempt. */
static int try_unix(const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), number = 0;

	if (fd < 0 || strlen(path) >= sizeof(to.sun_path))
		number = fd < 0 ? errno : ENAMETOOLONG;
	if (number == 0) {
		memcpy(to.sun_path, path, strlen(path) + 1);
		if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
			number = EADDRINUSE; /* a socket that was left behind refuses */
	}
	if (fd >= 0)
		close(fd);
	return number;
}

static int try_tcp(const char *address)
{
	const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	const char *colon = strrchr(address, ':'), *from = address + (address[0] == '[');
	struct addrinfo *found = NULL;
	char host[256];
	int number = 0, on = 1;

	if (!colon || colon - from >= (ptrdiff_t)sizeof(host))
		return EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - from), from);
	host[strcspn(host, "]")] = '\0';
	if (getaddrinfo(host, colon + 1, &wanted, &found) != 0)
		return EADDRNOTAVAIL;
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, 1) < 0)
		number = errno;
	if (fd >= 0)
		close(fd);
	freeaddrinfo(found);
	return number;
}

/* Whether a daemon could listen where it would. Of one that runs the settings may not be known. */
static void doctor_port(struct doctor *d)
{
	const char *address = doctor_setting(d, "listen");

	if (d->is_up || address[0] == '\0')
		return;
	int number = strncmp(address, "unix:", 5) == 0 ? try_unix(address + 5) : try_tcp(address);
	if (number == EADDRINUSE)
		doctor_note(d, "port", "end the other process, or choose another listen",
			    "another process listens on %s", address);
	else if (number != 0)
		doctor_note(d, "port", "choose another listen", "%s: %s", address,
			    strerror(number));
	else
		doctor_note(d, "port", NULL, "%s is free", address);
}

static void doctor_disk(struct doctor *d)
{
	struct statvfs fs;
	struct buf CLEANUP(buf_done) free_text = { 0 };

	if (statvfs(doctor_data_dir(d), &fs) < 0 || fs.f_blocks == 0)
		return;
	double percent = 100.0 * (double)fs.f_bavail / (double)fs.f_blocks;
	text_bytes(&free_text, (int64_t)(fs.f_bavail * fs.f_frsize));
	doctor_note(d, "disk",
		    percent < DISK_LOW_PERCENT ? "free some space, or move the data directory"
					       : NULL,
		    "%s free (%.0f %%)", buf_text(&free_text), percent);
}

static void doctor_database(struct doctor *d)
{
	struct buf CLEANUP(buf_done) path = { 0 };
	char magic[sizeof(DATABASE_MAGIC)] = "";

	if (strcmp(doctor_setting(d, "store"), "sqlite") != 0) {
		/* What the daemon can reach need not be reachable from here. */
		doctor_note(d, "database", NULL,
			    d->is_up ? "PostgreSQL, see daemon above"
				     : "PostgreSQL, which lapsed checks when it starts");
		return;
	}
	buf_printf(&path, "%s/" DATABASE_FILE, doctor_data_dir(d));
	int fd = open(buf_text(&path), O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		doctor_note(d, "database", errno == ENOENT ? NULL : "check its permissions",
			    errno == ENOENT ? "none yet" : "cannot be read: %s", strerror(errno));
		return;
	}
	ssize_t n = read(fd, magic, sizeof(magic));
	close(fd);
	if (n == 0 ||
	    (n == (ssize_t)sizeof(magic) && memcmp(magic, DATABASE_MAGIC, sizeof(magic)) == 0))
		doctor_note(d, "database", NULL, "%s", buf_text(&path));
	else
		doctor_note(d, "database", "lapse restore puts a backup in place",
			    "%s is no SQLite database", buf_text(&path));
}

/* When a certificate ends. */
static void doctor_certificate(struct doctor *d)
{
	const char *path = doctor_setting(d, "tls_cert");
	int days = 0, seconds = 0;

	if (path[0] == '\0')
		return;
	FILE *f = fopen(path, "re");
	X509 *cert = f ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
	if (!f)
		doctor_note(d, "certificate", "correct tls_cert", "%s: %s", path, strerror(errno));
	else if (!cert || ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(cert)) != 1)
		doctor_note(d, "certificate", "correct tls_cert", "%s holds no certificate", path);
	else if (days < 0 || seconds < 0)
		doctor_note(d, "certificate", "renew it", "%s has expired", path);
	else
		doctor_note(d, "certificate", days < CERTIFICATE_SOON_DAYS ? "renew it" : NULL,
			    "%s is valid for %d more days", path, days);
	X509_free(cert);
	if (f)
		fclose(f);
}

static void doctor_key(struct doctor *d)
{
	const char *path = doctor_setting(d, "tls_key");
	struct stat st;

	if (path[0] == '\0')
		return;
	if (stat(path, &st) < 0)
		doctor_note(d, "private key", "correct tls_key", "%s: %s", path, strerror(errno));
	else if (st.st_mode & 077)
		doctor_note(d, "private key", "chmod 600", "%s can be read by others", path);
	else
		doctor_note(d, "private key", NULL, "%s", path);
}

enum outcome cmd_doctor(struct cli *cli)
{
	static const struct column columns[] = {
		{ "CHECK", "check", CELL_TEXT },
		{ "STATE", "state", CELL_STATE },
		{ "FOUND", "found", CELL_TEXT },
		{ "HELP", "help", CELL_TEXT },
		{ 0 },
	};
	struct doctor CLEANUP(doctor_done)
		d = { .cli = cli, .settings = json_object(), .rows = json_array() };
	json_t *CLEANUP(json_freep) all = json_object();

	doctor_daemon(&d);
	learn_settings(&d);
	doctor_clock(&d);
	if (doctor_directory(&d)) {
		doctor_lock(&d);
		doctor_disk(&d);
		doctor_database(&d);
	}
	doctor_port(&d);
	doctor_certificate(&d);
	doctor_key(&d);
	json_object_set(all, "data", d.rows);
	enum outcome r = OUTCOME_OK;
	if (!show_made_json(cli, all))
		r = show_rows(cli, d.rows, columns, "nothing to check");
	return r == OUTCOME_OK && d.is_sick ? OUTCOME_REFUSED : r;
}
