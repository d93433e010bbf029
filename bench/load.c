/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_load: one load generator for HTTP, for Redis and for AMQP 0-9-1. Reads the command line,
 * runs the engine, prints one JSON object. bench/README.md shows how the rows of the benchmark use
 * it.
 *
 * Exit status: 0 all answers were good; 1 some were errors or never came; 2 it could not run.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine.h"

#define SECONDS_MAX 3600.0
#define RATE_MAX 10000000ull

/* The command line as written; load_init turns it into a struct load. */
struct options {
	const char *http, *resp, *amqp, *method, *path, *queue, *body, *type, *item, *join;
	const char *headers[REQUEST_HEADERS_MAX];
	size_t header_count;
	unsigned long long connections, requests, rate, spread, list, seed;
	double seconds, drain_s;
	bool allow_errors, help;
};

enum option_kind { OPTION_TEXT, OPTION_WHOLE, OPTION_SECONDS, OPTION_FLAG, OPTION_HEADER };

/* To add an option: a field above and a row below; parsing and --help read the same rows. */
struct option_row {
	const char *name, *value, *help;
	enum option_kind kind;
	size_t offset;
	unsigned long long max; /* of OPTION_WHOLE */
};

#define AT(field) offsetof(struct options, field)
/* clang-format off */
static const struct option_row ROWS[] = {
	{ "http", "HOST:PORT", "the peer, if it speaks HTTP", OPTION_TEXT, AT(http), 0 },
	{ "resp", "HOST:PORT", "the peer, if it is Redis", OPTION_TEXT, AT(resp), 0 },
	{ "amqp", "HOST:PORT", "the peer, if it is RabbitMQ; user and password guest", OPTION_TEXT, AT(amqp), 0 },
	{ "method", "NAME", "of the HTTP request (POST with a body, else GET)", OPTION_TEXT, AT(method), 0 },
	{ "path", "TEMPLATE", "of the HTTP request", OPTION_TEXT, AT(path), 0 },
	{ "queue", "TEMPLATE", "where AMQP messages go; it must exist", OPTION_TEXT, AT(queue), 0 },
	{ "body", "TEMPLATE", "of the HTTP request or of the AMQP message", OPTION_TEXT, AT(body), 0 },
	{ "type", "NAME", "media type of the body (application/json)", OPTION_TEXT, AT(type), 0 },
	{ "header", "'NAME: V'", "one more header of it, up to 8", OPTION_HEADER, 0, 0 },
	{ "connections", "N", "one request is under way on each (64)", OPTION_WHOLE, AT(connections), ENGINE_CONNECTIONS_MAX },
	{ "seconds", "S", "how long to send (5, or 3600 with --requests)", OPTION_SECONDS, AT(seconds), 0 },
	{ "requests", "N", "stop sending after N", OPTION_WHOLE, AT(requests), UINT64_MAX },
	{ "rate", "N", "open loop: N a second, latency from when each was due", OPTION_WHOLE, AT(rate), RATE_MAX },
	{ "drain-seconds", "S", "how long to await the last answers (30)", OPTION_SECONDS, AT(drain_s), 0 },
	{ "spread", "N", "numbers in templates are 0 to N-1 (1)", OPTION_WHOLE, AT(spread), UINT32_MAX },
	{ "list", "N", "items of a %L in a template (0)", OPTION_WHOLE, AT(list), UINT32_MAX },
	{ "item", "TEMPLATE", "one item of it (%u)", OPTION_TEXT, AT(item), 0 },
	{ "join", "TEXT", "what stands between two items (,)", OPTION_TEXT, AT(join), 0 },
	{ "seed", "N", "of the random numbers (1)", OPTION_WHOLE, AT(seed), UINT64_MAX },
	{ "allow-errors", "", "error answers are counted but do not fail the run", OPTION_FLAG, AT(allow_errors), 0 },
	{ "help", "", "this text", OPTION_FLAG, AT(help), 0 },
};
/* clang-format on */
#define ROWS_COUNT (sizeof(ROWS) / sizeof(ROWS[0]))

