# SPDX-License-Identifier: Apache-2.0
# The commands people type. Everything else is CMake (see CMakePresets.json).
PYTHON ?= /usr/bin/python3
PRESET ?= dev
BUILD = build$(if $(filter-out release,$(PRESET)),-$(PRESET))
DATA_DIR ?= lapse-data
# Where `make run` listens: where LAPSE_URL says that the daemon is, when it says so.
LISTEN ?= $(or $(patsubst http://%,%,$(filter http://% unix:%,$(patsubst %/,%,$(LAPSE_URL)))),127.0.0.1:7878)
PYTEST = LAPSED=$(CURDIR)/$(BUILD)/lapsed LAPSE=$(CURDIR)/$(BUILD)/lapse \
	LAPSED_FAULT=$(CURDIR)/$(BUILD)/tests/durability/lapsed-fault \
	PROVIDER_DRIVE=$(CURDIR)/$(BUILD)/tests/provider/provider_drive \
	LAPSED_FAULT_FILES=$(CURDIR)/$(BUILD)/tests/durability/libfault_files.so \
	$(PYTHON) -m pytest -q -p no:cacheprovider

.DEFAULT_GOAL := release

.PHONY: release run cluster test-cluster nemesis test check bench asan tsan coverage format lint install clean help \
	docs deps deps-test deps-jmap deps-node deps-web deps-bench build unit test-api test-cli test-provider test-jmap \
	test-openapi test-postgres test-failover test-contract test-durability test-stalwart \
	fuzz test-latency build-doubles test-retry test-interleave test-store mutants mutants-sample

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:
	@scripts/deps build
deps-test:
	@scripts/deps build test
deps-jmap:
	@scripts/deps jmap
deps-node:
	@scripts/deps node
	@scripts/node install
deps-web:
	@scripts/deps web
deps-bench:
	@scripts/deps build test bench web

release: deps ## build/lapsed and build/lapse
	@scripts/build release

run: release ## build, start lapsed on 127.0.0.1:7878 with its data in lapse-data/
	@scripts/run build/lapsed '$(DATA_DIR)' '$(LISTEN)'

cluster: deps-test release ## three replicas on a private PostgreSQL, on ports 7878 to 7880
	@scripts/cluster build/lapsed

build: deps-test
	@scripts/build $(PRESET)

unit: build ## unit tests
	@ctest --test-dir $(BUILD) --output-on-failure

# STORE=postgres runs them on a private PostgreSQL server instead of SQLite.
test-api: build ## black-box tests of the HTTP API; STORE=postgres: on PostgreSQL
	@TEST_STORE=$(STORE) $(PYTEST) -n 2 tests/api

test-cli: build ## black-box tests of the command
	@$(PYTEST) -n 2 tests/cli

test-provider: build ## mailboxes at a mail server: every way it can fail
	@$(PYTEST) -n 2 tests/provider --ignore tests/provider/test_cyrus.py --ignore tests/provider/test_postfix.py

test-postgres: build ## every statement, prepared by a PostgreSQL server; and the store in one
	@$(PYTEST) tests/postgres

test-cluster: build ## several replicas on one database; nemesis for a minute
	@$(PYTEST) -s tests/cluster

nemesis: build ## the same with nemesis alone, for ten minutes (NEMESIS_SECONDS, NEMESIS_SEED)
	@NEMESIS_SECONDS=$${NEMESIS_SECONDS:-600} $(PYTEST) -s tests/cluster/test_nemesis.py

test-failover: build ## the database goes away, and its primary is killed under load: the long form
	@FAILOVER_ROUNDS=$${FAILOVER_ROUNDS:-10} FAILOVER_SECONDS=$${FAILOVER_SECONDS:-5} $(PYTEST) -s tests/failover

test-contract: build ## contracts on SQLite and PostgreSQL: the long form, with ten thousand races
	@RACE_ROUNDS=$${RACE_ROUNDS:-10000} HOSTILE_NAMES=$${HOSTILE_NAMES:-200} $(PYTEST) -n 2 tests/contract

test-jmap: build deps-jmap ## with real mail servers: the JMAP client and Cyrus, LMTP and Postfix
	@$(PYTEST) tests/provider/test_cyrus.py tests/provider/test_postfix.py

test-stalwart: build ## mailboxes at a real Stalwart: make test-stalwart STALWART="/path/to/stalwart ..."
	@STALWART='$(STALWART)' $(PYTEST) tests/stalwart

test-openapi: build deps-node ## the OpenAPI document: linters, a generated client that compiles and works
	@$(PYTEST) tests/openapi

test-mcp: build deps-node ## the tools for agents, with the protocol's own clients
	@$(PYTEST) -n 2 tests/mcp

test-webhook: build deps-node ## what webhooks post, with the library of Standard Webhooks
	@$(PYTEST) tests/webhook

test-web: build deps-web deps-node ## the page, in a real Chromium
	@$(PYTEST) -n 2 tests/web

test-durability: build ## kill -9, power loss, full disk: the long form
	@$(PYTEST) tests/durability

# The API suite on doubles of the store, under AddressSanitizer: tests/store/README.md.
DOUBLE = $(CURDIR)/build-asan/tests/store
TESTS ?= tests/api
ON_DOUBLE = LAPSE=$(CURDIR)/build-asan/lapse $(PYTHON) -m pytest -q -p no:cacheprovider -n 2 $(TESTS)

build-doubles: deps-test
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan --target lapsed-retry lapsed-interleave lapse

test-retry: build-doubles ## the API tests on a store that refuses commits at random
	@LAPSED=$(DOUBLE)/lapsed-retry $(ON_DOUBLE)

test-interleave: build-doubles ## the API tests on a store that runs another job at every step
	@LAPSED=$(DOUBLE)/lapsed-interleave $(ON_DOUBLE)

test-store: build-doubles ## many clients at once on both doubles of the store
	@LAPSED_RETRY=$(DOUBLE)/lapsed-retry LAPSED_INTERLEAVE=$(DOUBLE)/lapsed-interleave \
		$(PYTHON) -m pytest -q -p no:cacheprovider tests/store
mutants: deps-test ## build every deliberate fault and run the tests that must notice it: the long form
	@$(PYTHON) tests/mutants/run.py

mutants-sample: deps-test ## the same for 20 of them, which change with the day
	@$(PYTHON) tests/mutants/run.py --sample 20

test-latency: build ## a good client while others misbehave, 10 s each; wants a quiet machine
	@$(PYTEST) -s tests/latency

FUZZ_SECONDS ?= 60

fuzz: deps-test ## feed the readers of foreign bytes with what libFuzzer makes up (FUZZ_SECONDS=60 each)
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz --target fuzz_all >/dev/null
	@tests/fuzz/run build-fuzz $(FUZZ_SECONDS)

test: build deps-jmap deps-node deps-web ## all tests, the long suites in their short form
	@ctest --test-dir $(BUILD) --output-on-failure
	@$(PYTEST) -n 2 tests/api
	@$(PYTEST) -n 2 tests/cli
	@$(PYTEST) -n 2 tests/provider
	@$(PYTEST) tests/postgres
	@$(PYTEST) tests/cluster --ignore tests/cluster/test_nemesis.py
	@$(PYTEST) tests/failover
	@$(PYTEST) -n 2 tests/contract
	@$(PYTEST) tests/docs
	@$(PYTEST) tests/openapi
	@$(PYTEST) -n 2 tests/web
	@$(PYTEST) -n 2 tests/mcp
	@$(PYTEST) tests/webhook
	@LAPSE_KILL_ROUNDS=$${LAPSE_KILL_ROUNDS:-20} $(PYTEST) tests/durability

check: ## what CI runs: all tests, format and lint, clang, ASan and UBSan, coverage
	@.ci/run

asan: ## unit and API tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory PRESET=asan unit test-api test-cli test-provider test-jmap

tsan: ## unit and API tests under ThreadSanitizer; STORE=postgres: on PostgreSQL
	@$(MAKE) --no-print-directory PRESET=tsan unit test-api

coverage: ## what the tests reach, as a table
	@$(MAKE) --no-print-directory PRESET=coverage unit test-api test-cli test-provider test-jmap
	@gcovr -r . --object-directory build-coverage -f src/ --exclude-unreachable-branches \
		--gcov-ignore-parse-errors -s | tail -n 60

bench: deps-bench release ## every benchmark with its peers, into bench/results/
	@$(PYTHON) bench/run.py --build build $(BENCH_ARGS)

page-image: build deps-web ## docs/img/page.png, the picture of the page in the README
	@LAPSED=$(CURDIR)/$(BUILD)/lapsed $(PYTHON) tests/web/screens.py --readme docs/img/page.png
	@pngquant --force --output docs/img/page.png 128 docs/img/page.png
	@optipng -quiet -o5 docs/img/page.png

docs: build ## write docs/matrix.md and the manual pages anew
	@WRITE_DOCS=1 $(PYTEST) tests/docs
	@$(BUILD)/lapse help --man > docs/man/lapse.1

format: deps-test ## rewrite the sources in the house's format
	@clang-format -i $$(git ls-files '*.c' '*.h')

lint: deps-test ## format and clang-tidy, without changing anything
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')
	@scripts/build clang
	@git ls-files 'src/*.c' | xargs -n 8 -P $$(nproc) clang-tidy -quiet -p build-clang 2>/dev/null

install: release ## into PREFIX (/usr/local) below DESTDIR
	@cmake --install build $(if $(PREFIX),--prefix $(PREFIX))

clean: ## remove everything that was built
	@rm -rf build build-*
