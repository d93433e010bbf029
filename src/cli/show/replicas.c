/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show/replicas.h"

#include <string.h>

#include "base/json.h"
#include "cli/show/show.h"

static bool replica_is_live(const json_t *row)
{
	const char *state = json_string_value(json_object_get(row, "state"));

	return state && strcmp(state, "live") == 0;
}

void show_replicas(const struct cli *cli, const json_t *rows, struct buf *out)
{
	static const struct column columns[] = {
		{ "REPLICA", "number", CELL_COUNT },   { "VERSION", "version", CELL_TEXT },
		{ "LAG", "lag_ms", CELL_SPAN },        { "NAME", "name", CELL_TEXT },
		{ "LEADS", "schedulers", CELL_TEXTS }, { 0 },
	};
	json_t *CLEANUP(json_freep) live = json_array();
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		if (replica_is_live(row))
			json_array_append(live, row);
	if (json_array_size(live) > 0)
		show_table(cli, live, columns, FOLD_DROP, out);
}
