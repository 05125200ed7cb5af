# Works on a machine with Python 3.11 or newer and nothing else: the first target makes a virtual environment and installs into it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test quick lint types layers tests docs installed bench clean

demo: .venv/demo
	$(BIN)/mebandit demo --out demo

test: lint types layers tests docs

# What needs no simulation, no cluster, no compiling and no whole command: for every change, before `make test`.
SLOW := simulation experiments policies/test_policies.py analysis/planning analysis/test_fit.py analysis/test_theory.py cli
SLOW += kernels/test_compiling.py measurement/test_pairs.py runtime/test_workers.py test_fuzz.py test_package.py
quick: lint types layers
	$(BIN)/pytest --numprocesses 2 --dist loadfile $(SLOW:%=--ignore tests/%)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

layers: .venv/ready
	$(BIN)/lint-imports

tests: .venv/ready
	$(BIN)/pytest --numprocesses 2 --dist loadfile

docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# As users install it: a wheel in empty environments, also with the lowest versions that are promised.
installed:
	$(PYTHON) scripts/check_install.py

bench: .venv/ready benchmarks/.venv/ready
	$(BIN)/mebandit bench --python benchmarks/.venv/bin/python

benchmarks/.venv/ready: benchmarks/peers.txt
	$(PYTHON) -m venv benchmarks/.venv
	benchmarks/.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers.txt
	benchmarks/.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps obp
	touch $@

.venv/demo: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	touch $@

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev]'
	touch .venv/demo $@

clean:
	rm -rf .venv benchmarks/.venv build dist site demo results .pytest_cache .mypy_cache .ruff_cache .hypothesis
