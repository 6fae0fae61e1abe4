# Everything a newcomer needs: each target first prepares what it uses. Only Python 3.11+ is assumed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
UV_VERSION := 0.13.7
export UV_PYTHON_DOWNLOADS = never
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup verify test test-engines test-lowest adapters test-adapters named test-named test-patroni lint coverage sanitize bench dist docs lock clean engines

setup: $(VENV)/.ready

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recollect needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@command -v $(UV) >/dev/null || { $(PYTHON) -m venv .uv && .uv/bin/pip install --quiet uv==$(UV_VERSION); } || \
	    { echo "needs uv, or Python's venv module to fetch it (Debian: apt-get install python3-venv)"; exit 1; }
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --python $(BIN)/python requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

# Engines that are better taken from the system than from a wheel; the line says what is skipped without them.
engines:
	@sh tools/system-packages

verify: setup
	$(BIN)/recollect verify

# Real engines, real races: on a busy machine a planted race can be missed. What fails is tried up to twice more, and is
# listed as RERUN: a name that comes back there is a test to mend.
TEST := -m pytest -n 8 --dist loadgroup --reruns 2 -raR --durations 25

# The adapters' suite runs beside the main one and is told at the end. Before that, one process compiles what eight workers
# would all compile at the same time.
test: setup adapters engines
	@told=$$(mktemp); passed=0; \
	$(ADAPTERS_VENV)/bin/python $(TEST) -n 2 $(ADAPTERS_TESTS) > "$$told" 2>&1 & beside=$$!; \
	trap 'exit 130' INT TERM; trap 'kill $$beside 2> /dev/null; rm -f "$$told"' EXIT; \
	$(BIN)/python -m pytest --collect-only -qq > /dev/null; \
	$(BIN)/python $(TEST) || passed=$$?; \
	wait $$beside || passed=$$?; cat "$$told"; exit $$passed

# The contract of the stores on every version that is supported.
ENGINES ?= sqlite,redis@6.2,redis@7,valkey,redis-cluster,valkey-cluster,redis-sentinel,postgres@15,postgres@16,postgres@18,postgres-ha

test-engines: setup engines
	RECOLLECT_CONTRACT_ENGINES=$(ENGINES) $(BIN)/python -m pytest -n 3 --dist loadgroup tests/contract tests/stores/test_transfer.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.actionlint

# Of the library and of the judgement, by the tests that are theirs; processes that they start count too.
COVERED := tests/audit tests/chat tests/checkers tests/contract tests/doctor tests/message tests/recall tests/stores tests/telemetry tests/watch tests/test_batching.py tests/test_opening.py

coverage: setup engines
	@rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -q -n 3 --dist loadgroup $(COVERED)
	@$(BIN)/coverage combine -q
	$(BIN)/coverage report

# The preloaded libraries in C under the address, undefined-behaviour and thread sanitizers.
sanitize: setup
	$(BIN)/python -m tools.sanitize

# The lowest versions that pyproject.toml allows, with what uses them. Bounds that nobody tests are guesses.
LOWEST_VENV := .venv-lowest
LOWEST_TESTS ?= $(COVERED) tests/report tests/verify/test_commands.py tests/wire

$(LOWEST_VENV)/.ready: requirements/lowest.txt pyproject.toml $(VENV)/.ready
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(LOWEST_VENV)
	$(UV) pip sync --quiet --python $(LOWEST_VENV)/bin/python requirements/lowest.txt
	$(UV) pip install --quiet --python $(LOWEST_VENV)/bin/python --no-deps --editable .
	@touch $@

# What today's click has to say about an older typer is no failure of ours.
test-lowest: $(LOWEST_VENV)/.ready engines
	$(LOWEST_VENV)/bin/python -m pytest -n 3 --dist loadgroup -W "ignore:'click:DeprecationWarning" $(LOWEST_TESTS)

# The peers that our stores are measured beside live in an environment of their own.
BENCH_VENV := .venv-bench

$(BENCH_VENV)/.ready: requirements/bench.txt pyproject.toml $(VENV)/.ready
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(BENCH_VENV)
	$(UV) pip sync --quiet --python $(BENCH_VENV)/bin/python requirements/bench.txt
	$(UV) pip install --quiet --python $(BENCH_VENV)/bin/python --no-deps --editable .
	@touch $@

bench: $(BENCH_VENV)/.ready engines
	$(BENCH_VENV)/bin/python bench/stores.py $(BENCH_OPTIONS)

# The agent frameworks that recollect is the memory of, likewise.
ADAPTERS_VENV := .venv-adapters
# Also what the kit says through their own message classes.
ADAPTERS_TESTS := tests/adapters tests/verify/test_contents.py

