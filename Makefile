# Each target creates the environment it needs first, once: .venv, or one of its own.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOWEST := .venv-lowest
WHEEL := .venv-wheel
JOBS ?= 2
REAL_IMAGES := experiments/results/real-images
PAPER_SCALE := experiments/results/paper-scale
INSTALL := -m pip install --quiet --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: help demo quick test lint types pytest test-cpus test-slow test-lowest test-wheel docs results reproduce reproduce-paper bench mutate faults clean
help:
	@echo "make demo         split digits, four methods, one seed: table, curves and a report in demo/"
	@echo "make quick        formulas, the contracts of two methods, one run; under two minutes"
	@echo "make test         lint, types and all tests but the slow ones, with the minutes of each tier"
	@echo "make test-cpus    the tests of make test with the instructions of older processors, three times"
	@echo "make test-slow    the long matrices: float64, many kills"
	@echo "make test-lowest  quick tier and contracts on the lowest versions, in $(LOWEST)"
	@echo "make test-wheel   the wheel and all it needs in an empty environment, $(WHEEL)"
	@echo "make docs         the pages and the API reference, in site/"
	@echo "make results      the pages on real images and their figures, and the tables of fidelity, from committed files"
	@echo "make reproduce    three runs on real images trained again and compared; DATA=cifar100.npz"
	@echo "make reproduce-paper  one cell of the paper trained again in hours, and compared; DATA=cifar100.npz"
	@echo "make bench        speed as ratios, written to bench.csv and scale.csv; RECORD=1: to experiments/results"
	@echo "make mutate       change one symbol at a time in the formulas; every change must fail a test"
	@echo "                  ONLY=strategies EVERY=20: in what trains, every 20th change, held to the trajectories of tests/golden first"
	@echo "make faults       kill runs at twenty random moments, resume each time, compare with an unbroken run"

$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --constraint constraints.txt --editable '.[test,docs]'
	@touch $@

demo: $(READY)
	$(BIN)/hfc demo

quick: $(READY)
	$(PYTEST) -n $(JOBS) -m quick

test: lint types pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	$(PYTEST) -n $(JOBS)

test-cpus: $(READY)
	ATEN_CPU_CAPABILITY=default $(PYTEST) -n $(JOBS)
	ATEN_CPU_CAPABILITY=avx2 $(PYTEST) -n $(JOBS)
	ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) -n $(JOBS)

test-slow: $(READY)
	$(PYTEST) -n $(JOBS) -m slow

faults: $(READY)
	$(PYTEST) -m 'slow and kill' -v

$(LOWEST)/.ready: setup.cfg constraints-lowest.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python $(INSTALL) --constraint constraints-lowest.txt --editable '.[test]'
	@touch $@

test-lowest: $(LOWEST)/.ready
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n $(JOBS) -m 'not slow and (quick or contract)'

test-wheel:
	$(PYTHON) -m venv --clear $(WHEEL)
	$(WHEEL)/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEEL)/dist .
	$(WHEEL)/bin/python $(INSTALL) --constraint constraints.txt $(WHEEL)/dist/*.whl
	cd $(WHEEL) && bin/hfc selftest

docs: $(READY)
	$(BIN)/mkdocs build --strict

results: $(READY)
	$(BIN)/python experiments/results_page.py $(REAL_IMAGES) .
	$(BIN)/python experiments/fidelity_page.py

reproduce: $(READY)
	@test -n '$(DATA)' || { echo 'DATA must be a folder or npz file of CIFAR-100: make reproduce DATA=cifar100.npz'; exit 2; }
	OMP_NUM_THREADS=1 $(BIN)/python experiments/reproduce.py $(REAL_IMAGES) --data '$(DATA)'

reproduce-paper: $(READY)
	@test -n '$(DATA)' || { echo 'DATA must be a folder or npz file of CIFAR-100: make reproduce-paper DATA=cifar100.npz'; exit 2; }
	OMP_NUM_THREADS=1 $(BIN)/python experiments/reproduce_paper.py $(PAPER_SCALE) --data '$(DATA)' --again runs/again

bench: $(READY)
	$(BIN)/python experiments/bench.py $(if $(RECORD),--out experiments/results/bench.csv)
	$(BIN)/python experiments/bench.py --scale $(if $(RECORD),--out experiments/results/scale.csv)

mutate: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutate.py $(if $(ONLY),--only $(ONLY)) $(if $(EVERY),--every $(EVERY))

clean:
	rm -rf $(VENV) $(LOWEST) $(WHEEL) build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
