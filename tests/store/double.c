/* SPDX-License-Identifier: Apache-2.0 */
#include "double.h"

#include <stdio.h>
#include <stdlib.h>

struct double_state double_state;

static uint64_t state = 1;

void double_seed(uint64_t seed)
{
	state = seed * 2 + 1;
}

uint64_t double_random(void) /* xorshift64* */
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * UINT64_C(2685821657736338717) >> 16;
}

uint64_t double_number(const char *name, uint64_t fallback)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : fallback;
}

_Noreturn void double_fail(const char *what)
{
	fprintf(stderr, "{\"level\":\"fatal\",\"event\":\"double.failed\",\"message\":\"%s\"}\n",
		what);
	abort();
}

int __real_store_open(const struct store_config *config, struct store **ret, struct problem *p);
int __wrap_store_open(const struct store_config *config, struct store **ret, struct problem *p);
void __real_turn_init(struct server *s);
void __wrap_turn_init(struct server *s);
bool __real_turn_run(struct server *s);
bool __wrap_turn_run(struct server *s);
void __real_turn_enqueue(struct server *s, struct request *r);
void __wrap_turn_enqueue(struct server *s, struct request *r);

int __wrap_store_open(const struct store_config *config, struct store **ret, struct problem *p)
{
	int r = __real_store_open(config, ret, p);

	if (r == LAPSE_OK)
		DOUBLE.opened(*ret, config);
	return r;
}

void __wrap_turn_init(struct server *s)
{
	__real_turn_init(s);
	double_state.server = s;
}

bool __wrap_turn_run(struct server *s)
{
	double_state.turns++;
	bool worked = __real_turn_run(s);
	double_state.turns--;
	return worked;
}

void __wrap_turn_enqueue(struct server *s, struct request *r)
{
	if (DOUBLE.queued)
		DOUBLE.queued(r);
	__real_turn_enqueue(s, r);
}
