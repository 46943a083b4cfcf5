# Every target installs what it needs into .venv first; a second run finds it there and starts at once.
.DEFAULT_GOAL := help
.PHONY: help setup demo dev servers check lint fast compiled thorough test bench docs upgrade clean

BIN := .venv/bin
# A run starts hundreds of processes: none of them is to compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE
# Nor is it to start a thread for each core when it imports numpy.
fast test: export OPENBLAS_NUM_THREADS = 1
# The fast tests sync thousands of small files, and are not about the disk: memory holds them where it has room.
fast: export TMPDIR := $(shell df -m --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4096 {print "/dev/shm"}')
# How much property tests draw (tests/conftest.py): a part of it between two edits, and all before a merge.
EXAMPLES := quick

help:           ## Say what there is to make
	@sed -n 's/^\([a-z]*\): .*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup:          ## Install Headwater, what the checks need and what the real clients need
	@tools/setup real

demo:           ## Run a shop with made-up customers and a live page until Ctrl-C
	@tools/setup demo
	@$(BIN)/headwater demo

dev servers:
	@tools/setup $@

check:          ## Run the linters and the fast tests (under 2 minutes)
	@$(MAKE) --no-print-directory --jobs=2 lint fast

lint: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fast: dev
	$(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not real" --hypothesis-profile=$(EXAMPLES)

# Modules, tests and kernels are compiled when they are first used: once here, or by all who begin at the same time.
compiled: dev
	@$(BIN)/python -c "from headwater.pipeline.source.warming import warm; warm()"
	@-$(BIN)/python -m pytest -q --collect-only >/dev/null

thorough: compiled
	@$(MAKE) --no-print-directory EXAMPLES=thorough fast

test:           ## Run the checks, and every test with real clients and servers
	@tools/setup demo
	@$(MAKE) --no-print-directory --jobs=3 servers lint thorough
	$(BIN)/python -m pytest -q -m real -n 4 --dist loadscope --reruns 2 --reruns-delay 1 --rerun-show-tracebacks --tb=native

bench:          ## Measure Headwater, Kafka, RabbitMQ and Spark's connector side by side
	@tools/setup real
	$(BIN)/python -m bench

docs:           ## Write the generated pages of docs/ anew
	@tools/setup demo
	$(BIN)/headwater settings --markdown > docs/settings.md

upgrade:        ## Take the newest versions of everything that is installed, and write them down
	@tools/setup upgrade

clean:          ## Remove everything that was made, .venv included
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
