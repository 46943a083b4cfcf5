# Every target installs what it needs into .venv first; a second run finds it there and starts at once.
.DEFAULT_GOAL := help
.PHONY: help setup demo check test bench docs clean

BIN := .venv/bin

help:           ## Say what there is to make
	@sed -n 's/^\([a-z]*\): .*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup:          ## Install Headwater, what the checks need and what the real clients need
	@tools/setup real

demo:           ## Run a shop with made-up customers and a live page until Ctrl-C
	@tools/setup demo
	@$(BIN)/headwater demo

check:          ## Run the linters and the fast tests (under 2 minutes)
	@tools/setup dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q -n 2 -m "not real"

test: check     ## Run the checks, and every test with real clients and servers
	@tools/setup real
	$(BIN)/python -m pytest -q -m real -n 3 --dist loadscope --reruns 2 --reruns-delay 1 --tb=native

bench:          ## Measure Headwater, Kafka, RabbitMQ and Spark's connector side by side
	@tools/setup real
	$(BIN)/python -m bench

docs:           ## Write the generated pages of docs/ anew
	@tools/setup demo
	$(BIN)/headwater settings --markdown > docs/settings.md

clean:          ## Remove everything that was made, .venv included
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
