# Targets for developers. `make help` lists them; every target sets up .venv by itself.

# The interpreter for .venv. Without it scripts/setup.sh takes the first that is new enough.
PYTHON ?=
# Number of test processes (some tests wait, so two cores are busy with five), and more arguments for pytest:
# make test PYTEST_ARGS="-k spec -x"
WORKERS ?= $(shell expr $$(nproc) \* 2 + 1)
PYTEST_ARGS ?=

PY := .venv/bin/python
PYTEST := $(PY) -m pytest
CODE := $(wildcard src tests benchmarks examples scripts)
# Tests of what a reader relies on: the public names, the cost of an import, the docs.
DRIFT := $(wildcard tests/unit/test_public.py tests/unit/test_docs.py)
CHECKS := check-format check-lint check-types check-layers check-size check-repo check-page check-drift
EXPORT := .venv/bin/uv export --quiet --frozen --format requirements-txt \
	--no-emit-project --no-annotate --no-header

export PYTHON
# Use the certificates of the machine, if it has any: a proxy of a company may need its own.
export UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),1,0)
# Tests start Python thousands of times, each time much slower where the machine forbids to keep bytecode.
export PYTHONDONTWRITEBYTECODE :=
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test check $(CHECKS) format docs screenshots site bench soak lock clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-11s %s\n' "$$name" "$$text"; done

setup: ## Create .venv from the lock files (other targets run this)
	@sh scripts/setup.sh

demo: setup ## Run a demo: an agent calls tools through Toolcrib
	@$(PY) examples/demo.py

test: setup ## Run all tests except the long ones
	@sh scripts/in_memory.sh $(PYTEST) -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

check: setup ## Format, lint, types, layers, sizes, public names, docs
	@$(MAKE) --keep-going --jobs=$$(nproc) --output-sync=target $(CHECKS)
	@echo "check: all good"

check-format:
	@.venv/bin/ruff format --check $(CODE)

check-lint:
	@.venv/bin/ruff check $(CODE)

check-types:
	@.venv/bin/mypy $(CODE)

check-layers:
	@.venv/bin/lint-imports --no-logo

check-size:
	@$(PY) scripts/check_size.py $(CODE)

check-repo:
	@$(PY) scripts/check_repo.py

check-page:
	@$(PY) scripts/page.py check

check-drift:
	@$(PYTEST) --quiet $(DRIFT)

format: setup ## Format the code and fix what the linter can
	@.venv/bin/ruff check --fix --exit-zero --quiet $(CODE)
	@.venv/bin/ruff format $(CODE)

docs: setup ## Write the generated parts of the docs
	@$(PY) scripts/make_docs.py

screenshots: setup ## Draw every page of the web page into build/screenshots
	@PYTHONPATH=. $(PY) scripts/screenshots.py

bench: setup ## Measure beside limits and other frameworks (ARGS="--help")
	@$(PY) benchmarks/run.py $(ARGS)

site: setup ## Build the site of the documentation in build/site
	@.venv/bin/mkdocs build --quiet --strict

soak: setup ## Run the long tests (minutes to hours)
	@$(PYTEST) -m soak --timeout=0 $(PYTEST_ARGS)

lock: setup ## Update the lock files to pyproject.toml and the newest releases
	@.venv/bin/uv lock --quiet --upgrade
	@$(EXPORT) --no-dev --output-file requirements.lock >/dev/null
	@$(EXPORT) --all-groups --output-file requirements-dev.lock >/dev/null
	@awk '/^[^ ]/ { on = /^uv==/ } on' requirements-dev.lock >requirements-uv.lock
	@.venv/bin/uv pip compile --quiet --python-platform linux --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header --constraint requirements.lock pyproject.toml --extra http --extra postgres \
		benchmarks/requirements-peers.in --output-file benchmarks/requirements-peers.lock
	@.venv/bin/uv pip compile --quiet --python-platform linux --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header benchmarks/requirements-gateway.in --output-file benchmarks/requirements-gateway.lock
	@$(PY) scripts/check_repo.py
	@sh scripts/setup.sh

clean: ## Remove .venv, caches and builds
	@rm -rf .venv build dist frontend/node_modules src/toolcrib/page .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +
