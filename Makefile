# Two commands do everything on a fresh machine:
#   make demo   the main job: a searched, plotted experiment on an embedded cluster
#   make test   all checks and all tests
# Each sets up what it needs: a virtual environment in .venv, the front ends and configurable-http-proxy with packages
# from npm, and for the tests PostgreSQL, nginx and chromium from Debian (announced first).

PYTHON ?= $(shell sh tests/testbed/python.sh)
EXTRAS := all
# Groups of pyproject.toml that a target needs beside the extras.
GROUPS :=
# Extras whose packages requirements.lock has: all that people run, and nothing that only a checkout needs.
LOCKED := all aws deepspeed docker-spawner dp gcp keras kube kubernetes lightning parquet transformers
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# pip compiles on one processor, and all that packages bring of their own tests; not all of those are Python 3.
INSTALL = $(PIP) install --quiet --no-compile --constraint constraints.txt $(GROUPS:%=--group %) --editable ".[$(EXTRAS)]" && \
	{ $(BIN)/python -m compileall -qq -j 0 -x /tests/ $(VENV)/lib || :; }
FRONT := server_ext/detlab_server/labextension/package.json
LABEXTENSIONS := $(VENV)/share/jupyter/labextensions/@detlab
AZURITE := tests/testbed/objectstores/node_modules/.package-lock.json
NODE_MODULES := labextension/node_modules/.package-lock.json
DEMO_DIR ?= demo-output
# Two cores keep two workers busy; with three, whole clusters starve each other. A worker has a cluster and a browser.
TEST_WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 2 ? 2 : cores > 8 ? 8 : cores)))
SEEDS ?= 0:10000
SIMULATED_TESTS := tests/simulation
SLURM := tests/unit/agent/slurm tests/integration/agent/slurm tests/e2e/slurm tests/docs/test_docs_slurm.py tests/hostile/test_slurm_neighbours.py
QUICK_TESTS := tests/unit tests/integration/services tests/integration/store
KUBERNETES_TESTS := tests/kubernetes
FUZZ := tests/integration/web/test_web_fuzz.py
FUZZ_SEED := $(shell date +%s)
CRASH_POINTS := tests/integration/services/lifecycle/test_crash_points.py tests/integration/web/attempts/test_web_crash_points.py
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider --durations 25
# One worker per file, in the order of folders; tests that are marked `alone` come last, with nothing beside them.
WORKERS := -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder
# Benches of one script each, beside peers in environments of their own where `make bench-peers` has made them.
PLAIN_BENCHES := client ingest search chart noop rest imports scheduling steady preempt restart logs artifacts finding people media import_runs
PEERS ?= mlflow wandb optuna ray syne tables artifacts
# Compiled once: tests start hundreds of processes, and where PYTHONDONTWRITEBYTECODE is set each would compile them all.
SOURCES := harness hub_ext server_ext kernel_magics tests/testbed tests/simulation
ASKS_PYTHON := src/hub/upload/upload.test.ts
ALONE := $(shell grep -rl --include='*.py' 'mark\.alone' tests)
SHORT := $(PYTEST) -m "not alone and not soak and not kubernetes and not slurm"
# Each test of the services on one of the two databases, every other one on PostgreSQL; `make soak` has both.
QUICK := DETLAB_ONE_DATABASE=1 $(SHORT) $(QUICK_TESTS)
CLUSTERS := $(SHORT) $(patsubst %,--ignore=%,$(SIMULATED_TESTS) $(QUICK_TESTS))
# Simulations have a time of their own and wait for nobody, so they run all the while on what the others, who wait for
# processes and browsers, leave of the processors. Their output comes when the others are through.
SIMULATED_LOG := .pytest_cache/simulated.log
CHOSEN := .pytest_cache/affected
FAILED := $(CURDIR)/.pytest_cache/failed
export SKIP_JUPYTER_BUILDER = 1

.DEFAULT_GOAL := help
.PHONY: help sync demo dev test affected test-kubernetes test-slurm simulated soak bench bench-trainer bench-faces bench-spawn bench-start bench-backends bench-peers audit lock setup setup-test lint lint-front lint-python unit front reference docs docs-publish clean python prerequisites system-packages

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: setup  ## run the main job on real data and print where its results are
	$(BIN)/python examples/run_demo.py --out $(DEMO_DIR)

test:  ## everything that CI runs
	@$(MAKE) --no-print-directory -j2 --output-sync=line setup-test lint-front
	@$(BIN)/python -m compileall -q $(SOURCES)
	@failed=0; mkdir -p $(dir $(SIMULATED_LOG)); \
	setsid sh tests/testbed/aside.sh $(MAKE) --no-print-directory simulated > $(SIMULATED_LOG) 2>&1 & aside=$$!; \
	shown=; show() { [ "$$shown" ] || { shown=1; echo "==> simulations"; cat $(SIMULATED_LOG); }; }; \
	trap 'kill -- -$$aside 2>/dev/null; show' EXIT; trap 'exit 130' HUP INT TERM; \
	$(MAKE) --no-print-directory lint-python || exit 1; \
	$(QUICK) $(WORKERS) $(PYTEST_ARGS) || [ $$? -eq 5 ] || failed=1; \
	rm -f $(FAILED); \
	DETLAB_FAILED_TESTS=$(FAILED) $(CLUSTERS) $(WORKERS) $(PYTEST_ARGS) || [ $$? -eq 5 ] || \
		sh tests/testbed/again.sh $(FAILED) $(PYTEST) || failed=1; \
	wait $$aside || failed=1; show; \
	$(PYTEST) -m alone $(ALONE) $(PYTEST_ARGS) || [ $$? -eq 5 ] || failed=1; \
	exit $$failed

# One worker: the tests share one cluster, which takes half a minute to start.
test-kubernetes: setup-test  ## what runs on Kubernetes, on a real one: built from Debian's source at first (ten minutes, kept)
	@sh tests/testbed/kubernetes/build.sh
	$(PYTEST) -m kubernetes $(KUBERNETES_TESTS) $(PYTEST_ARGS)

test-slurm: setup-test  ## what runs on a real Slurm of two nodes on this machine: the runtime's contract, searches, faults, notebooks
	$(PYTEST) $(SLURM) $(PYTEST_ARGS)

affected: setup-test  ## the tests that a change can reach: make affected SINCE=HEAD~3 ONLY=quick; WHY=tests/… says why one of them
	@PYTHONPATH=tests $(BIN)/python -m affected --since "$(SINCE)" --why "$(WHY)" --only "$(ONLY)" --into $(CHOSEN)
	@failed=0; \
	if [ -e $(CHOSEN)/front ]; then $(MAKE) --no-print-directory lint-front && (cd labextension && npm test --silent -- $(ASKS_PYTHON)) || failed=1; fi; \
	if [ -e $(CHOSEN)/tests ]; then DETLAB_ONE_DATABASE=1 $(SHORT) $(WORKERS) $(PYTEST_ARGS) @$(CHOSEN)/tests || [ $$? -eq 5 ] || failed=1; fi; \
	if [ -e $(CHOSEN)/alone ]; then $(PYTEST) -m alone $(PYTEST_ARGS) @$(CHOSEN)/alone || [ $$? -eq 5 ] || failed=1; fi; \
	exit $$failed

simulated:  # the part of `make test` that runs beside its others
	@$(SHORT) $(SIMULATED_TESTS) $(WORKERS) $(PYTEST_ARGS) || [ $$? -eq 5 ]

soak: setup-test  ## services on both databases, the master killed at every commit and await, every promise broken by a planted fault, the API fuzzed, simulated clusters: make soak SEEDS=0:100000
	$(PYTEST) $(WORKERS) tests/integration/services
	DETLAB_ALL_CRASH_POINTS=1 $(PYTEST) $(CRASH_POINTS)
	DETLAB_ALL_FAULTS=1 $(PYTEST) tests/hostile/test_planted_faults.py
	@echo "==> fuzz with DETLAB_FUZZ_SEED=$(FUZZ_SEED)"
	DETLAB_FUZZ_EXAMPLES=60 DETLAB_FUZZ_SEED=$(FUZZ_SEED) $(PYTEST) $(FUZZ)
	$(PYTEST) $(WORKERS) -m "soak and not kubernetes" tests
	$(MAKE) --no-print-directory test-kubernetes
	$(MAKE) --no-print-directory test-slurm
	DETLAB_SIMULATION_CHUNKS=20 DETLAB_ALL_MUTANTS=1 $(PYTEST) $(WORKERS) tests/simulation
	PYTHONPATH=tests $(BIN)/python -m simulation --awaits --jobs $(TEST_WORKERS)
	PYTHONPATH=tests $(BIN)/python -m simulation --seeds $(SEEDS) --jobs $(TEST_WORKERS)

bench: bench-peers  ## all benchmarks, one after the other, on a machine that does nothing else: about two hours
	@failed=0; \
	for part in $(PLAIN_BENCHES) start trainer faces spawn backends; do echo "==> bench-$$part"; $(MAKE) --no-print-directory bench-$$part || failed=1; done; \
	exit $$failed

bench-trainer: $(VENV)-bench/.installed sync  ## the trainer beside other frameworks: make bench-trainer BENCH_ARGS=--quick
	$(VENV)-bench/bin/python bench/trainer/trainer.py $(BENCH_ARGS)

bench-faces: setup-test  ## what the front ends draw in a browser, beside their goals
	$(BIN)/python bench/faces.py --check

bench-spawn: setup-test  ## a notebook's start beside the Hub's own spawners: as a process and in a container
	@failed=0; \
	for runtime in process docker; do $(BIN)/python bench/spawn.py --runtime $$runtime --check || failed=1; done; \
	exit $$failed

bench-start: setup-test  ## from a submission to the first reported metric, cold and from the warm pool
	$(BIN)/python bench/start.py --check

bench-backends: setup-test  ## what a cluster costs that an agent speaks for: on the Kubernetes of test-kubernetes, as root
	@sh tests/testbed/kubernetes/build.sh
	$(BIN)/python bench/backends.py --check $(BENCH_ARGS)

.PHONY: $(PLAIN_BENCHES:%=bench-%) bench-search_quality bench-governance
$(PLAIN_BENCHES:%=bench-%) bench-search_quality bench-governance: setup-test  # bench-client, bench-ingest, …: each script's --help says what it measures
	$(BIN)/python bench/$(@:bench-%=%).py --check $(BENCH_ARGS)

bench-peers: $(PEERS:%=$(VENV)-bench-%/.installed)  ## what the benches measure beside us, each in its own environment

$(VENV)-bench-%/.installed: bench/peers/%.txt
	@echo "==> $* into $(VENV)-bench-$*"
	$(PYTHON) -m venv $(VENV)-bench-$*
	$(VENV)-bench-$*/bin/python -m pip --disable-pip-version-check install --quiet -r $<
	@touch $@

audit: $(VENV)-audit/.installed  ## known faults of the pinned Python packages; needs pypi.org's data, and says so without
	@$(VENV)-audit/bin/python tests/testbed/audit.py $(VENV)-audit/bin/pip-audit constraints.txt

$(VENV)-audit/.installed:
	@echo "==> pip-audit into $(VENV)-audit"
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip --disable-pip-version-check install --quiet "pip-audit>=2.10"
	@touch $@

lock: $(VENV)-lock/.installed  ## requirements.lock anew: what `detlab[all]` installs, pinned as in constraints.txt, with hashes
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --constraint constraints.txt --generate-hashes \
		--no-annotate --custom-compile-command "make lock" $(LOCKED:%=--extra %) --output-file requirements.lock pyproject.toml

$(VENV)-lock/.installed:
	@echo "==> uv into $(VENV)-lock"
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip --disable-pip-version-check install --quiet "uv>=0.9"
	@touch $@

