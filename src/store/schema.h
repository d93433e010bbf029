/* SPDX-License-Identifier: Apache-2.0 */
/* The numbered steps of the schema, embedded from src/store/schema by the build. */
#ifndef LAPSE_STORE_SCHEMA_H
#define LAPSE_STORE_SCHEMA_H

struct schema_step {
	int version; /* 0 ends the list */
	const char *sql;
};

extern const struct schema_step SCHEMA[];

#endif
