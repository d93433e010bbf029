#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: symbols.sh HEADER SHARED STATIC: both libraries define the functions of the header for
# others, and nothing else; the shared one is called liblapse.so.0.
set -eu
header=$1 shared=$2 static=$3

wanted=$(grep -o '\blapse_[a-z_]*(' <<-END | tr -d '(' | sort -u
	$(sed -n '/^LAPSE_API/,/;/p' "$header" | tr '\n' ' ' | sed 's/LAPSE_API/\n/g' |
		sed 's/^[^(]*\b\(lapse_[a-z_]*(\).*/\1/')
END
)
[ "$(echo "$wanted" | wc -l)" -gt 20 ]

check() {
	[ "$2" = "$wanted" ] && return
	echo "$1 exports something else than the header declares:" >&2
	printf '%s\n' "$wanted" >"${TMPDIR:-/tmp}/wanted.$$"
	printf '%s\n' "$2" | diff "${TMPDIR:-/tmp}/wanted.$$" - >&2 || true
	rm -f "${TMPDIR:-/tmp}/wanted.$$"
	exit 1
}
check "$shared" "$(nm -D --defined-only "$shared" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)"
check "$static" "$(nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | grep -v '^DW.ref' | sort)"
readelf -d "$shared" | grep -q 'SONAME.*\[liblapse\.so\.0\]'