unit: GROUPS := test lint
unit: $(VENV)/.installed-test sync  ## the quick tests, which need Python alone: neither node nor Debian's packages
	$(PYTEST) -q $(WORKERS) -m 'not slow and not alone and not kubernetes' tests/unit

dev: setup  ## a cluster of the working tree: parts restart and front ends are built anew when their files change
	@$(BIN)/python harness/make_sync.py --watch & made=$$!; \
	cd labextension && exec node build.mjs --watch & trap "kill $$made $$! 2>/dev/null" EXIT; trap 'exit 130' INT TERM; \
	$(BIN)/det up --foreground --reload $(UP)

lint: lint-front lint-python  ## ruff, mypy --strict, import-linter; types, rules and component tests of the front ends

# Needs no Python: with `make -j2` it runs while pip installs. What asks Python for its opinion comes with the others.
lint-front: $(NODE_MODULES)
	cd labextension && npm run --silent check && npm test --silent -- --exclude $(ASKS_PYTHON)

lint-python: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd labextension && npm test --silent -- $(ASKS_PYTHON)

setup: prerequisites sync $(VENV)/.installed $(FRONT)  ## the virtual environment, the front ends and the Hub's proxy

setup-test: GROUPS := test lint
setup-test: prerequisites sync $(VENV)/.installed-test $(VENV)-frameworks/.installed $(VENV)-deepspeed/.installed $(VENV)-mlflow/.installed $(VENV)-mlflow2/.installed $(FRONT) $(AZURITE) $(VENV)/.helm system-packages

# Installing makes it, too; this is for what has changed since then. It writes nothing that is current.
sync: | python
	@$(PYTHON) harness/make_sync.py --quiet

$(VENV)/.python: | python
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml constraints.txt
	@echo "==> Python packages into $(VENV) (about two minutes, 2 GB)"
	$(INSTALL)
	@echo $(EXTRAS) $(GROUPS) > $@

$(VENV)/.installed-test: $(VENV)/.installed
	@grep -q test $< || { echo "==> test and lint packages into $(VENV)"; $(INSTALL); }
	@touch $@

$(VENV)/.helm: tests/testbed/helm.py | $(VENV)/.installed-test
	@echo "==> Helm for the tests of the chart (a second, 35 MB)"
	$(BIN)/python tests/testbed/helm.py $(BIN)/helm
	@touch $@

# MLflow reads our exports in an environment of its own, which sees torch, numpy and pandas of ours, but not detlab.
$(VENV)-mlflow/.installed: tests/testbed/mlflow/requirements.txt | $(VENV)/.installed-test
	@echo "==> MLflow into $(VENV)-mlflow (about ten seconds)"
	$(PYTHON) -m venv $(VENV)-mlflow
	$(VENV)-mlflow/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r $<
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		"$$($(VENV)-mlflow/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-detlab.pth"
	@touch $@

# The client of the version before, which others still have: it logs into our master as the newer one does.
$(VENV)-mlflow2/.installed: tests/testbed/mlflow/requirements-2.txt | $(VENV)/.installed-test
	@echo "==> MLflow 2 into $(VENV)-mlflow2 (about ten seconds)"
	$(PYTHON) -m venv $(VENV)-mlflow2
	$(VENV)-mlflow2/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r $<
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		"$$($(VENV)-mlflow2/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-detlab.pth"
	@touch $@

# What integrations with other frameworks are tried with: torch, NumPy and scikit-learn are ours, and detlab is the working tree's.
$(VENV)-frameworks/.installed: tests/testbed/frameworks.txt | $(VENV)/.installed-test
	@echo "==> other frameworks into $(VENV)-frameworks (about twenty seconds, 270 MB)"
	$(PYTHON) -m venv $(VENV)-frameworks
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		"$$($(VENV)-frameworks/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-detlab.pth"
	$(VENV)-frameworks/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r $<
	@touch $@

