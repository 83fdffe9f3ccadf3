# Two commands matter: `make demo` and `make test`. Both set up everything they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types layers pytest setup bench docs clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "mast needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 test")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# types are checked while the tests run: by themselves they would leave a core idle for a minute
test: lint layers
	$(MAKE) --no-print-directory -j 2 types pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

# bytecode is kept even if the environment says otherwise: three workers and some hundred processes that tests start
# load it; a file's tests stay with one worker until another has nothing left, so fixtures are made once; on two cores a
# third worker computes while others wait for browsers, locks and exiting processes
pytest: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal

demo: setup
	$(BIN)/python scripts/demo.py

bench: setup
	$(BIN)/python -m benchmarks

docs: setup
	$(BIN)/python scripts/cli_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

clean:
	rm -rf $(VENV) site demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