static void print_usage(FILE *to)
{
	fputs("usage: bench_load --http HOST:PORT --path TEMPLATE [options]\n"
	      "       bench_load --resp HOST:PORT [options] -- COMMAND [ARGUMENT...]\n"
	      "       bench_load --amqp HOST:PORT --queue TEMPLATE --body TEMPLATE [options]\n\n",
	      to);
	for (size_t i = 0; i < ROWS_COUNT; i++)
		fprintf(to, "  --%-13s %-9s  %s\n", ROWS[i].name, ROWS[i].value, ROWS[i].help);
	fputs("\nIn templates: %u or %05u a random number below the spread, %n the place in the\n"
	      "sequence modulo the spread, %L a list of distinct numbers, %% a percent sign.\n"
	      "In an item %n goes on from item to item and from list to list.\n",
	      to);
}

static unsigned long long whole(const char *text, unsigned long long max)
{
	char *end;
	const unsigned long long value = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end != '\0' || value > max)
		die("'%s' is not a number from 0 to %llu", text, max);
	return value;
}

static double seconds(const char *text)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= 0 && value <= SECONDS_MAX))
		die("'%s' is not a number of seconds from 0 to %.0f", text, SECONDS_MAX);
	return value;
}

static void add_header(struct options *o, const char *header)
{
	if (o->header_count == REQUEST_HEADERS_MAX)
		die("more than %d headers", REQUEST_HEADERS_MAX);
	o->headers[o->header_count++] = header;
}

static void take_option(struct options *o, const struct option_row *row, const char *value)
{
	void *field = (char *)o + row->offset;

	switch (row->kind) {
	case OPTION_TEXT:
		*(const char **)field = value;
		break;
	case OPTION_WHOLE:
		*(unsigned long long *)field = whole(value, row->max);
		break;
	case OPTION_SECONDS:
		*(double *)field = seconds(value);
		break;
	case OPTION_FLAG:
		*(bool *)field = true;
		break;
	case OPTION_HEADER:
		add_header(o, value);
		break;
	}
}

/* Returns the index of the first word behind the options. */
static int take_options(struct options *o, int argc, char **argv)
{
	struct option known[ROWS_COUNT + 1] = { 0 };
	int found, row = 0;

	for (size_t i = 0; i < ROWS_COUNT; i++) {
		known[i].name = ROWS[i].name;
		known[i].has_arg = ROWS[i].kind == OPTION_FLAG ? no_argument : required_argument;
	}
	while ((found = getopt_long(argc, argv, "+", known, &row)) != -1) {
		if (found != 0)
			exit(2); /* getopt_long has said what is wrong */
		take_option(o, &ROWS[row], optarg);
	}
	return optind;
}

static void parse_address(const char *text, struct sockaddr_in *ret)
{
	char host[INET_ADDRSTRLEN] = "";
	const char *colon = strrchr(text, ':');

	*ret = (struct sockaddr_in){ .sin_family = AF_INET };
	if (colon && (size_t)(colon - text) < sizeof(host))
		memcpy(host, text, (size_t)(colon - text));
	if (inet_pton(AF_INET, host, &ret->sin_addr) != 1)
		die("'%s' is not an IPv4 address and a port", text);
	ret->sin_port = htons((uint16_t)whole(colon + 1, UINT16_MAX));
}

static void request_http(struct request *r, const struct options *o, int extra)
{
	if (!o->path || extra > 0)
		die("--http needs --path and nothing behind the options");
	r->method = o->method ? o->method : o->body ? "POST" : "GET";
	r->host = o->http;
	r->has_body = o->body != NULL;
	r->type = o->type;
	r->header_count = o->header_count;
	memcpy(r->headers, o->headers, sizeof(r->headers));
	template_parse(&r->path, o->path);
	template_parse(&r->body, o->body ? o->body : "");
}

static void request_resp(struct request *r, int count, char **args)
{
	if (count < 1 || count > REQUEST_ARGS_MAX)
		die("--resp needs a command of 1 to %d words behind --", REQUEST_ARGS_MAX);
	for (int i = 0; i < count; i++)
		template_parse(&r->args[i], args[i]);
	r->arg_count = (size_t)count;
}

