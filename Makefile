# Everyday commands. `make help` lists them.
SHELL := /bin/bash
PRESET ?= dev
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
DATA_DIR ?= $(CURDIR)/.tenure

.PHONY: help deps configure build all run demo test lint format install clean chart-test

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

run: build ## run the daemon in the foreground on its embedded PostgreSQL
	bin/tenured serve --data-dir $(DATA_DIR)

clean: ## remove what was built
	rm -rf build bin
