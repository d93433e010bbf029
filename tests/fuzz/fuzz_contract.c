/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts: YAML from a file. What is refused is said why. */
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "contract/contract.h"
#include "fuzz.h"

static const char *no_environment(const char *name)
{
	return strcmp(name, "URL") == 0 ? "sqlite:/tmp/none.db" : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *CLEANUP(mem_freep) text = mem_zalloc(1, size + 1);
	struct buf CLEANUP(buf_done) error = { 0 };
	struct contract *c = NULL;

	memcpy(text, data, size);
	if (contract_parse("fuzz.yaml", text, size, no_environment, &c, &error) < 0)
		assert(error.len > 0);
	else
		contract_free(c);
	return 0;
}
