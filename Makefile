# Every target sets up what it needs in .venv, from a bare Python >= 3.11. Start with `make run`.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.SUFFIXES:
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV PIP_REQUIRE_VIRTUALENV PIP_TARGET PIP_PREFIX PIP_USER

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
# Tells what takes a while, on standard error; nothing under `make -s`.
SAY := $(if $(findstring s,$(firstword -$(MAKEFLAGS))),@:,@echo >&2)
WORKERS ?= 2
CODE := $(sort $(dir $(wildcard sapwood/*.py tests/*.py examples/*.py benchmarks/*.py)))

# The Python that .venv is built from; give another one with `make PYTHON=...`.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$name -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then echo $$name; break; fi; done)

.PHONY: help
help: ## List the targets
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## (.*)$$/  make \1\t\2/' | expand -t 16

# ---------------------------------------------------------------- set-up

$(BIN)/python:
	@python="$(PYTHON)"; \
	if [ -z "$$python" ] || ! "$$python" -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then \
		echo "Sapwood needs Python 3.11 or newer, found none; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		echo "$$python cannot make virtual environments; install its venv package (on Debian: python3-venv)" >&2; exit 1; \
	fi; \
	rm -rf $(VENV); "$$python" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The core, the `cli` extra and the project itself: all that `make run` needs.
$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/python
	$(SAY) "installing the core into $(VENV)"
	@$(PIP) install -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# The other extras and the tools of the gates.
$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	$(SAY) "installing the tools of the gates into $(VENV)"
	@$(PIP) install -r requirements/dev.txt
	@touch $@

# ---------------------------------------------------------------- use

.PHONY: run
run: $(VENV)/.run ## Run the demonstration: a supervised agent survives its registry
	@$(BIN)/sapwood demo

# ---------------------------------------------------------------- gates

.PHONY: test
test: lint tests wheel ## Run every gate, as CI does

.PHONY: lint
lint: style types layers ## Run the gates that only read the code: style, types, layers

.PHONY: style
style: $(VENV)/.dev ## Style and async rules
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m ruff format --check
	@$(BIN)/python -m flake8

.PHONY: types
types: $(VENV)/.dev ## mypy and pyright, both strict
	@$(BIN)/python -m mypy $(CODE)
	@$(BIN)/python -m pyright

.PHONY: layers
layers: $(VENV)/.dev ## Which package may import which
	@$(BIN)/lint-imports

.PHONY: tests
tests: $(VENV)/.dev ## The test suite alone
	@$(BIN)/python -m pytest -q -n $(WORKERS)

.PHONY: wheel
wheel: $(VENV)/.dev ## Build the package and import it from outside the tree
	@$(BIN)/python tests/plugins/check_wheel.py

.PHONY: fix
fix: $(VENV)/.dev ## Mend what ruff can mend by itself
	@$(BIN)/python -m ruff check --fix
	@$(BIN)/python -m ruff format

# ---------------------------------------------------------------- reports

.PHONY: rows
rows: $(VENV)/.dev ## Which rows of the specification the tests show, and which not
	@$(BIN)/python tests/plugins/row_report.py

.PHONY: docs
docs: $(VENV)/.dev ## Run every Python block of README.md and docs/
	@$(BIN)/python -m pytest -q -n $(WORKERS) tests/project/test_docs.py

.PHONY: soak
soak: $(VENV)/.dev ## The long form of the chaos tests: 20,000 interleavings
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m soak --soak

.PHONY: mutants
mutants: $(VENV)/.dev ## Mutation testing of supervision and registry; MUTANTS="--sample 100 --seed 7"
	@$(BIN)/python tests/plugins/mutants.py --workers $(WORKERS) $(MUTANTS)

.PHONY: bench
bench: $(VENV)/.dev ## Run every program in benchmarks/
	@for program in benchmarks/*.py; do \
		[ -f "$$program" ] || { echo "benchmarks/ holds no program" >&2; exit 1; }; \
		echo "== $$program"; $(BIN)/python "$$program" || exit 1; \
	done

.PHONY: clean
clean: ## Remove .venv and everything that tools left behind
	@rm -rf $(VENV) .rows .mutants .hypothesis .*_cache build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
