# Every target makes .venv and installs what it needs by itself. `make` alone explains them.
SHELL := /bin/bash
BIN := .venv/bin
# Tests of one module, or one class, stay together: they share what they start. Most wait for brokers, so that four are
# right for two cores. Of three, one leaves those alone that start Sparks and clusters (tests/scheduling.py).
WORKERS ?= 3
FAST_WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest --dist loadscope --no-loadscope-reorder --max-worker-restart 4 --numprocesses
SOURCES := src tests tools examples benchmarks compat

# Tests start hundreds of processes: compiling all modules anew in each would cost most of the time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo cluster-demo test fast check lint types format docs site codec mutants bench compat pins release clean

help: ## explain the targets
	@printf '\n  Magnetar: Kafka clients, Pulsar'"'"'s storage model, Spark on the same ledgers.\n\n'
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | \
		while IFS=$$'\t' read -r name text; do printf '  \033[1mmake %-13s\033[0m %s\n' "$$name" "$$text"; done
	@printf '\n  New here?  make demo  shows it with real data;  make test  checks it.\n\n'

.venv/installed: constraints.txt pyproject.toml tools/install.sh bin/magnetar-python
	@tools/install.sh

install: .venv/installed ## make .venv with all that is needed, and nothing else

demo: .venv/installed ## 336,776 real flights: a Kafka client, our broker, a Spark table, a picture
	@$(BIN)/python examples/flights/demo.py

cluster-demo: .venv/installed ## the flights through three brokers and three bookies while one of each is killed (needs Java and Maven)
	@$(BIN)/python examples/cluster/demo.py

# As many random worlds again come with every run: a third of what tests do by themselves is enough for one of them.
test: .venv/installed lint types ## the whole test suite in about half an hour (MAGNETAR_SEEDS=300: more random worlds)
	@MAGNETAR_SEEDS=$${MAGNETAR_SEEDS:-100} $(PYTEST) $(WORKERS)

fast: .venv/installed lint types ## the same without the slow tests, in a few minutes
	@MAGNETAR_SEEDS=$${MAGNETAR_SEEDS:-100} MAGNETAR_FLIPS=$${MAGNETAR_FLIPS:-100} $(PYTEST) $(FAST_WORKERS) -m "not slow and not spark"

check: .venv/installed ## format, lint, types, and the tests of what differs from main: about a minute
	@$(BIN)/python -m tools.check

lint: .venv/installed ## style and the import contracts
	@$(BIN)/ruff check $(wildcard $(SOURCES))
	@$(BIN)/ruff format --check $(wildcard $(SOURCES))
	@$(BIN)/lint-imports --no-cache > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }

types: .venv/installed ## mypy, strict
	@$(BIN)/mypy --no-error-summary

format: .venv/installed ## put all files into the one style
	@$(BIN)/ruff check --fix --quiet $(wildcard $(SOURCES))
	@$(BIN)/ruff format --quiet $(wildcard $(SOURCES))

docs: .venv/installed ## write the pages that are made from the code anew
	@$(BIN)/python tools/configuration_reference.py
	@$(BIN)/python tools/cli_reference.py
	@$(BIN)/python tools/rooms_sheet.py
	@$(BIN)/python tools/types_page.py
	@$(BIN)/python compat/report.py
	@$(BIN)/python -m benchmarks.report

site: .venv/installed ## the documentation as a site below build/site, with search, for a browser and without a server
	@$(BIN)/python -m tools.site

codec: .venv/installed ## generate the messages of Kafka's protocol anew from Kafka's own jars (Maven brings them)
	@$(BIN)/python tools/import_messages.py

# In copies of the tree. SAMPLE says how many (0: all), SEED which, MUTANTS more of `python -m tools.mutants --help`.
mutants: .venv/installed ## change the source a line at a time, and see which change no test notices
	@nice -n 10 $(BIN)/python -m tools.mutants --sample $(or $(SAMPLE),150) --seed $(or $(SEED),1) $(MUTANTS)

bench: .venv/installed ## side-by-side benchmarks with Kafka (Maven brings it: see docs/benchmarks.md)
	@$(BIN)/python -m benchmarks

compat: .venv/installed ## foreign clients against a fresh broker (they bring Go, Node, Java: see compat/)
	@$(BIN)/python compat/run.py --magnetar

pins: .venv/installed ## renew constraints.txt from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --upgrade --quiet --output-file constraints.txt

# REPOSITORY is where the tree can be browsed, SIGNING_KEY an SSH key's file. Nothing is uploaded, tagged or committed.
release: .venv/installed ## wheel, sdist, SBOM, licences, man page, completions and notes below dist/, checked and signed
	@$(BIN)/python -m tools.release $(if $(REPOSITORY),--repository $(REPOSITORY)) $(if $(SIGNING_KEY),--signing-key $(SIGNING_KEY))

clean: ## remove .venv and what tools left behind; the demo's data stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
