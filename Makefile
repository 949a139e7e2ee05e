# Every target works from a fresh clone on a Debian or Ubuntu machine with make, git and Python 3.9 or newer:
# what it needs is made under .venv and .cache. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON  ?= python3
FLAVOUR ?= slim
OUT     ?= .cache/caffe_on_grid.tgz

VENV    := .venv/.made
SPARK35 := .cache/venv-spark35/.made
ARCHIVE := .cache/caffe_on_grid.tgz

# A runtime of the user's own is used as it is; else the one built here.
ifdef CAFFE_ON_GRID_RUNTIME
RUNTIME :=
else
RUNTIME := .cache/runtime/.current
export CAFFE_ON_GRID_RUNTIME := $(CURDIR)/.cache/runtime
endif

# Prefix of a recipe line that starts Spark.
WITH_JAVA = JAVA_HOME=$$(packaging/java.sh) && export JAVA_HOME &&

.PHONY: help demo test test-golden check bench archive wheel venv clean
help: ## this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(VENV) $(RUNTIME) ## train LeNet on MNIST with two executors (arguments: DEMO_ARGS)
	$(WITH_JAVA) .venv/bin/python examples/lenet/demo.py $(DEMO_ARGS)

test: $(VENV) $(RUNTIME) $(SPARK35) ## everything that runs without a cluster (arguments: PYTEST_ARGS)
	$(WITH_JAVA) CAFFE_ON_GRID_SPARK35=$(CURDIR)/.cache/venv-spark35/bin/python .venv/bin/python -m pytest $(PYTEST_ARGS)

test-golden: $(VENV) $(RUNTIME) ## Caffe's values only; another set of them with CAFFE_GOLDEN=DIR
	$(WITH_JAVA) $(if $(CAFFE_GOLDEN),CAFFE_GOLDEN='$(CAFFE_GOLDEN)') .venv/bin/python -m pytest tests/golden $(PYTEST_ARGS)

check: $(VENV) ## format, lint, types, imports, links in the docs
	@.venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 10) and "make check needs Python 3.10 or newer: set PYTHON and run make clean")'
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python -m pytest tests/unit/test_docs.py

bench: $(VENV) $(RUNTIME) ## all of benchmarks/, one JSON object per line
	@$(WITH_JAVA) for b in benchmarks/*.py; do .venv/bin/python "$$b"; done

archive: $(OUT) ## the Caffe runtime as an archive (OUT=…, FLAVOUR=slim|full)

venv: $(VENV) ## the virtual environment alone

wheel: $(VENV) ## dist/*.whl, checked in an environment of its own
	packaging/check_wheel.sh

clean: ## remove what was built; downloads stay in .cache/debs, .cache/wheels and .cache/mnist
	rm -rf .venv build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output
	mkdir -p .cache && find .cache -mindepth 1 -maxdepth 1 -not -name debs -not -name wheels -not -name mnist -exec rm -rf {} +

# --- What the targets need ---------------------------------------------------------------------------------------------

$(VENV): setup.cfg pyproject.toml packaging/venv.sh packaging/apt.sh
	PYTHON='$(PYTHON)' packaging/venv.sh .venv
	PYTHONWARNINGS=ignore .venv/bin/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

$(SPARK35): setup.cfg packaging/venv.sh packaging/apt.sh
	PYTHON='$(PYTHON)' packaging/venv.sh .cache/venv-spark35
	PYTHONWARNINGS=ignore .cache/venv-spark35/bin/python -m pip install -q --disable-pip-version-check -e . 'pyspark==3.5.*'
	touch $@

$(OUT): $(wildcard packaging/runtime/*) | $(VENV)
	PYTHON=$(CURDIR)/.venv/bin/python FLAVOUR='$(FLAVOUR)' OUT='$(OUT)' packaging/runtime/build.sh

ifneq ($(OUT),$(ARCHIVE))
$(ARCHIVE): $(wildcard packaging/runtime/*) | $(VENV)
	PYTHON=$(CURDIR)/.venv/bin/python OUT='$@' packaging/runtime/build.sh
endif

.cache/runtime/.current: $(ARCHIVE) | $(VENV)
	PYTHONPATH=. .venv/bin/python packaging/unpack_runtime.py $(ARCHIVE) .cache/runtimes .cache/runtime
	touch $@
