#!/usr/bin/env bash
# The installed client library: installs it into a temporary prefix, builds a consumer with find_package(tenure) against it, runs it.
# Also fails if a public header drags in gRPC or protobuf, or names a path of this checkout.
# Usage: client_package_test.sh SOURCE_DIR BINARY_DIR
set -euo pipefail
source_dir=$1
binary_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$binary_dir" --component client --prefix "$work/prefix" > "$work/install.log" || { cat "$work/install.log"; exit 1; }
if grep -rnE '#include *[<"](grpc|google/protobuf|tenure/v1|client/|server/)' "$work"/prefix/include/tenure/*.h; then
  echo "a public header includes what users should not pay for" >&2
  exit 1
fi
if grep -rn -e "$source_dir" -e "$binary_dir" "$work"/prefix/lib*/cmake "$work"/prefix/lib/*/cmake 2> /dev/null; then
  echo "the installed package names a path of the checkout" >&2
  exit 1
fi

cmake -S "$source_dir/tests/package/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Debug ${CLIENT_PACKAGE_CMAKE_ARGS:-} \
  > "$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" > "$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$work/build/consumer"
