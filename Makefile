# Toolcrib's house work. `make help` says what there is; every target sets up .venv by itself.

# The interpreter for .venv; without it scripts/setup.sh takes the first that is new enough.
PYTHON ?=
# Processes that run tests at once, and further arguments for pytest: make test PYTEST_ARGS="-k spec -x"
WORKERS ?= auto
PYTEST_ARGS ?=

PY := .venv/bin/python
PYTEST := $(PY) -m pytest
CODE := $(wildcard src tests benchmarks examples scripts)
# Tests that hold what a reader relies on: the public names, the weight of an import, the docs.
DRIFT := $(wildcard tests/unit/test_public.py tests/unit/test_docs.py)
CHECKS := check-format check-lint check-types check-floors check-size check-repo check-drift
EXPORT := .venv/bin/uv export --quiet --frozen --format requirements-txt \
	--no-emit-project --no-annotate --no-header

export PYTHON
# Trust what the machine trusts (a company's proxy, say), where it says what that is.
export UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),1,0)
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test check $(CHECKS) format docs bench soak lock clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-8s %s\n' "$$name" "$$text"; done

setup: ## Make .venv from the locks (the other targets do it by themselves)
	@sh scripts/setup.sh

demo: setup ## Watch an agent's calls go through Toolcrib
	@$(PY) examples/demo.py

test: setup ## Run every test but the soak
	@$(PYTEST) -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

check: setup ## Format, lint, types, floors, sizes, public names, docs
	@$(MAKE) --keep-going --jobs=$$(nproc) --output-sync=target $(CHECKS)
	@echo "check: all good"

check-format:
	@.venv/bin/ruff format --check $(CODE)

check-lint:
	@.venv/bin/ruff check $(CODE)

check-types:
	@.venv/bin/mypy $(CODE)

check-floors:
	@.venv/bin/lint-imports --no-logo

check-size:
	@$(PY) scripts/check_size.py $(CODE)

check-repo:
	@$(PY) scripts/check_repo.py

check-drift:
	@$(PYTEST) --quiet $(DRIFT)

format: setup ## Format the code and mend what the linter can
	@.venv/bin/ruff check --fix --exit-zero --quiet $(CODE)
	@.venv/bin/ruff format $(CODE)

docs: setup ## Write the parts of the docs that are made from the code
	@$(PY) scripts/make_docs.py

bench: setup ## Measure, and compare with the limits
	@$(PY) benchmarks/run.py

soak: setup ## Run the long tests (minutes to hours)
	@$(PYTEST) -m soak --timeout=0 $(PYTEST_ARGS)

lock: setup ## Bring the locks up to date with pyproject.toml and the newest releases
	@.venv/bin/uv lock --quiet --upgrade
	@$(EXPORT) --no-dev --output-file requirements.lock >/dev/null
	@$(EXPORT) --all-groups --output-file requirements-dev.lock >/dev/null
	@awk '/^[^ ]/ { on = /^uv==/ } on' requirements-dev.lock >requirements-uv.lock
	@.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header --constraint requirements.lock pyproject.toml \
		benchmarks/requirements-peers.in --output-file benchmarks/requirements-peers.lock
	@$(PY) scripts/check_repo.py
	@sh scripts/setup.sh

clean: ## Remove .venv, caches and builds
	@rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +
