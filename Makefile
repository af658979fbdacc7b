# make demo | test | bench | mutate | faults: each creates the environment in .venv first, once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2

.PHONY: help demo test lint types pytest docs bench mutate faults clean
help:
	@echo "make demo    split digits, four methods, one seed: table, curves and a report in demo/"
	@echo "make test    lint, types, architecture and tests"
	@echo "make docs    the pages and the API reference, in site/"
	@echo "make bench   speed as ratios, written to bench.csv; RECORD=1: to experiments/results"
	@echo "make mutate  change one symbol at a time in the formulas; every change must fail a test; RECORD=1: counts to experiments/results"
	@echo "make faults  kill runs at twenty random moments, go on each time, compare with an unbroken run"

$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,docs]'
	@touch $@

demo: $(READY)
	$(BIN)/hfc demo

test: lint types pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)

docs: $(READY)
	$(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/python experiments/bench.py $(if $(RECORD),--out experiments/results/bench.csv)

mutate: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutate.py $(if $(RECORD),--out experiments/results/mutants.csv)

faults: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/faults/many_kills.py

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
