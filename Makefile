# Each target builds its environment in .venv/ where that is missing or older than what it is made from.
PYTHON ?= python3
BIN := .venv/bin
export MPLBACKEND := Agg

.PHONY: demo test test-fast lint bench docs dist clean

demo: .venv/.run
	$(BIN)/r2mae compare digits --schemes fixed r2mae r2mae-per-sample --ratios 0.3 0.5 0.7 --low 0.05 --high 0.95 \
		--norm layer --hidden 128 --latent 64 --steps 600 --out runs/demo

# Two processes, each with whole files: module fixtures are made once, and a laptop has two cores. Long files are first.
test: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Without whatever trains or takes long, and with fewer cases of each property: under two minutes.
test-fast: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" --hypothesis-profile fast

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.dev
	$(BIN)/python -m benchmarks

docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir site

# What an earlier build left behind would get into the wheel.
dist: .venv/.dev
	rm -rf build dist src/r2mae.egg-info
	$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	$(BIN)/python -m twine check --strict dist/*

# One environment; `.run` is enough to use the package, `.dev` adds the tools to work on it, and the paper's studies.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.run: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt -e '.[all]'
	touch $@

.venv/.dev: .venv/.run paper/pyproject.toml
	$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt -e '.[dev,bench]'
	$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt -e ./paper
	touch $@

clean:
	rm -rf .venv build dist site src/*.egg-info paper/build paper/src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
