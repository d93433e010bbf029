/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of rows as texts, as holds name them. */
#include <string.h>

#include "base/json.h"
#include "contract/pass.h"

void pass_key_text(const struct rule *r, const struct datum *key, struct buf *out)
{
	size_t n = r->bound->key.count;

	if (n == 1) {
		datum_write(&key[0], out);
		return;
	}
	json_begin(out, '[');
	for (size_t i = 0; i < n; i++) {
		struct buf CLEANUP(buf_done) text = { 0 };
		datum_write(&key[i], &text);
		json_text(out, buf_text(&text));
	}
	json_end(out, ']');
}

static bool key_element(const json_t *j, struct buf *out)
{
	if (json_is_integer(j))
		buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
	else if (json_is_string(j))
		buf_puts(out, json_string_value(j));
	else
		return false;
	return true;
}

int pass_key_parse(const struct rule *r, const char *text, struct buf *out, struct problem *p)
{
	json_t *CLEANUP(json_freep) array = NULL;
	size_t columns = r->bound->key.count;

	if (columns == 1) {
		buf_puts(out, text);
		return LAPSE_OK;
	}
	if (json_parse_array(text, strlen(text), &array, p) < 0 ||
	    json_array_size(array) != columns)
		return problem_set(p, LAPSE_EINVAL, "key",
				   "the key must be a JSON array of %zu values", columns);
	json_begin(out, '[');
	for (size_t i = 0; i < columns; i++) {
		struct buf CLEANUP(buf_done) element = { 0 };
		if (!key_element(json_array_get(array, i), &element))
			return problem_set(p, LAPSE_EINVAL, "key",
					   "a key is made of texts and whole numbers");
		json_text(out, buf_text(&element));
	}
	json_end(out, ']');
	return LAPSE_OK;
}
