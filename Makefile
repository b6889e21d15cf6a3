# Needs Python 3.11 or newer and make; everything else goes into .venv.
# TORCH is what pip installs first: a CPU build on a laptop. For a CUDA build: make quickstart TORCH='torch>=2.11,<2.14'
PYTHON ?= python3
TORCH ?= torch==2.13.0
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: quickstart test lint smoke soak bench clean

quickstart: .venv/installed
	.venv/bin/python -m cod_lightning fit --config configs/quickstart.yaml

test: .venv/installed-test
	.venv/bin/python -m pytest -q

lint: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/pyright

smoke: .venv/installed-test
	.venv/bin/python -m pytest -q -m slow

soak: .venv/installed-test
	.venv/bin/python tests/soak/quickstart.py --out docs/results/quickstart.json

bench: .venv/installed-test
	.venv/bin/python tests/benchmarks/bench_rollout.py
	.venv/bin/python tests/benchmarks/bench_worlds.py

clean:
	rm -rf .venv runs dist

.venv/torch:
	$(PYTHON) -m venv .venv
	$(PIP) '$(TORCH)'
	@touch $@

.venv/installed: .venv/torch pyproject.toml
	$(PIP) -e .
	@touch $@

.venv/installed-test: .venv/installed
	$(PIP) -e '.[test]'
	@touch $@

.venv/installed-dev: .venv/installed-test
	$(PIP) -e '.[dev]'
	@touch $@
