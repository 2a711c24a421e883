# `make demo` and `make test` need python3 (3.11 to 3.13, with venv and pip) and make, nothing else.
# The first target that runs builds .venv from the hashed lock; later ones reuse it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help venv demo test lint format docs fuzz bench wheel lock clean

LOCK := requirements/dev-lock.txt
STAMP := .venv/.stamp
BIN := .venv/bin
# Two workers fill two cores; more only compete for them.
WORKERS ?= 2
PYTEST_ARGS ?=
FUZZ_CASES ?= 100000

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

venv: $(STAMP) ## build .venv from the hashed lock (the other targets do this themselves)

# The environment is updated in place: other shells may be using it.
$(STAMP): $(LOCK) pyproject.toml tools/pick_python.sh
	@python="$$(bash tools/pick_python.sh)"; \
	if ! bash tools/pick_python.sh --accepts $(BIN)/python; then \
		echo "building .venv with $$python from $(LOCK) (once, about a minute)"; \
		"$$python" -m venv --clear .venv; \
	else \
		echo "updating .venv from $(LOCK)"; \
	fi
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## explain the shipped captures, write the HTML reports and say where
	@$(BIN)/python examples/demo.py

test: $(STAMP) ## run every test; ends with pytest's summary line
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

lint: $(STAMP) ## style, types of core and capture, layers, ratchet
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python tools/ratchet.py

format: $(STAMP) ## let ruff format and fix what it safely can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## write the generated pages of docs/ anew
	@$(BIN)/python tools/generate_docs.py

fuzz: $(STAMP) ## mutate traces, and inputs of every format, FUZZ_CASES times (100,000)
	@$(BIN)/python tests/fuzz/run.py --cases $(FUZZ_CASES)
	@$(BIN)/python tests/fuzz/formats.py --cases $(FUZZ_CASES)

bench: $(STAMP) ## measure reading against its peers (each in a venv of its own)
	@$(BIN)/python benchmarks/ingest.py

wheel: $(STAMP) ## build dist/*.whl
	@$(BIN)/python -m hatchling build -t wheel -d dist

lock: ## resolve both locks anew (needs uv on the path)
	bash tools/lock.sh

clean: ## remove what make built
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
