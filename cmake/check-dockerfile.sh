#!/bin/sh
# Checks the Dockerfile without a container engine, on Debian 12:
#  - every package it installs, and every one of install-deps.sh, exists;
#  - every library that the binaries need (ldd) belongs to a runtime package or to one that those depend on.
# It does not build the image. Usage: cmake/check-dockerfile.sh [binary...] (default: what is built in build/)
set -eu
cd "$(dirname "$0")/.."
. /etc/os-release
if [ "${VERSION_CODENAME:-}" != bookworm ] || ! command -v apt-cache >/dev/null 2>&1; then
  echo "check-dockerfile: skipped, this is not Debian 12"
  exit 0
fi
failed=0
fail() {
  echo "check-dockerfile: $*" >&2
  failed=1
}

runtime=$(sed -n '/^ARG RUNTIME_PACKAGES="/,/"$/p' Dockerfile | sed 's/^ARG RUNTIME_PACKAGES=//' | tr -d '"\\' | xargs)
build=$(sed -n '/^packages="/,/^"/p' cmake/install-deps.sh | sed 's/^packages=//' | tr -d '"' | xargs)
[ -n "$runtime" ] || fail "no RUNTIME_PACKAGES in the Dockerfile"
[ -n "$build" ] || fail "no packages in cmake/install-deps.sh"
for package in $runtime $build; do
  apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || fail "no such package: $package"
done
echo "check-dockerfile: looked up $(echo $runtime $build | wc -w) packages"

if [ $# -eq 0 ]; then
  for preset in release dev; do
    if [ -x build/$preset/bin/tenured ]; then
      set -- build/$preset/bin/tenured
      [ ! -x build/$preset/bin/tenurectl ] || set -- "$@" build/$preset/bin/tenurectl
      break
    fi
  done
fi
if [ $# -eq 0 ]; then
  echo "check-dockerfile: no binary is built, so its libraries were not checked"
  exit $failed
fi

# In the image: the listed packages, what they depend on, and what every Debian image has.
in_image=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
  $runtime libc6 | grep '^[a-z0-9]' | sort -u)
used=
for binary in "$@"; do
  ldd "$binary" >/dev/null || { fail "ldd cannot read $binary"; continue; }
  count=0
  for library in $(ldd "$binary" | awk '/not found/ {print $1} $2 == "=>" && $3 ~ /^\// {print $3}'); do
    count=$((count + 1))
    # With a merged /usr the loader finds /lib/... and dpkg may know it as /usr/lib/..., or the other way round.
    real=$(readlink -f "$library" || echo "$library")
    owner=$(dpkg -S "$library" "$real" "/usr$library" "${real#/usr}" 2>/dev/null | sed -n '1s/:.*//p')
    if [ -z "$owner" ]; then
      fail "$binary needs $library, which belongs to no package"
    elif ! echo "$in_image" | grep -qxF "$owner"; then
      fail "$binary needs $library of $owner, which the image does not have"
    fi
    used="$used $owner"
  done
  echo "check-dockerfile: $binary: looked at $count libraries"
done
for package in $runtime; do
  case "$package $used " in
    ca-certificates\ * | tzdata\ * | *" $package "*) ;;
    *) echo "check-dockerfile: note: nothing links to $package" ;;
  esac
done
[ $failed -ne 0 ] || echo "check-dockerfile: ok"
exit $failed
