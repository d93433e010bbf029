/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics in Prometheus' text format.
 *
 * The families are rows here; their values live where they are counted (the engine, the HTTP
 * server), as plain integers and histograms, and are written when /metrics is read. No id of an
 * agent, mailbox or message is ever a label.
 *
 * To add a family: a row below, and a metrics_family() followed by its samples where the value is.
 */
#ifndef LAPSE_BASE_METRICS_H
#define LAPSE_BASE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"

#define METRICS(X)                                                                                 \
	X(PRUNED, "lifecycle_prune_rows_total", "counter", "Rows removed by sweeps")               \
	X(TICK_ERRORS, "lifecycle_tick_errors_total", "counter", "Sweeps that failed")             \
	X(EXPIRY_LAG, "lapse_expiry_lag_seconds", "histogram",                                     \
	  "Time from a row's deadline to its removal")                                             \
	X(TABLE_LAG, "lapse_table_expiry_lag_seconds", "summary",                                  \
	  "The same by table: the sum, and how many removals")                                     \
	X(DUE_ROWS, "lapse_due_rows", "gauge", "Rows past their deadline and not yet removed")     \
	X(OLDEST_DUE, "lapse_oldest_due_seconds", "gauge", "Age of the oldest due row")            \
	X(LIVE_ROWS, "lapse_live_rows", "gauge", "Rows in the table")                              \
	X(UNDELETABLE, "lapse_undeletable_rows", "gauge",                                          \
	  "Rows past their deadline that stay, by what keeps them")                                \
	X(LAST_SUCCESS, "lapse_last_success_timestamp_seconds", "gauge",                           \
	  "When a sweep of the table last ended well, as a Unix time; 0 = not yet")                \
	X(PACE, "lapse_prune_rows_per_second", "gauge",                                            \
	  "Pace of the last sweep that removed rows, or of the one under way; 0 = not known")      \
	X(CLEARS, "lapse_clear_seconds", "gauge", "Estimated time until no row is due any more")   \
	X(AGENTS, "lapse_agents_tracked", "gauge", "Live agents")                                  \
	X(AGENTS_SUSPECT, "lapse_agents_suspect", "gauge",                                         \
	  "Agents that fell silent with most of their fleet: absent, but on record")               \
	X(BREAKERS_OPEN, "lapse_breakers_open", "gauge",                                           \
	  "Owners whose fleet fell silent, so that its agents are suspects")                       \
	X(ATTACHMENTS, "lapse_attachments", "gauge", "Attachments that are stored")                \
	X(ATTACHMENT_BYTES, "lapse_attachment_bytes", "gauge", "Bytes of the attachments")         \
	X(ATTACHMENTS_MENDED, "lapse_attachments_mended_total", "counter",                         \
	  "Rows without a file and files without a row that were found")                           \
	X(MAIL_ARRIVED, "lapse_mail_arrived_total", "counter",                                     \
	  "Mail that came by LMTP, counted for each recipient")                                    \
	X(WEBHOOKS, "lapse_webhook_posts_total", "counter", "Posts of webhooks by their result")   \
	X(TRANSFERS, "lapse_transfers", "gauge", "Uploads and downloads under way")                \
	X(BODIES_WAITED, "lapse_bodies_waited_total", "counter",                                   \
	  "Times a part of a long body waited because many came at once")                          \
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
	X(LOOP_STALL, "lapse_loop_stall_seconds", "histogram",                                     \
	  "Time the loop worked before it looked for new events: all others wait so long")         \
	X(LOOP_STALL_MAX, "lapse_loop_stall_max_seconds", "gauge", "The longest since the start")  \
	X(CLOCK_TRUSTED, "lapse_clock_trusted", "gauge", "0 while the wall clock has leapt")       \
	X(WAL_BYTES, "lapse_wal_bytes", "gauge", "Size of SQLite's write-ahead log")               \
	X(DATABASE_BYTES, "lapse_database_bytes", "gauge",                                         \
	  "Size of the database, without its write-ahead log")                                     \
	X(STORE_RECONNECTS, "lapse_store_reconnects_total", "counter",                             \
	  "Times that a lost connection to PostgreSQL was made anew")                              \
	X(REPLICAS, "lapse_replicas", "gauge", "Live replicas of the cluster, this one included")  \
	X(SCHEDULERS_LED, "lapse_schedulers_led", "gauge", "Schedulers that this replica leads")   \
	X(REPLICAS_LAG, "lapse_replicas_lag_seconds", "gauge",                                     \
	  "How long ago the heartbeats of all replicas were last known here")                      \
	X(DISK_FREE, "lapse_disk_free_bytes", "gauge", "Free space where the data lies")           \
	X(UNREAD, "lapse_messages_unread", "gauge", "Unread messages of all agents")               \
	X(TAIL, "lapse_message_tail", "gauge", "New messages that are not filed yet")              \
	X(TAIL_BYTES, "lapse_message_tail_bytes", "gauge", "Memory of these messages' index")      \
	X(FILED, "lapse_messages_filed_total", "counter", "Messages filed since the start")        \
	X(PROCESS_CPU, "process_cpu_seconds_total", "counter", "Processor time, user and system")  \
	X(PROCESS_START, "process_start_time_seconds", "gauge", "Start, as a Unix time")           \
	X(PROCESS_RESIDENT, "process_resident_memory_bytes", "gauge", "Memory in use")             \
	X(PROCESS_VIRTUAL, "process_virtual_memory_bytes", "gauge", "Address space in use")        \
	X(PROCESS_FDS, "process_open_fds", "gauge", "Open file descriptors")                       \
	X(PROCESS_FDS_MAX, "process_max_fds", "gauge", "File descriptors it may open")             \
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
void metrics_sample_exact(struct buf *out, enum metric m, const char *labels, double value);

void metrics_sum(struct buf *out, enum metric m, const char *labels, double sum, int64_t count);

/* With `detail` every bucket, otherwise every third: for families with many label values. */
void metrics_histogram(struct buf *out, enum metric m, const char *labels, enum histogram_unit unit,
		       const struct histogram *h, bool detail);

#endif
