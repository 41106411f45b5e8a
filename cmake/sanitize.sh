#!/usr/bin/env bash
# Runs the C++ suites of a build made with a sanitizer preset. $1: the build directory. The suppressions name libraries that are not
# instrumented; cmake/sanitizers/ says why for each.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
export TSAN_OPTIONS="suppressions=$here/sanitizers/tsan.supp second_deadlock_stack=1 ignore_noninstrumented_modules=1 ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_leaks=1 ${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$here/sanitizers/lsan.supp ${LSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"
ctest --test-dir "$build" --output-on-failure --no-tests=error -j 2 -R '^(unit|integration)_tests_[01]$'
