# Every target works from a fresh clone on a Debian or Ubuntu machine with make, git and Python 3.9 or newer:
# what it needs is made under .venv and .cache. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON  ?= python3
ENGINE  ?= auto
OUT     ?= .cache/caffe_on_grid.tgz

VENV    := .venv/.made
SPARK35 := .cache/venv-spark35/.made
ARCHIVE := .cache/caffe_on_grid.tgz
PACKED_TORCH := .cache/caffe_on_grid_torch.tgz

# A runtime of the user's own is used as it is; else the one built here.
ifdef CAFFE_ON_GRID_RUNTIME
RUNTIME :=
else
RUNTIME := .cache/runtime/.current
export CAFFE_ON_GRID_RUNTIME := $(CURDIR)/.cache/runtime
endif

# A Python with torch of the user's own is used as it is; else the one of `make venv-torch`.
ifdef CAFFE_ON_GRID_TORCH_PYTHON
TORCH :=
else
TORCH := .cache/venv-torch/.made
export CAFFE_ON_GRID_TORCH_PYTHON := $(CURDIR)/.cache/venv-torch/bin/python
endif

# Tests that import torch themselves, for a Python that has it.
TORCH_TESTS = $(sort $(shell grep -rl --include='test_*.py' --exclude-dir=gpu 'importorskip.*torch' tests))
# With arguments of the user's own one of several pytest calls may well find nothing to do (code 5).
MAY_BE_EMPTY = $(if $(PYTEST_ARGS),|| [ $$? -eq 5 ])

# Tests are shared out by files over one worker more than there are cores: some of them wait. WORKERS=0: one after another.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 8 ? cores + 1 : 8)))
PYTEST  := -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Prefix of a recipe line that starts Spark.
WITH_JAVA = JAVA_HOME=$$(packaging/java.sh) && export JAVA_HOME &&

.PHONY: help demo test test-golden test-gpu test-grid grid check bench archive archive-torch runtime-torch wheel venv venv-torch clean
help: ## this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(VENV) $(RUNTIME) $(if $(filter torch,$(ENGINE)),$(TORCH)) ## train LeNet on MNIST with two executors (ENGINE=auto|caffe|torch, DEMO_ARGS)
	$(WITH_JAVA) $(if $(filter torch,$(ENGINE)),CAFFE_ON_GRID_RUNTIME="$$(dirname "$$(dirname "$$CAFFE_ON_GRID_TORCH_PYTHON")")") \
	  .venv/bin/python examples/lenet/demo.py --engine $(ENGINE) $(DEMO_ARGS)

test: $(VENV) $(RUNTIME) $(SPARK35) $(TORCH) ## everything that runs without a cluster (arguments: PYTEST_ARGS)
	$(WITH_JAVA) CAFFE_ON_GRID_SPARK35=$(CURDIR)/.cache/venv-spark35/bin/python .venv/bin/python $(PYTEST) $(PYTEST_ARGS) $(MAY_BE_EMPTY)
	OMP_NUM_THREADS=1 $$CAFFE_ON_GRID_TORCH_PYTHON $(PYTEST) $(TORCH_TESTS) $(PYTEST_ARGS) $(MAY_BE_EMPTY)

test-golden: $(VENV) $(RUNTIME) $(TORCH) ## Caffe's values only, by both engines; another set of them with CAFFE_GOLDEN=DIR
	$(WITH_JAVA) $(if $(CAFFE_GOLDEN),CAFFE_GOLDEN='$(CAFFE_GOLDEN)') .venv/bin/python $(PYTEST) tests/golden $(PYTEST_ARGS) $(MAY_BE_EMPTY)
	$(if $(CAFFE_GOLDEN),CAFFE_GOLDEN='$(CAFFE_GOLDEN)') OMP_NUM_THREADS=1 \
	  $$CAFFE_ON_GRID_TORCH_PYTHON $(PYTEST) $(filter tests/golden/%,$(TORCH_TESTS)) $(PYTEST_ARGS) $(MAY_BE_EMPTY)

test-gpu: $(TORCH) ## Caffe's values, the engine contract and a benchmark on a GPU (under 4 minutes)
	@if $$CAFFE_ON_GRID_TORCH_PYTHON -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
	  $$CAFFE_ON_GRID_TORCH_PYTHON -m pytest -m gpu tests/gpu $(PYTEST_ARGS) && \
	  $$CAFFE_ON_GRID_TORCH_PYTHON benchmarks/torch_engine.py --device cuda --seconds 5; \
	else echo "test-gpu: torch finds no GPU on this machine: nothing was run"; fi

