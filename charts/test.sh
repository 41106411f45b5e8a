#!/bin/sh
# Lints the chart, renders it with every ci/*-values.yaml, checks the manifests against the Kubernetes schemas and asserts what
# the chart promises (test_chart.py). Tools are built from Go modules into the build tree the first time.
set -eu
cd "$(dirname "$0")/.."
tools=$PWD/build/tools
schemas=$tools/kubernetes-schemas
kubernetes=v0.37.0 # of the module that carries the description of an API old enough (about 1.27) to lean on no new field

skip() {
  echo "chart-test: skipped, $1"
  exit 0
}

python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import yaml' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || skip "python3 with yaml is not here (apt-get install python3-yaml)"

# go_tool <name> <module@version>: builds it unless that very version is there.
go_tool() {
  [ -x "$tools/$1" ] && [ "$(cat "$tools/$1.version" 2>/dev/null)" = "$2" ] && return
  command -v go >/dev/null 2>&1 || skip "$1 is not in $tools and Go is not here to build it"
  echo "chart-test: building $2"
  mkdir -p "$tools"
  GOBIN=$tools GOFLAGS=-mod=mod go install "$2"
  echo "$2" >"$tools/$1.version"
}
go_tool helm helm.sh/helm/v3/cmd/helm@v3.22.0
go_tool kubeconform github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0

if [ "$(cat "$schemas/version" 2>/dev/null)" != $kubernetes ]; then
  command -v go >/dev/null 2>&1 || skip "the Kubernetes schemas are not in $schemas and Go is not here to fetch them"
  echo "chart-test: taking the schemas from k8s.io/cli-runtime@$kubernetes"
  module=$(go mod download -json "k8s.io/cli-runtime@$kubernetes" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
  "$python" charts/kubernetes_schemas.py "$module/artifacts/openapi/swagger-with-shared-parameters.json" "$schemas"
  echo $kubernetes >"$schemas/version"
fi

exec "$python" charts/test_chart.py --helm "$tools/helm" --kubeconform "$tools/kubeconform" --schemas "$schemas"
