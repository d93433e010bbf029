/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics in Prometheus' text format.
 *
 * The families are rows here; their values live with whoever counts them (the engine, the HTTP
 * server), as plain integers and histograms, and are written when somebody asks. No id of an
 * agent, mailbox or message is ever a label.
 *
 * To add a family: a row below, and a metrics_family() followed by its samples where the value is.
 */
#ifndef LAPSE_BASE_METRICS_H
#define LAPSE_BASE_METRICS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"

#define METRICS(X)                                                                                 \
	X(PRUNED, "lifecycle_prune_rows_total", "counter", "Rows removed by sweeps")               \
	X(TICK_ERRORS, "lifecycle_tick_errors_total", "counter", "Sweeps that failed")             \
	X(EXPIRY_LAG, "lapse_expiry_lag_seconds", "histogram",                                     \
	  "Time from a row's deadline to its removal")                                             \
	X(DUE_ROWS, "lapse_due_rows", "gauge", "Rows past their deadline and not yet removed")     \
	X(OLDEST_DUE, "lapse_oldest_due_seconds", "gauge", "Age of the oldest due row")            \
	X(LIVE_ROWS, "lapse_live_rows", "gauge", "Rows in the table")                              \
	X(AGENTS, "lapse_agents_tracked", "gauge", "Agents that are known")                        \
	X(AGENTS_SUSPECT, "lapse_agents_suspect", "gauge",                                         \
	  "Agents that get one more threshold because half of the fleet fell silent")              \
	X(ATTACHMENTS, "lapse_attachments", "gauge", "Attachments that are stored")                \
	X(ATTACHMENT_BYTES, "lapse_attachment_bytes", "gauge", "Bytes of the attachments")         \
	X(ATTACHMENTS_MENDED, "lapse_attachments_mended_total", "counter",                         \
	  "Rows without a file and files without a row that were found")                           \
	X(TRANSFERS, "lapse_transfers", "gauge", "Uploads and downloads under way")                \
	X(SWEEP_SECONDS, "lapse_sweep_seconds", "histogram", "Time of a whole sweep")              \
	X(DEAD_LETTERS, "lapse_dead_letters", "gauge", "Deletions outside that gave up")           \
	X(HTTP_REQUESTS, "lapse_http_requests_total", "counter", "Answers by route and status")    \
	X(HTTP_SECONDS, "lapse_http_request_seconds", "histogram",                                 \
	  "Time from a complete request to its answer")                                            \
	X(HTTP_CONNECTIONS, "lapse_http_connections", "gauge", "Open connections")                 \
	X(STREAMS, "lapse_streams", "gauge", "Open streams of events")                             \
	X(STREAM_GAPS, "lapse_stream_gaps_total", "counter",                                       \
	  "Times a stream was told that events are missing")                                       \
	X(COMMIT_SECONDS, "lapse_commit_seconds", "histogram", "Time of a commit")                 \
	X(COMMIT_BATCH, "lapse_commit_batch_size", "histogram", "Requests that shared a commit")   \
	X(CLOCK_TRUSTED, "lapse_clock_trusted", "gauge", "0 while the wall clock has leapt")       \
	X(WAL_BYTES, "lapse_wal_bytes", "gauge", "Size of SQLite's write-ahead log")               \
	X(BUILD_INFO, "lapse_build_info", "gauge", "Always 1; the version is a label")

enum metric {
#define X(name, text, type, help) METRIC_##name,
	METRICS(X)
#undef X
};

#define HISTOGRAM_BUCKETS 14

/* Upper bounds are 1, 2.5, 5 times powers of ten; `unit` says what the smallest is. */
enum histogram_unit {
	HISTOGRAM_SECONDS,  /* 10 µs … 10 s and beyond; values are microseconds */
	HISTOGRAM_LAG,      /* 1 ms … 10 h and beyond; values are microseconds */
	HISTOGRAM_REQUESTS, /* 1 … 8192; values are counts */
};

struct histogram {
	uint64_t counts[HISTOGRAM_BUCKETS + 1]; /* the last is +Inf */
	uint64_t sum;
};

void histogram_add(struct histogram *h, enum histogram_unit unit, int64_t value);
void histogram_add_many(struct histogram *h, enum histogram_unit unit, int64_t value,
			uint64_t times);

/* Writes # HELP and # TYPE. The samples of the family must follow at once. */
void metrics_family(struct buf *out, enum metric m);

/* One sample; `labels` is "" or `name="value",…` with values already safe. */
void metrics_sample(struct buf *out, enum metric m, const char *labels, int64_t value);
void metrics_sample_real(struct buf *out, enum metric m, const char *labels, double value);
void metrics_histogram(struct buf *out, enum metric m, const char *labels, enum histogram_unit unit,
		       const struct histogram *h);

#endif
