# Everything runs from a local virtual environment that `make setup` builds from
# the hashed pins in requirements/dev.txt. Only make and Python 3.11+ are needed.

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PINS := requirements/dev.txt
STAMP := $(VENV)/.installed
PIP := $(PY) -m pip --quiet --disable-pip-version-check

# Set to use one certain interpreter: make setup PYTHON=python3.12
PYTHON ?=
# Extra arguments for demo, test, test-long, bench, bench-peers, mutants and simulate: make test ARGS="-k lease"
ARGS ?=

.PHONY: help setup demo programs test test-long test-stressed coverage check format bench bench-peers audit mutants simulate docs lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create or refresh .venv (only does work when pins or pyproject changed)

# The build backend is in the pins as well, so the project itself is installed
# without build isolation: nothing that is not hashed is ever downloaded.
# `pip check` fails when pyproject.toml asks for something the pins lack.
$(STAMP): $(PINS) pyproject.toml
	@python=; \
	for candidate in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
		if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			python=$$candidate; break; \
		fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "error: Python 3.11 or newer is needed; tried: $(or $(PYTHON),python3.13 python3.12 python3.11 python3)" >&2; \
		exit 1; \
	fi; \
	if ! $(PY) -m pip --version >/dev/null 2>&1; then \
		echo "Creating $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@echo "Installing the pinned packages"
	@$(PIP) install --require-hashes -r $(PINS)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(PY) -m pip check >/dev/null || { $(PY) -m pip check; echo "error: run 'make lock' to refresh $(PINS)" >&2; exit 1; }
	@touch $@

demo: $(STAMP) ## Run the demonstration
	@$(BIN)/holdfast demo $(ARGS)

# Debian's pgbouncer and curl are found or fetched (into .cache); the tests that need them say so where neither works.
programs: $(STAMP)
	@$(PY) scripts/fetch_debian.py pgbouncer >/dev/null || true
	@$(PY) scripts/fetch_debian.py curl >/dev/null || true

test: $(STAMP) programs ## Run the test suite without the long tests
	@$(PY) -m pytest -n auto --dist worksteal -m "not long" $(ARGS)

test-long: $(STAMP) programs ## Run the tests that take minutes
	@$(PY) -m pytest -m long --timeout 1800 $(ARGS)

test-stressed: $(STAMP) programs ## Run the test suite beside busy processes, then under a CPU quota
	@$(PY) -m scripts.stressed_suite $(ARGS)

# Some tests are red when every line is counted (what a module may import, for example): that does not matter here.
# Two tests give up root, and coverage could not write its data.
UNPRIVILEGED := test_a_file_that_may_not_be_written test_a_folder_that_may_not_be_entered

coverage: $(STAMP) programs ## Run the test suite and show its branch coverage
	@mkdir -p .cache/coverage
	@$(PY) -m coverage erase
	-@COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(PY) -m coverage run -m pytest -n auto --dist worksteal -m "not long" \
		$(addprefix --deselect tests/doctor/test_sqlite.py::,$(UNPRIVILEGED)) $(ARGS)
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report --skip-covered --sort=cover

check: $(STAMP) ## Lint, check the format, check types and import layers
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## Format the code and apply safe lint fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

bench: $(STAMP) ## Run the benchmarks
	@$(PY) -m benchmarks $(ARGS)

bench-peers: $(STAMP) ## Measure other job queues beside ours, in environments of their own
	@$(PY) -m benchmarks.peers $(ARGS)

audit: $(STAMP) ## Check pins, installed packages and licences
	@$(PY) -m scripts.audit_dependencies

mutants: $(STAMP) ## Take out a line of safety at a time, and see which test notices
	@$(PY) -m scripts.mutants $(ARGS)

simulate: $(STAMP) ## Simulate a hundred thousand histories (ARGS="--seeds A..B --processes N")
	@$(PY) -m tests.simulation $(or $(ARGS),--seeds 0..99999 --processes 2)

docs: $(STAMP) ## Render the generated documentation
	@$(PY) -m scripts.render_docs

# --no-config and --no-emit-*: the pins must not depend on, or tell of, the
# settings of the machine they were made on.
lock: $(STAMP) ## Re-compile requirements/dev.txt with the newest versions
	@$(BIN)/uv pip compile pyproject.toml --group dev --output-file $(PINS) \
		--upgrade --universal --python-version 3.11 --generate-hashes \
		--no-config --no-emit-index-url --no-emit-find-links --no-annotate \
		--custom-compile-command "make lock" --quiet
	@! grep -nE '://|--(extra-)?index-url|--find-links' $(PINS) || \
		{ echo "error: $(PINS) records where packages came from" >&2; exit 1; }

clean: ## Remove .venv, caches and build results
	@rm -rf $(VENV) .cache build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
