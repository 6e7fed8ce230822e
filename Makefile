# The front door. Each target prepares what it needs; `make` alone explains.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup build test test-slow cuda-check fuzz program demo-program demo bench accuracy accuracy-check calibrate format lint planning wheel clean

# Tests at a time: one more than there are cores, because many of them wait for other processes for half of their time.
tests_at_a_time := $(shell expr $$(nproc) + 1)

predict_published = build/tessera accuracy data/published-throughput.csv --threads 2 \
  --reality data/measured/reality.json --reality data/measured/networks.json

help: ## this text
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 23

setup: ## install what is missing: Debian packages, and libtorch into .venv
	@scripts/setup

build: setup ## build everything; the program is build/tessera
	@scripts/configure release
	@cmake --build build

test: build ## build everything and run the quick tests
	@ctest --test-dir build -LE slow -j$(tests_at_a_time) --output-on-failure

test-slow: build ## the slow tests and `make fuzz`: all, or parts by name (PART="random rest"; scripts/slow lists them)
	@scripts/setup --browser
	@scripts/setup --slurm || echo "The tests with label slurm are skipped: Slurm cannot be installed here"
	@export TESSERA_SEED="$${TESSERA_SEED:-$$(date +%Y%m%d)}"; \
	  echo "Random tests with TESSERA_SEED=$$TESSERA_SEED; make test-slow TESSERA_SEED=$$TESSERA_SEED repeats them"; \
	  scripts/slow $(or $(PART),search matrix-1 matrix-2 device random rest); \
	  $(if $(PART),,$(MAKE) --no-print-directory fuzz)

cuda-check: program ## start the program on libtorch's CUDA build (installs it: some GB), with or without a GPU
	@cmake --build build --target cuda_start
	@scripts/cuda-check

fuzz: ## damaged files under sanitizers: TESSERA_FUZZ (1,000) of every kind, other ones for each TESSERA_SEED
	@scripts/setup --planning
	@scripts/configure planning-asan
	@cmake --build build-planning-asan --target fuzz_test
	@build-planning-asan/tests/fuzz_test --gtest_brief=1

program: setup ## build the program whole: planners, predictions, imports and exports too, without the tests
	@scripts/configure release
	@cmake --build build --target program

# The demo needs no planners: without them half the sources are left out. Where they have been built they stay of one
# build with the program.
demo-program: setup
	@scripts/configure release
	@cmake --build build --target $$([[ -e build/libtessera_planning.so ]] && echo program || echo demo_program)

demo: demo-program ## train a GPT on real text, serially and under a plan, and prove them equal
	@scripts/demo

bench: build ## the benchmarks
	@scripts/bench

accuracy: program ## predict the published runs and write docs/accuracy.md
	@$(predict_published) -o docs/accuracy.md

accuracy-check: program ## predict the published runs and compare with docs/accuracy.md
	@$(predict_published) --check docs/accuracy.md

calibrate: program ## fit the constants of predictions to the published runs, also without each source (half an hour)
	@scripts/calibrate build/tessera data/published-throughput.csv --threads 2 \
	  --constants scripts/calibration/constants.toml --out build/fitted-constants.toml

planning: ## build and test the planning half alone, without libtorch and MPI
	@scripts/setup --planning
	@scripts/configure planning
	@cmake --build build-planning
	@ctest --test-dir build-planning -LE slow -j$(tests_at_a_time) --output-on-failure

wheel: ## build the wheel of the Python package into build-wheel/dist, and test it in a fresh environment
	@scripts/setup --planning
	@scripts/wheel

format: setup ## lay out the sources with clang-format
	@scripts/lint --fix-format

lint: setup ## rules of the project, layout, clang-tidy
	@scripts/configure release
	@scripts/lint

clean: ## remove what was built (.venv stays)
	@rm -rf build build-*
