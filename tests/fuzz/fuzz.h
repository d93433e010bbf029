/* SPDX-License-Identifier: Apache-2.0 */
/* What every target has: libFuzzer calls it with inputs, and a failed assertion is a finding. */
#ifndef LAPSE_TESTS_FUZZ_H
#define LAPSE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
