/* SPDX-License-Identifier: Apache-2.0 */
#include "base/uri.h"

#include <string.h>

#include "unit.h"

static const struct {
	const char *uri, *shown;
} URIS[] = {
	{ "", "" },
	{ "sqlite", "sqlite" },
	{ "@/etc/lapse/store", "@/etc/lapse/store" },
	{ "postgresql://lapse@/lapse?host=/run/x", "postgresql://lapse@/lapse?host=/run/x" },
	{ "postgresql://a:5432,b:5433/lapse", "postgresql://a:5432,b:5433/lapse" },
	{ "postgresql://u:secret@h/d", "postgresql://u:***@h/d" },
	{ "postgresql://u:@h/d", "postgresql://u:***@h/d" },
	{ "postgresql://u:se@cr/et@h:1/d", "postgresql://u:***@h:1/d" },
	{ "postgresql://h/d?password=secret", "postgresql://h/d?password=***" },
	{ "postgresql://h/d?a=1&PassWord=x&sslpassword=y&b=2",
	  "postgresql://h/d?a=1&PassWord=***&sslpassword=***&b=2" },
	{ "postgresql://h/d?passwords=1&password", "postgresql://h/d?passwords=1&password" },
	{ "postgresql://u@h/d?x=a:b@c", "postgresql://u@h/d?x=a:b@c" },
};

static void passwords_are_not_shown(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(URIS); i++) {
		struct buf CLEANUP(buf_done) shown = { 0 };
		uri_put_public(&shown, URIS[i].uri);
		assert_string_equal(buf_text(&shown), URIS[i].shown);
		assert_int_equal(uri_has_password(URIS[i].uri),
				 strcmp(URIS[i].uri, URIS[i].shown) != 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(passwords_are_not_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
