#!/bin/sh
# Installs the Debian packages that the build, the daemon and the tests need. Does nothing (and needs no root) when all are
# there. Used by the Makefile; safe to run by hand.
set -eu
packages="
  g++ cmake ninja-build make pkg-config ccache mold git ca-certificates
  libgrpc++-dev libgrpc-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
  libpq-dev prometheus-cpp-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libboost-dev
  libcurl4-openssl-dev libssl-dev zlib1g-dev
  libgtest-dev libgmock-dev libbenchmark-dev tzdata
  postgresql-15 postgresql-client-15 pgbouncer prometheus python3 python3-grpcio python3-protobuf curl
  clang-format-14 yamllint
"
missing=
for package in $packages; do
  if [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)" != "ii " ]; then
    missing="$missing $package"
  fi
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -eq 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1; then
  as_root=sudo
else
  echo "install-deps: missing packages:$missing" >&2
  echo "install-deps: run this as root, or install sudo, or: apt-get install$missing" >&2
  exit 1
fi
echo "install-deps: installing$missing"
# A server package would otherwise start a cluster of its own on port 5432, which nothing here wants.
$as_root apt-get update -q
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
