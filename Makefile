# Headrace: `make help` lists what can be done. Every target sets up what it needs, once.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
RUN := $(VENV)/bin

FAST := not spark and not services and not browser and not long and not dbt
STREAMS := charges refunds disputes subscriptions

.PHONY: help setup demo fast test long matrix check docs docs-serve dist install-check expected bench soak stack compacted captured hostile truth airflow dagster fresh lock clean docker-up docker-down docker-restart docker-status docker-logs generate-all generate-stop $(STREAMS:%=generate-%)

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-22s %s\n", $$1, $$2}'

setup: $(STAMP) ## install Python packages, Java and the jars, once

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "Headrace needs Python 3.10 to 3.13, and $(PYTHON) is $$($(PYTHON) --version). Try: make setup PYTHON=python3.12"; exit 1; }
	@echo "Setting up $(VENV) (once, 2 to 3 minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(RUN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(RUN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(RUN)/python -m headrace.servers.jars
	@touch $@

demo: $(STAMP) ## events from Kafka to Iceberg, webhooks to people, a Postgres change by change, then from raw tables to marts, live, until Ctrl-C
	@$(RUN)/headrace demo lineage --exit
	@$(RUN)/headrace demo commerce --events 400 --exit
	@$(RUN)/headrace demo storefront --exit
	@$(RUN)/headrace demo payments

generate-charges: ## charges to Kafka, two a second, in the background
generate-refunds: ## refunds, one every 2 seconds, in the background
generate-disputes: ## disputes, one every 5 seconds, in the background
generate-subscriptions: ## subscriptions, one every 3 seconds, in the background
$(STREAMS:%=generate-%): generate-%: $(STAMP)
	@$(RUN)/headrace generate payments.$* --background

generate-all: $(STAMP) ## all four of them
	@$(RUN)/headrace generate payments --background

generate-stop: $(STAMP) ## stop the generators in the background, by their pids
	@$(RUN)/headrace generate --stop

fast test: export PYTHONDONTWRITEBYTECODE = # two processes import the tests, and tests start a hundred that import Headrace
fast: $(STAMP) ## the tests that need neither Java nor servers
	@$(RUN)/pytest -m "$(FAST)" -n 2 --dist loadfile --no-loadscope-reorder --quiet

test: check ## all that CI runs: check, and every test but the long ones
	@$(RUN)/python -m tests.support.class_archive
	@$(RUN)/pytest -m "not long" -n 2 --dist loadfile --no-loadscope-reorder --durations=15

long: $(STAMP) ## the tests that take minutes: servers and applications are killed in the middle of live pipelines
	@$(RUN)/pytest -m long --durations=0

matrix: ## the fast tests on Python 3.10 to 3.13, each in its own environment under .cache/matrix
	@scripts/matrix

check: $(STAMP) ## ruff, mypy strict, import-linter
	@$(RUN)/ruff format --check --quiet .
	@$(RUN)/ruff check --quiet .
	@$(RUN)/mypy
	@$(RUN)/lint-imports --no-logo

docs: $(STAMP) ## build the documentation site into site/, without a network; every warning is an error
	@$(RUN)/python scripts/reference_pages.py
	@NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict --quiet
	@echo "The site is in site/index.html: make docs-serve shows it"

docs-serve: $(STAMP) ## show the documentation on http://127.0.0.1:8008 and reload it when a page changes
	@NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs serve --dev-addr 127.0.0.1:8008

dist: $(STAMP) ## build the sdist, and the wheel from the sdist, into dist/
	@rm -rf dist
	@$(RUN)/python -m hatchling build --target sdist
	@$(RUN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist dist/headrace-*.tar.gz
	@ls dist/*.whl

install-check: dist ## install the wheel beside pandas, the newest FastAPI and dbt-duckdb in a fresh environment, and run it
	@scripts/install-check $(PYTHON)

expected: $(STAMP) ## write the rows again that the pipelines' samples become, after a change that is meant; then read the diff
	@$(RUN)/pytest --quiet tests/pipelines/test_samples.py --write-expected

bench: $(STAMP) ## landing against plain Spark and on two workers, layers against full rebuilds, entities against Splink, HTTP against a bare handler; results under benchmarks/
	@$(RUN)/python -m benchmarks

soak: $(STAMP) ## land for MINUTES (10) while parts are killed at random, then verify
	@$(RUN)/python -m tests.programs.soak $(or $(MINUTES),10)

stack: $(STAMP) ## every pipeline's sample on a Spark cluster, S3 and a REST catalog while workers are killed, compared with the expected rows
	@$(RUN)/python -m tests.programs.stacked

compacted: $(STAMP) ## maintain tables for MINUTES (10) while they are landed, built and read, then compare them with a full refresh
	@$(RUN)/python -m tests.programs.compacted $(or $(MINUTES),10)

captured: $(STAMP) ## play with a captured shop for MINUTES (5) while its servers are killed, then compare the lake with Postgres
	@$(RUN)/python -m tests.programs.captured $(or $(MINUTES),5)

hostile: $(STAMP) ## attack every HTTP server with REQUESTS (10000) generated requests, slow clients, long bodies and heavy queries
	@$(RUN)/python -m tests.programs.hostile $(or $(REQUESTS),10000)

truth: $(STAMP) ## play ROUNDS (1000) of random pipelines from SEED (1): increments, one large build and a full refresh have the same rows
	@$(RUN)/python -m tests.build.truth $(or $(ROUNDS),1000) $(or $(SEED),1)

airflow: $(STAMP) ## run the DAG of PIPELINE (payments) and of a broken one in a real Airflow, in an environment of its own
	@$(RUN)/python -m tests.export.airflow_check $(or $(PIPELINE),payments)

dagster: $(STAMP) ## materialize the assets of PIPELINE (commerce) and of a broken one in a real Dagster, in an environment of its own
	@$(RUN)/python -m tests.export.dagster_check $(or $(PIPELINE),commerce)

fresh: ## what a newcomer does, in a fresh clone with empty caches, and again without a network (Linux, 40 minutes)
	@scripts/fresh

docker-up: .env ## build the image and start all systems of compose.yaml, until they are healthy
	@docker compose up --build --detach --wait

docker-down: ## stop them; what they keep stays (docker compose down --volumes removes it)
	@docker compose down

docker-restart: ## restart them, or SERVICE=headrace alone
	@docker compose restart $(SERVICE)

docker-status: ## what runs, its health and its ports
	@docker compose ps --all

docker-logs: ## follow their logs, or SERVICE=headrace alone
	@docker compose logs --follow --tail 100 $(SERVICE)

.env:
	@echo "There is no .env: run  cp .env.example .env  and give each secret in it a value."; exit 1

lock: ## pin all packages again, with hashes (needs uv)
	@uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --group dev pyproject.toml --output-file requirements.lock
	@uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  tests/export/dbt.in --output-file tests/export/dbt.lock
	@uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  tests/export/airflow.in --output-file tests/export/airflow.lock
	@uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  tests/export/dagster.in --output-file tests/export/dagster.lock

clean: ## remove the environment, the state and all caches of the project
	@rm -rf $(VENV) .headrace .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
