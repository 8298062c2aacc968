# Mutoscope. `make demo` and `make test` need nothing but Python 3.11+ and a package index.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PROMPT ?= a red circle left of a blue square, drifting right
SEED   ?= 7
OUTPUT ?= demo-output
JOBS   ?= 2

# One math thread per process: several processes share the machine, and thread counts change low bits.
export OMP_NUM_THREADS ?= 1
# Where no hub is reachable, nothing should wait for one.
export HF_HUB_OFFLINE ?= 1
export DO_NOT_TRACK := 1
# Through the environment, so that quotes in a prompt stay the prompt's.
export PROMPT SEED OUTPUT

STAMP := $(VENV)/.installed

.PHONY: help install demo up down test test-long test-slow test-fire lint types bench clean

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 14

install: $(STAMP)  ## Create the virtual environment with pinned packages.

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --disable-pip-version-check -c constraints.txt pip setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)  ## Prompt -> image -> video with lineage: make demo PROMPT="..." SEED=7
	MUTOSCOPE_HOME="$${MUTOSCOPE_HOME:-$(CURDIR)/.mutoscope}" \
		$(BIN)/mutoscope demo --prompt "$$PROMPT" --seed "$$SEED" --output "$$OUTPUT"

up: $(STAMP)  ## Start the stack in the foreground (Ctrl-C drains).
	$(BIN)/mutoscope up

down: $(STAMP)  ## Stop the stack that `make demo` left running.
	MUTOSCOPE_HOME="$${MUTOSCOPE_HOME:-$(CURDIR)/.mutoscope}" $(BIN)/mutoscope down

PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test: $(STAMP)  ## The suite, on JOBS cores: make test JOBS=1
	$(PYTEST) -m "not long and not slow and not fire" $(ARGS)

test-long: $(STAMP)  ## What takes long beside what it adds to the suite.
	$(PYTEST) -m "long and not slow and not fire" $(ARGS)

test-slow: $(STAMP)  ## Sizes, counts and whole hosts beyond what every change is tried with.
	$(BIN)/python -m pytest -m slow $(ARGS)

test-fire: $(STAMP)  ## Faults on a whole installation with two hosts; times of recovery land in tests/fire/results.
	$(BIN)/python -m pytest -m fire -s $(ARGS) tests/fire

lint: $(STAMP)  ## Style, formatting and layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)  ## Strict types for platform/, checked types elsewhere.
	sh tests/support/typecheck.sh $(CURDIR)/$(BIN)/mypy

bench: $(STAMP)  ## Benchmarks; raw JSON lands in tests/bench/results.
	for bench in tests/bench/bench_*.py; do $(BIN)/python $$bench || exit 1; done

clean:  ## Remove what the targets created (not the home).
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
