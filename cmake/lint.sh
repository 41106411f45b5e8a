#!/usr/bin/env bash
# `make lint`: formatting of C++, syntax of scripts, YAML, white space. Prints what to do; exit status 1 if anything is found.
set -u
cd "$(dirname "$0")/.."
failed=0
complain() {
  printf 'lint: %s\n' "$1" >&2
  failed=1
}

unformatted=$(git ls-files -z '*.cc' '*.h' | xargs -0 clang-format-14 --dry-run 2>&1 | grep -oE '^[^:]+' | sort -u)
[ -z "$unformatted" ] || complain "not formatted (make format): $(echo $unformatted)"

while IFS= read -r script; do
  case $(head -n 1 "$script") in
    *bash*) bash -n "$script" || complain "$script does not parse" ;;
    *sh*) sh -n "$script" || complain "$script does not parse" ;;
    *python*) python3 - "$script" <<'PY' || complain "$script does not parse"
import ast, sys
ast.parse(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1])
PY
    ;;
  esac
done < <(git ls-files -s | awk '$1 == 100755 {print $4}')

yamllint -s -d '{extends: default, rules: {line-length: {max: 160}, document-start: disable, braces: disable, brackets: disable, comments: disable, indentation: disable, truthy: disable}}' \
  $(git ls-files '*.yml' '*.yaml' | grep -v '^charts/[^/]*/templates/') || complain "YAML"

spaces=$(git grep -nIE '[[:blank:]]+$' -- ':!*.patch' ':!LICENSE' ':!*.md' | cut -d: -f1 | sort -u)
[ -z "$spaces" ] || complain "blanks at the end of lines in: $(echo $spaces)"

long=$(git ls-files '*.cc' '*.h' '*.py' '*.sql' | grep -v '^tests/' | xargs wc -l | awk '$2 != "total" && $1 > 650 {print $2 " (" $1 ")"}')
[ -z "$long" ] || complain "too long to read, split: $(echo $long)"

[ $failed -eq 0 ] && echo "lint: clean"
exit $failed
