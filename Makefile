# One command for each habit. `make PYTHON=/path/to/python3.12 test` picks another Python.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The tests wait for processes most of the time, so two more run at once than there are processors.
JOBS ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 1) + 2 )))

# The first Python that is new enough: `python3` may be an old one next to a python3.12.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

.PHONY: setup run demo-agent test test-thorough attack lint bench matrix clean
.DEFAULT_GOAL := run

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "atoll needs Python 3.11 or newer; say make PYTHON=/path/to/python3" >&2; exit 1; }
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV) \
		&& uv pip install --quiet --python $(BIN)/python -e '.[dev]'; \
	else \
		$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'; \
	fi
	@touch $@

run: setup
	$(BIN)/python examples/quickstart.py
	@echo
	$(BIN)/python examples/codebase.py

# A model that plays a script works on a real task: no key is needed.
demo-agent: setup
	$(BIN)/python examples/agent.py

test: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Everything that a day's run tries a sample of (tests/thorough.py).
test-thorough: export ATOLL_THOROUGH = 1
test-thorough: test

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
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -q -p atoll.testing.record \
		--record-conformance docs/reference/conformance.json $(or $(ARGS),tests/conformance)
	$(BIN)/python -m atoll.testing docs/reference/conformance.json > docs/reference/conformance.md

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
