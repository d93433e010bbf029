/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbered steps of the schema, embedded from src/store/schema by the build.
 *
 * Replicas of a cluster are upgraded one after the other, so the version before must be able to go
 * on with the new schema. A step that only adds (tables, indices, columns with a default) says so
 * in a line of its own: `-- serves N`, where N is the newest schema version that the release before
 * knows. A step without such a line serves only programs that know it.
 */
#ifndef LAPSE_STORE_SCHEMA_H
#define LAPSE_STORE_SCHEMA_H

struct schema_step {
	int version; /* 0 ends the list */
	int serves;  /* programs that know this version, or a later one, can go on */
	const char *sql;
};

extern const struct schema_step SCHEMA[];

#endif
