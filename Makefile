# Two commands do everything on a fresh machine:
#   make demo   the main job: a searched, plotted experiment on an embedded cluster
#   make test   all checks and all tests
# Each sets up what it needs: a virtual environment in .venv, configurable-http-proxy and the notebook widget
# from npm, and for the tests PostgreSQL and chromium from Debian (announced first).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
WIDGET := kernel_magics/detlab_magics/static/widget.js
PROXY := $(VENV)/node/node_modules/.bin/configurable-http-proxy
PROXY_VERSION := 5.3.0
DEMO_DIR ?= demo-output
export SKIP_JUPYTER_BUILDER = 1

.DEFAULT_GOAL := help
.PHONY: help demo test bench setup setup-test lint unit widget docs clean system-packages

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: setup  ## run the main job on real data and print where its results are
	$(BIN)/python examples/run_demo.py --out $(DEMO_DIR)

test: setup-test lint  ## everything that CI runs
	$(BIN)/python -m pytest -p no:cacheprovider $(PYTEST_ARGS)

bench: $(VENV)-bench/.installed  ## the trainer's speed beside other frameworks, in an environment of its own
	$(VENV)-bench/bin/python bench/trainer.py $(BENCH_ARGS)

unit: setup-test  ## the quick tests only
	$(BIN)/python -m pytest -q tests/unit

lint: setup-test  ## ruff, mypy --strict, import-linter, the widget's types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd labextension && npm run --silent check

setup: $(VENV)/.installed $(PROXY) $(WIDGET)  ## the virtual environment, the proxy and the widget

setup-test: $(VENV)/.installed-test $(PROXY) $(WIDGET) system-packages

$(VENV)/.python:
	@sh tests/testbed/prerequisites.sh "$(PYTHON)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade "pip>=24"
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml constraints.txt
	@echo "==> Python packages into $(VENV) (about two minutes, 2 GB)"
	$(PIP) install --quiet --constraint constraints.txt --editable ".[all]"
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "==> test and lint packages into $(VENV)"
	$(PIP) install --quiet --constraint constraints.txt --editable ".[all,test,lint]"
	@touch $@

$(VENV)-bench/.installed: pyproject.toml constraints.txt
	@echo "==> the trainer and other frameworks into $(VENV)-bench"
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
		--editable ".[bench]"
	@touch $@

$(PROXY): | $(VENV)/.python
	@echo "==> configurable-http-proxy $(PROXY_VERSION) from npm"
	npm install --silent --no-audit --no-fund --prefix $(VENV)/node configurable-http-proxy@$(PROXY_VERSION)

docs: setup  ## make the generated reference pages anew
	$(BIN)/python docs/generate.py

widget: $(WIDGET)  ## build the notebook widget

$(WIDGET): labextension/package.json labextension/package-lock.json $(shell find labextension/src -type f 2>/dev/null)
	@echo "==> the notebook widget"
	cd labextension && npm ci --silent --no-audit --no-fund && npm run --silent build

system-packages:
	@sh tests/testbed/system_packages.sh

clean:  ## remove what the targets made
	rm -rf $(VENV) $(VENV)-bench labextension/node_modules kernel_magics/detlab_magics/static/*.js $(DEMO_DIR)
