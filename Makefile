# Each verb may be run again and again, and interrupted; none needs root, a container engine or a GPU.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTEST := .venv/bin/python -m pytest -rs
# Test files at once: each process has servers of its own.
JOBS := $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))

.PHONY: help demo test test-heavy test-all check lint-frames gpu-test build bench sizes lock clean
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## set up, then build the demo shop and export tensors and Parquet from it to build/demo
	@.ci/setup product
	@.venv/bin/cuetl demo --to build/demo

test: ## set up, then the quick tests, on real servers started for them
	@.ci/setup product test
	@.ci/setup servers
	@$(PYTEST) -n $(JOBS) --dist loadfile -m "not slow and not framework and not gpu and not gpuwheels"

test-heavy: ## the other tests: slow ones, those with torch, JAX or TensorFlow (in .venv), those with cuDF's wheels (in .gpu)
	@.ci/setup product test
	@.ci/setup servers
	@.ci/setup frameworks
	@$(PYTEST) -m "(slow or framework) and not gpu and not gpuwheels"
	@.ci/setup gpu
	@.gpu/bin/python -m pytest -rs -m "gpuwheels and not gpu" $(wildcard tests/contract tests/door tests/cluster)

test-all: test ## all tests: those of test, then those of test-heavy
	@$(MAKE) --no-print-directory test-heavy

check: ## lint, format, types, layers
	@.ci/setup product dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	@$(MAKE) --no-print-directory lint-frames

lint-frames: ## lines of our pipelines and transforms that pandas and cuDF understand differently
	@.ci/setup product dev
	@.venv/bin/python tests/architecture/frames.py

gpu-test: ## on a machine with an NVIDIA GPU: what only a device can show, and the README's row of it
	@.ci/setup gpu
	@.gpu/bin/python -m tests.device.run $(ARGS)

build: ## sdist and wheel into build/dist, and a newcomer's path through the wheel
	@.ci/setup product dev
	@rm -rf build/dist
	@.venv/bin/python -m build --no-isolation --outdir build/dist .
	@.venv/bin/python tests/newcomer/wheel.py build/dist/*.whl constraints.txt

bench: ## cuETL and its peers in turn on one private PostgreSQL; ARGS="--scale 1 --repeat 5" ROWS=6000000
	@.ci/setup product test
	@.ci/setup servers
	@.venv/bin/python -m benchmarks.run $(ARGS)
	@.venv/bin/python -m benchmarks.pipelines $(ROWS)

sizes: ## the largest files and functions, and the most branched ones
	@python3 tests/architecture/sizes.py

lock: ## write constraints.txt anew from what the package index gives today
	@rm -rf build/lock && python3 -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	@{ sed -n '/^#/p' constraints.txt; build/lock/bin/python -m pip freeze --exclude cuetl; } > build/constraints.new
	@mv build/constraints.new constraints.txt && rm -rf build/lock

clean: ## remove .venv, .servers, .gpu and build, nothing else
	rm -rf .venv .servers .gpu build