# Where DeepSpeed is installed, other frameworks import it, too: it has an environment of its own.
$(VENV)-deepspeed/.installed: tests/testbed/deepspeed.txt | $(VENV)/.installed-test
	@echo "==> DeepSpeed into $(VENV)-deepspeed (about twenty seconds, 40 MB)"
	$(PYTHON) -m venv $(VENV)-deepspeed
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		"$$($(VENV)-deepspeed/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-detlab.pth"
	DS_BUILD_OPS=0 DS_ACCELERATOR=cpu $(VENV)-deepspeed/bin/python -m pip --disable-pip-version-check install --quiet \
		--no-deps --no-build-isolation -r $<
	@touch $@

$(VENV)-bench/.installed: pyproject.toml constraints.txt
	@echo "==> the trainer and other frameworks into $(VENV)-bench"
	[ -x $(VENV)-bench/bin/pip ] || $(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip --disable-pip-version-check install --quiet --upgrade "pip>=25.1"
	$(VENV)-bench/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
		--group bench --editable .
	@touch $@

reference: setup  ## make anew what repeats the code: reference pages, and the list in the README
	$(BIN)/python docs/generate.py

docs: $(VENV)-docs/.installed sync  ## the documentation as a site, in site/: search, light and dark, the API from docstrings; every link checked
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict --quiet
	@echo "site/index.html; to read while you write: $(VENV)-docs/bin/mkdocs serve"

# One more version on the branch gh-pages, and `latest` with it: make docs-publish VERSION=0.2.0
docs-publish: $(VENV)-docs/.installed sync
	PATH="$(CURDIR)/$(VENV)-docs/bin:$$PATH" mike deploy --push --update-aliases $(VERSION) latest
	PATH="$(CURDIR)/$(VENV)-docs/bin:$$PATH" mike set-default --push latest

$(VENV)-docs/.installed: pyproject.toml constraints.txt
	@echo "==> MkDocs into $(VENV)-docs (half a minute, 80 MB)"
	[ -x $(VENV)-docs/bin/pip ] || $(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip --disable-pip-version-check install --quiet --upgrade "pip>=25.1"
	$(VENV)-docs/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt --group docs
	@touch $@

front: $(FRONT)  ## build the JupyterLab extension, the hub page, the notebook widget and the Hub's proxy

$(NODE_MODULES): labextension/package-lock.json | prerequisites
	@echo "==> node packages of the front ends (about a minute, 500 MB)"
	cd labextension && npm ci --silent --no-audit --no-fund

# An editable install copies what is there when it is made; a link always shows what was built last.
$(FRONT): $(NODE_MODULES) $(wildcard labextension/*.json labextension/*.mjs) \
		$(shell find labextension/src labextension/style labextension/schema -type f 2>/dev/null) | $(VENV)/.installed
	@echo "==> the front ends and the proxy"
	cd labextension && npm run --silent build
	@mkdir -p $(LABEXTENSIONS) && rm -rf $(LABEXTENSIONS)/labextension
	@ln -s $(CURDIR)/server_ext/detlab_server/labextension $(LABEXTENSIONS)/labextension

$(AZURITE): tests/testbed/objectstores/package-lock.json | prerequisites
	@echo "==> an Azure storage for the tests (about ten seconds, 190 MB)"
	cd $(dir $<) && npm ci --silent --no-audit --no-fund

python:
	@sh tests/testbed/prerequisites.sh "$(PYTHON)"

prerequisites:
	@sh tests/testbed/prerequisites.sh "$(PYTHON)" node

system-packages:
	@sh tests/testbed/system_packages.sh

clean:  ## remove what the targets made
	rm -rf site $(VENV) $(VENV)-audit $(VENV)-deepspeed $(VENV)-docs $(VENV)-frameworks $(VENV)-lock $(VENV)-mlflow $(VENV)-mlflow2 $(VENV)-bench $(VENV)-bench-* labextension/node_modules $(dir $(AZURITE)) labextension/lib $(DEMO_DIR) \
		kernel_magics/detlab_magics/static/*.js hub_ext/detlab_hub/web/static/hub.* hub_ext/detlab_hub/embedded/proxy \
		server_ext/detlab_server/labextension $(shell sed -n "s|^/\(harness/.*\)|\1|p" .gitignore)