grid: $(VENV) ## start a real HDFS and YARN on this machine (packaging/grid/grid.sh stop ends it)
	packaging/grid/grid.sh start

test-grid: $(VENV) $(RUNTIME) ## everything that needs HDFS and YARN: starts them, stops them (needs Maven)
	packaging/grid/grid.sh jars
	$(WITH_JAVA) .venv/bin/python -m pytest -m grid tests/grid $(PYTEST_ARGS)

check: $(VENV) ## format, lint, types, imports, links in the docs
	@.venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 10) and "make check needs Python 3.10 or newer: set PYTHON and run make clean")'
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python -m pytest tests/unit/test_docs.py

bench: $(VENV) $(RUNTIME) $(TORCH) ## all of benchmarks/, one JSON object per line
	@$(WITH_JAVA) for b in benchmarks/*.py; do .venv/bin/python "$$b"; done

archive: $(OUT) ## the Caffe runtime as an archive (OUT=…, FLAVOUR=slim|full)

archive-torch: $(PACKED_TORCH) ## the torch runtime as an archive (FLAVOUR=gpu|cpu)

runtime-torch: .cache/runtime-torch/.current ## the torch runtime, unpacked for runs on this machine

venv: $(VENV) ## the virtual environment alone

venv-torch: $(TORCH) ## an environment with torch, for tests and runs on this machine

wheel: $(VENV) ## dist/*.whl, checked in an environment of its own
	packaging/check_wheel.sh

clean: ## remove what was built; downloads stay in .cache/debs, .cache/wheels, .cache/wheels-torch and .cache/mnist
	rm -rf .venv build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output
	mkdir -p .cache && find .cache -mindepth 1 -maxdepth 1 -not -name debs -not -name wheels -not -name wheels-torch -not -name mnist -exec rm -rf {} +

CAFFE_RECIPE := $(filter-out $(wildcard packaging/runtime/*torch*),$(wildcard packaging/runtime/*))
TORCH_RECIPE := $(wildcard packaging/runtime/*torch*) $(addprefix packaging/runtime/,build.sh sources.txt)

# --- What the targets need ---------------------------------------------------------------------------------------------

$(VENV): setup.cfg pyproject.toml packaging/venv.sh packaging/apt.sh
	PYTHON='$(PYTHON)' packaging/venv.sh .venv
	PYTHONWARNINGS=ignore .venv/bin/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

$(SPARK35): setup.cfg packaging/venv.sh packaging/apt.sh
	PYTHON='$(PYTHON)' packaging/venv.sh .cache/venv-spark35
	PYTHONWARNINGS=ignore .cache/venv-spark35/bin/python -m pip install -q --disable-pip-version-check -e . 'pyspark==3.5.*'
	touch $@

.cache/venv-torch/.made: packaging/venv-torch.txt packaging/venv.sh packaging/apt.sh
	PYTHON='$(PYTHON)' packaging/venv.sh .cache/venv-torch
	PYTHONWARNINGS=ignore .cache/venv-torch/bin/python -m pip install -q --disable-pip-version-check -r packaging/venv-torch.txt
	touch $@

$(OUT): $(CAFFE_RECIPE) | $(VENV)
	PYTHON=$(CURDIR)/.venv/bin/python FLAVOUR='$(or $(FLAVOUR),slim)' OUT='$(OUT)' packaging/runtime/build.sh

ifneq ($(OUT),$(ARCHIVE))
$(ARCHIVE): $(CAFFE_RECIPE) | $(VENV)
	PYTHON=$(CURDIR)/.venv/bin/python OUT='$@' packaging/runtime/build.sh
endif

.cache/runtime/.current: $(ARCHIVE) | $(VENV)
	PYTHONPATH=. .venv/bin/python packaging/unpack_runtime.py $(ARCHIVE) .cache/runtimes .cache/runtime
	touch $@

$(PACKED_TORCH): $(TORCH_RECIPE) | $(VENV)
	PYTHON=$(CURDIR)/.venv/bin/python ENGINE=torch FLAVOUR='$(or $(FLAVOUR),gpu)' OUT='$@' packaging/runtime/build.sh

.cache/runtime-torch/.current: $(PACKED_TORCH) | $(VENV)
	PYTHONPATH=. .venv/bin/python packaging/unpack_runtime.py $(PACKED_TORCH) .cache/runtimes .cache/runtime-torch
	touch $@
