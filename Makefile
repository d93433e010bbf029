# SPDX-License-Identifier: Apache-2.0
# The commands people type. Everything else is CMake (see CMakePresets.json).
PYTHON ?= /usr/bin/python3
PRESET ?= dev
BUILD = build$(if $(filter-out release,$(PRESET)),-$(PRESET))
DATA_DIR ?= lapse-data
LISTEN ?= 127.0.0.1:7878
PYTEST = LAPSED=$(CURDIR)/$(BUILD)/lapsed LAPSE=$(CURDIR)/$(BUILD)/lapse \
	LAPSED_FAULT=$(CURDIR)/$(BUILD)/tests/durability/lapsed-fault \
	PROVIDER_DRIVE=$(CURDIR)/$(BUILD)/tests/provider/provider_drive \
	LAPSED_FAULT_FILES=$(CURDIR)/$(BUILD)/tests/durability/libfault_files.so \
	$(PYTHON) -m pytest -q -p no:cacheprovider

.DEFAULT_GOAL := release

.PHONY: release run test check bench asan tsan coverage format lint install clean help \
	docs deps deps-test deps-jmap deps-bench build unit test-api test-cli test-provider test-jmap \
	test-durability

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:
	@scripts/deps build
deps-test:
	@scripts/deps build test
deps-jmap:
	@scripts/deps jmap
deps-bench:
	@scripts/deps build test bench

release: deps ## build/lapsed and build/lapse
	@cmake --preset release >/dev/null
	@cmake --build --preset release

run: release ## build, start lapsed on 127.0.0.1:7878 with its data in lapse-data/
	@scripts/run build/lapsed '$(DATA_DIR)' '$(LISTEN)'

build: deps-test
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build --preset $(PRESET)

unit: build ## unit tests
	@ctest --test-dir $(BUILD) --output-on-failure

test-api: build ## black-box tests of the HTTP API
	@$(PYTEST) -n 2 tests/api

test-cli: build ## black-box tests of the command
	@$(PYTEST) -n 2 tests/cli

test-provider: build ## mailboxes at a mail server: every way it can fail
	@$(PYTEST) -n 2 tests/provider --ignore tests/provider/test_cyrus.py

test-jmap: build deps-jmap ## the JMAP client against a real server, Cyrus
	@$(PYTEST) tests/provider/test_cyrus.py

test-durability: build ## kill -9, power loss, full disk: the long form
	@$(PYTEST) tests/durability

test: build deps-jmap ## all tests, the long suites in their short form
	@ctest --test-dir $(BUILD) --output-on-failure
	@$(PYTEST) -n 2 tests/api
	@$(PYTEST) -n 2 tests/cli
	@$(PYTEST) -n 2 tests/provider
	@$(PYTEST) tests/docs
	@LAPSE_KILL_ROUNDS=$${LAPSE_KILL_ROUNDS:-20} $(PYTEST) tests/durability

check: ## what CI runs: all tests, format and lint, clang, ASan and UBSan, coverage
	@.ci/run

asan: ## unit and API tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory PRESET=asan unit test-api test-cli test-provider test-jmap

tsan: ## unit and API tests under ThreadSanitizer
	@$(MAKE) --no-print-directory PRESET=tsan unit test-api

coverage: ## what the tests reach, as a table
	@$(MAKE) --no-print-directory PRESET=coverage unit test-api test-cli test-provider test-jmap
	@gcovr -r . --object-directory build-coverage -f src/ --exclude-unreachable-branches \
		--gcov-ignore-parse-errors -s | tail -n 60

bench: deps-bench release ## every benchmark with its peers, into bench/results/
	@$(PYTHON) bench/run.py --build build $(BENCH_ARGS)

docs: build ## write docs/matrix.md and the manual pages anew
	@WRITE_DOCS=1 $(PYTEST) tests/docs
	@$(BUILD)/lapse help --man > docs/man/lapse.1

format: deps-test ## rewrite the sources in the house's format
	@clang-format -i $$(git ls-files '*.c' '*.h')

lint: deps-test ## format and clang-tidy, without changing anything
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')
	@cmake --preset clang >/dev/null
	@cmake --build --preset clang --target lapsed lapse >/dev/null
	@git ls-files 'src/*.c' | xargs -n 8 -P $$(nproc) clang-tidy -quiet -p build-clang 2>/dev/null

install: release ## into PREFIX (/usr/local) below DESTDIR
	@cmake --install build $(if $(PREFIX),--prefix $(PREFIX))

clean: ## remove everything that was built
	@rm -rf build build-*