static void request_amqp(struct request *r, const struct options *o, int extra)
{
	if (!o->queue || !o->body || extra > 0)
		die("--amqp needs --queue, --body and nothing behind the options");
	template_parse(&r->path, o->queue);
	template_parse(&r->body, o->body);
}

static void load_init(struct load *load, struct options *o, int count, char **args)
{
	if (!!o->http + !!o->resp + !!o->amqp != 1 || o->connections == 0)
		die("one peer (--http, --resp or --amqp) and a connection are needed; see --help");
	if (o->seconds <= 0)
		o->seconds = o->requests ? SECONDS_MAX : 5;

	*load = (struct load){
		.protocol = o->http   ? &protocol_http
			    : o->resp ? &protocol_resp
				      : &protocol_amqp,
		.connections = (uint32_t)o->connections,
		.requests_max = o->requests ? o->requests : UINT64_MAX,
		.duration_ns = (uint64_t)(o->seconds * 1e9),
		.drain_ns = (uint64_t)(o->drain_s * 1e9),
		.rate = o->rate,
		.allow_errors = o->allow_errors,
	};
	parse_address(o->http ? o->http : o->resp ? o->resp : o->amqp, &load->address);
	numbers_init(&load->numbers, o->seed, (uint32_t)o->spread, (uint32_t)o->list, o->item,
		     o->join);
	if (o->http)
		request_http(&load->request, o, count);
	else if (o->amqp)
		request_amqp(&load->request, o, count);
	else
		request_resp(&load->request, count, args);
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void print_latency(const struct hist *h)
{
	static const struct {
		const char *name;
		double share;
	} QUANTILES[] = {
		{ "p50", 0.50 },
		{ "p90", 0.90 },
		{ "p99", 0.99 },
		{ "p99.9", 0.999 },
	};

	printf(" \"latency_us\": {\"mean\": %.1f", hist_mean(h) / 1e3);
	for (size_t i = 0; i < sizeof(QUANTILES) / sizeof(QUANTILES[0]); i++)
		printf(", \"%s\": %.1f", QUANTILES[i].name,
		       (double)hist_quantile(h, QUANTILES[i].share) / 1e3);
	printf(", \"max\": %.1f}", (double)h->max / 1e3);
}

static void print_result(const struct load *load, const struct result *r)
{
	printf("{\"protocol\": \"%s\", \"loop\": \"%s\", \"connections\": %u, \"offered_rate\": "
	       "%llu,",
	       load->protocol->name, load->rate ? "open" : "closed", load->connections,
	       (unsigned long long)load->rate);
	printf(" \"answered\": %llu, \"errors\": %llu, \"unfinished\": %llu, \"seconds\": %.6f,",
	       (unsigned long long)r->answered, (unsigned long long)r->errors,
	       (unsigned long long)r->unfinished, r->elapsed_s);
	printf(" \"rate\": %.1f, \"send_lag_us\": %.1f, \"client_cpu_us\": %.3f,",
	       r->elapsed_s > 0 ? (double)r->answered / r->elapsed_s : 0.0, r->send_lag_s * 1e6,
	       r->answered ? cpu_seconds() * 1e6 / (double)r->answered : 0.0);
	printf(" \"bytes_sent\": %llu, \"bytes_received\": %llu,",
	       (unsigned long long)r->bytes_sent, (unsigned long long)r->bytes_received);
	print_latency(&r->latency_ns);
	puts("}");
}

int main(int argc, char **argv)
{
	struct options o = { .connections = 64,
			     .spread = 1,
			     .type = "application/json",
			     .item = "%u",
			     .join = ",",
			     .seed = 1,
			     .drain_s = 30 };
	static struct load load;
	static struct result result;
	const int rest = take_options(&o, argc, argv);

	if (o.help) {
		print_usage(stdout);
		return 0;
	}
	load_init(&load, &o, argc - rest, argv + rest);
	engine_run(&load, &result);
	print_result(&load, &result);
	bytes_done(&load.request.scratch);
	return (result.errors > 0 && !o.allow_errors) || result.unfinished > 0 ? 1 : 0;
}