adapters: $(ADAPTERS_VENV)/.ready

$(ADAPTERS_VENV)/.ready: requirements/adapters.txt pyproject.toml $(VENV)/.ready
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(ADAPTERS_VENV)
	$(UV) pip sync --quiet --python $(ADAPTERS_VENV)/bin/python requirements/adapters.txt
	$(UV) pip install --quiet --python $(ADAPTERS_VENV)/bin/python --no-deps --editable .
	@touch $@

test-adapters: adapters engines
	$(ADAPTERS_VENV)/bin/python -m pytest -n 3 --dist loadgroup $(ADAPTERS_TESTS)

# The released stores that have a name. Apart from the adapters: some of them hold back the drivers that ours are tested with.
# 1.5 GB, so not a part of `make test`.
NAMED_VENV := .venv-named
NAMED_TESTS := tests/verify/test_named_runs.py tests/verify/test_named_audits.py

named: $(NAMED_VENV)/.ready

$(NAMED_VENV)/.ready: requirements/named.txt pyproject.toml $(VENV)/.ready
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(NAMED_VENV)
	$(UV) pip sync --quiet --python $(NAMED_VENV)/bin/python requirements/named.txt
	$(UV) pip install --quiet --python $(NAMED_VENV)/bin/python --no-deps --editable .
	@touch $@

test-named: named engines
	$(NAMED_VENV)/bin/python -m pytest -n 3 --dist loadgroup $(NAMED_TESTS)

# PostgreSQL under Patroni: minutes for each policy, so every night and not in `make test`.
PATRONI_VENV := .venv-patroni

$(PATRONI_VENV)/.ready: requirements/patroni.txt pyproject.toml $(VENV)/.ready
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(PATRONI_VENV)
	$(UV) pip sync --quiet --python $(PATRONI_VENV)/bin/python requirements/patroni.txt
	$(UV) pip install --quiet --python $(PATRONI_VENV)/bin/python --no-deps --editable .
	@touch $@

test-patroni: $(PATRONI_VENV)/.ready engines
	RECOLLECT_PATRONI=1 $(PATRONI_VENV)/bin/python -m pytest tests/engines/test_engine_patroni.py
	for policy in asynchronous synchronous quorum; do \
	    $(PATRONI_VENV)/bin/recollect verify postgres --engine patroni --policy $$policy --budget 60m $(PATRONI_FAULTS) || exit; done

PATRONI_FAULTS := $(foreach fault,none failover kill-restart node-kill pause isolate-primary promoted-behind restart restart-all,--fault $(fault))

# Wheels for every Linux that we run on, with the compiled libraries inside, and the source; all checked.
DIST_VENV := .venv-dist

$(DIST_VENV)/.ready: requirements/dist.txt $(VENV)/.ready
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(DIST_VENV)
	$(UV) pip sync --quiet --python $(DIST_VENV)/bin/python requirements/dist.txt
	@touch $@

dist: $(DIST_VENV)/.ready
	$(DIST_VENV)/bin/python -m tools.dist

# The documentation as a site that works without a network: build/site/index.html.
DOCS_VENV := .venv-docs

$(DOCS_VENV)/.ready: requirements/docs.txt $(VENV)/.ready
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(DOCS_VENV)
	$(UV) pip sync --quiet --python $(DOCS_VENV)/bin/python requirements/docs.txt
	@touch $@

docs: $(DOCS_VENV)/.ready
	$(DOCS_VENV)/bin/python -m tools.docs

# Pins every version with its hash; no address is recorded.
lock:
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra all --group dev pyproject.toml -o requirements/dev.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra verify pyproject.toml requirements/bench.in -o requirements/bench.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra verify --extra agent-framework --extra openai-agents --extra langchain --extra langgraph --extra pydantic-ai --extra adk --group test pyproject.toml requirements/adapters.in -o requirements/adapters.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra verify --group test pyproject.toml requirements/named.in -o requirements/named.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra patroni --group test pyproject.toml -o requirements/patroni.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --resolution lowest-direct --generate-hashes --no-emit-index-url --extra all --group test pyproject.toml -o requirements/lowest.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url requirements/dist.in -o requirements/dist.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url requirements/docs.in -o requirements/docs.txt

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(ADAPTERS_VENV) $(NAMED_VENV) $(PATRONI_VENV) $(LOWEST_VENV) $(DIST_VENV) $(DOCS_VENV) .uv build dist .mypy_cache .pytest_cache .ruff_cache
