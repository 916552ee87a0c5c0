# One command for each habit. `make PYTHON=/path/to/python3.12 test` picks another Python.

VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.package
SETUP := $(VENV)/.installed

# The tests wait for processes most of the time, so two more run at once than there are processors.
JOBS ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 1) + 2 )))
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# A run ends after so many seconds, whatever happens in it, and leaves nothing behind.
BOUNDED = $(BIN)/python -m tests.bounded

# The first Python that is new enough: `python3` may be an old one next to a python3.12.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
UV := $(shell command -v uv 2>/dev/null)

.PHONY: package setup run demo-agent check test test-thorough programs fresh attack lint bench matrix clean
.DEFAULT_GOAL := run

package: $(PACKAGE)
setup: $(SETUP)

# atoll alone: all that a sandbox takes.
$(PACKAGE): pyproject.toml
	@test -n "$(PYTHON)" || { echo "atoll needs Python 3.11 or newer; say make PYTHON=/path/to/python3" >&2; exit 1; }
ifdef UV
	uv venv --quiet --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV)
	uv pip install --python $(BIN)/python -e .
else
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || tests/programs.sh python3-venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -e .
endif
	@touch $@

# And what tests, lint and benchmarks use.
$(SETUP): $(PACKAGE)
	@echo "Installing what the tests use, about 180 Python packages and 1.7 GB: this takes a minute or more."
ifdef UV
	uv pip install --quiet --python $(BIN)/python -e '.[dev]'
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
endif
	@touch $@

# Programs that are no Python packages. Python for WebAssembly is compiled once a machine: no test shall wait for it.
programs: setup
	@tests/programs.sh & installing=$$!; \
	$(BIN)/python -c 'from atoll.drivers import wasm_runtime as w; w.ensure(w.find())'; \
	wait $$installing

run: package
	$(BIN)/python examples/quickstart.py
	@echo
	$(BIN)/python examples/codebase.py

# A model that plays a script works on a real task: no key is needed.
demo-agent: setup
	$(BIN)/python examples/agent.py

# What a change is tried with while it is made: a few minutes, and nothing but Python.
check: setup
	$(BOUNDED) 600 $(PYTEST) -q $$($(BIN)/python -m tests.tiers) $(ARGS)

# What decides whether a change may land.
test: setup programs
	$(BOUNDED) 2400 $(PYTEST) $(ARGS)

# All checks behind all walls, all kills, all examples, and the random attack: hours.
test-thorough: export ATOLL_THOROUGH = 1
test-thorough: export ATOLL_SEED ?= $(shell date +%s)
test-thorough: setup programs
	@echo "ATOLL_SEED=$(ATOLL_SEED)"
	$(BOUNDED) 21600 $(PYTEST) $(ARGS)

# The two commands of the README on a Debian that has nothing else.
fresh:
	tests/fresh.sh

# Hostile code at random for so many minutes; the same SEED plans the same attack.
attack: setup
	$(BIN)/python -m tests.attack --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

# The suite on every driver, and the page that shows what came of it.
matrix: setup
	ATOLL_THOROUGH=1 $(PYTEST) -q -p atoll.testing.record \
		--ignore tests/conformance/test_matrix.py --record-conformance docs/reference/conformance.json \
		$(or $(ARGS),tests/conformance)
	$(BIN)/python -m atoll.testing docs/reference/conformance.json > docs/reference/conformance.md

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
