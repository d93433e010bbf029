/* SPDX-License-Identifier: Apache-2.0 */
/* The code and the link that a person would copy out of a mail. */
#include "cli/show/pick.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

struct pick_case {
	struct pick_mail mail;
	const char *wanted; /* NULL = nothing is to be found */
};

static void check(bool (*pick)(const struct pick_mail *, struct buf *), const struct pick_case *c)
{
	struct buf out = { 0 };
	bool found = pick(&c->mail, &out);

	if (found != (c->wanted != NULL) || (found && strcmp(buf_text(&out), c->wanted) != 0))
		fail_msg("'%s' / '%s' gave '%s'", c->mail.subject ? c->mail.subject : "",
			 c->mail.text ? c->mail.text : c->mail.html,
			 found ? buf_text(&out) : "(nothing)");
	buf_done(&out);
}

static void codes(void **state)
{
	static const struct pick_case cases[] = {
		{ { "Sign in", "Your verification code is 482913.\nIt ends in 10 minutes.", NULL },
		  "482913" },
		{ { "Sign in", "Hello,\n\n  482 913\n\nuse it within 2026", NULL }, "482913" },
		{ { "Your code: 7731", "See the subject.", NULL }, "7731" },
		{ { NULL, "G-482913 is your code. Call +4930123456 for help.", NULL }, "482913" },
		{ { "Your code", "It is 998877.", NULL }, "998877" },
		{ { NULL, "Enter the PIN code AB12CD to go on", NULL }, "AB12CD" },
		{ { NULL, "code 123-456 expires", NULL }, "123-456" },
		{ { "Hi", NULL,
		    "<style>a{width:123456px}</style><p>Your code</p><td><b>556677</b></td>" },
		  "556677" },
		{ { "Hi", NULL, "<p>code:&nbsp;<b>90 12 34</b></p>" }, "901234" },
		{ { "Order", "Invoice of 2026, total $123456, order #778899.", NULL }, NULL },
		{ { "Hi", "https://a.example/verify?code=123456 is a link", NULL }, NULL },
		{ { "Hi", "Nothing to see, 12 or 123 or 12345678901.", NULL }, NULL },
		{ { "", "", "" }, NULL },
		{ { NULL, NULL, "<" }, NULL },
		{ { NULL, NULL, "<style>" }, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check(pick_code, &cases[i]);
}

static void links(void **state)
{
	static const struct pick_case cases[] = {
		{ { NULL, "Go to https://a.example/x?y=1. Thanks", NULL },
		  "https://a.example/x?y=1" },
		{ { NULL, "https://a.example/home then https://a.example/verify/1", NULL },
		  "https://a.example/verify/1" },
		{ { NULL, NULL, "<a href=\"https://b.example/confirm?a=1&amp;b=2\">x</a>" },
		  "https://b.example/confirm?a=1&b=2" },
		{ { NULL, "ftp://a.example http:// https://", NULL }, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check(pick_link, &cases[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(codes), cmocka_unit_test(links) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
