# Everyday commands. `make help` lists them.
SHELL := /bin/bash
PRESET ?= dev
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
DATA_DIR ?= $(CURDIR)/.tenure

BENCH_JSON ?= $(BUILD)/benchmark.json

.PHONY: help deps configure build all run demo bench bench-quick bench-build test sanitize lint format chart-test install clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

deps: ## install what is missing (Debian packages)
	@cmake/install-deps.sh

configure: deps
	@[ -f $(BUILD)/build.ninja ] || cmake --preset $(PRESET)

build: configure ## build bin/tenured and bin/tenurectl
	@cmake --build $(BUILD) -j $(JOBS) --target tenured tenurectl
	@mkdir -p bin && ln -sf ../$(BUILD)/bin/tenured ../$(BUILD)/bin/tenurectl bin/

all: configure ## build everything, tests included
	@cmake --build $(BUILD) -j $(JOBS)
	@mkdir -p bin && ln -sf ../$(BUILD)/bin/tenured ../$(BUILD)/bin/tenurectl bin/

run: build ## run the daemon in the foreground on its embedded PostgreSQL: gRPC on 127.0.0.1:8470, HTTP on 127.0.0.1:8471
	bin/tenured serve --data-dir $(DATA_DIR) $(ARGS)

demo: configure ## 10,000 jobs, two producers, two workers, one killed half way: count what is lost
	@cmake --build $(BUILD) -j $(JOBS) --target tenured tenurectl tenure_demo
	@mkdir -p bin && ln -sf ../$(BUILD)/bin/tenured ../$(BUILD)/bin/tenurectl bin/
	@$(BUILD)/bin/tenure_demo

bench-build: configure
	@cmake --build $(BUILD) -j $(JOBS) --target tenured tenure_bench

bench: bench-build ## measure Tenure, raw SQL and other queues at full size (hours); ARGS="--scenario drain" for one
	@$(BUILD)/bin/tenure_bench --install-peers
	@$(BUILD)/bin/tenure_bench --json $(BENCH_JSON) $(ARGS)

bench-quick: bench-build ## the same, everything reduced: two to three minutes
	@$(BUILD)/bin/tenure_bench --quick --json $(BENCH_JSON) $(ARGS)

test: all ## run every test against a real PostgreSQL that it starts itself
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS)

sanitize: deps ## run the tests under the sanitizers (PRESET=asan-ubsan or tsan)
	@[ "$(PRESET)" != dev ] || { echo "say which: make sanitize PRESET=asan-ubsan, or PRESET=tsan" >&2; exit 2; }
	@[ -f $(BUILD)/build.ninja ] || cmake --preset $(PRESET)
	@cmake --build $(BUILD) -j $(JOBS) --target unit_tests integration_tests tenured tenurectl
	@cmake/sanitize.sh $(BUILD)

lint: deps ## check formatting, scripts, YAML and what must not be said
	@cmake/lint.sh

format: deps ## format the C++ sources
	@git ls-files '*.cc' '*.h' | xargs clang-format-14 -i

chart-test: ## lint and render the Helm chart, and check what it renders
	@charts/test.sh

install: build ## install the daemon, the command line and the C++ client (PREFIX=/usr/local)
	@cmake --build $(BUILD) -j $(JOBS) --target tenured tenurectl tenure_client
	@cmake --install $(BUILD) --prefix $(or $(PREFIX),/usr/local)

clean: ## remove what was built
	rm -rf build bin
