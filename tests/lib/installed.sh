#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: installed.sh BUILD EXAMPLE CC [FLAG…]: installs the library below a fresh prefix, and builds
# and runs the example with what pkg-config says there, shared and static.
set -eu
build=$1 example=$2 cc=$3
shift 3
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

cmake --install "$build" --prefix "$prefix" --component library >/dev/null
[ "$(cd "$prefix/include" && ls)" = lapse.h ]
pc=$(find "$prefix" -name lapse.pc)
export PKG_CONFIG_PATH=${pc%/lapse.pc}
libdir=$(pkg-config --variable=libdir lapse)

warnings='-std=c99 -Wall -Wextra -pedantic -Werror'
"$cc" $warnings "$@" "$example" $(pkg-config --cflags --libs lapse) -o "$prefix/shared"
LD_LIBRARY_PATH=$libdir "$prefix/shared"
"$cc" $warnings "$@" "$example" $(pkg-config --static --cflags --libs lapse |
	sed 's/-llapse/-l:liblapse.a/') -o "$prefix/static"
"$prefix/static" >/dev/null
