# Everything from nothing: `make demo`, `make test`. Each target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SETUP_INPUTS := pyproject.toml constraints.txt

.PHONY: help deps demo test e2e lint protos swarm clean bench-checksum bench-gemm bench-faults bench-world bench-agent bench-guard-power bench-power bench-store bench-fleet bench-failover bench-fleet-tls bench-page bench-guard

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

deps:  ## the Debian packages that are needed: as root installs them, otherwise names what is missing
	@deploy/deps

$(STAMP): $(SETUP_INPUTS) | deps
	@echo "setting up $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## the story: three hosts are burnt in, one GPU is corrupt, its host is quarantined
	@$(BIN)/fleetd demo

test: lint  ## all checks and tests, without a GPU and without root (at most 15 minutes on 2 cores)
	@$(BIN)/python -m pytest -n 2 -m "not e2e and not gpu"

e2e: $(STAMP)  ## real processes on loopback: the story with everything killed once, also on a real Slurm (as root)
	@deploy/deps e2e
	@$(BIN)/python -m pytest -n 0 -m e2e tests/e2e tests/browser

lint: $(STAMP)  ## ruff, mypy, import-linter
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check . && $(BIN)/mypy --no-error-summary && $(BIN)/lint-imports --no-cache >/dev/null

swarm: $(STAMP)  ## 500 simulated fleets drawn from seeds, each checked (about 20 minutes on one core)
	@$(BIN)/python -m fleetd.world --worlds 500

protos: $(STAMP)  ## regenerate fleetd/pb from protos/
	@$(BIN)/python protos/generate.py

bench-checksum: $(STAMP)  ## checksum against a device copy, in one run (on a GPU)
	@$(BIN)/python tests/bench/bench_checksum.py

bench-gemm: $(STAMP)  ## GEMM with every output checksummed against plain GEMM, paired; by dtype; power held (on a GPU)
	@$(BIN)/python tests/bench/bench_gemm.py
	@$(BIN)/python tests/bench/bench_gemm_dtypes.py

bench-faults: $(STAMP)  ## fault scanner: MB/s and memory on a generated 100 MB log
	@$(BIN)/python tests/bench/bench_faults.py 100

bench-world: $(STAMP)  ## simulated fleet: seconds for 128 hosts and one hour
	@$(BIN)/python tests/bench/bench_world.py

bench-power: $(STAMP)  ## power control: the slow forms of its acceptance tests (about an hour on one core)
	@$(BIN)/python tests/bench/bench_envelope.py 10000
	@$(BIN)/python -m tests.bench.bench_power

bench-guard-power: $(STAMP)  ## power guard: 1,000 kills and stops of each kind, drift, 10 minutes with every core busy (1 hour)
	@$(BIN)/python -m tests.bench.bench_guard_power 1000 600

bench-agent: $(STAMP)  ## agent with 8 fake GPUs of either vendor: CPU, memory, latency of /metrics, growth (7 minutes)
	@$(BIN)/python tests/bench/bench_agent.py 60

bench-store: $(STAMP)  ## a ledger of 10,000 hosts and 1,000,000 entries: start, host page (a few minutes, 4 GiB of disk)
	@$(BIN)/python tests/bench/bench_store.py

bench-fleet: $(STAMP)  ## a controller under 500 and 2,000 agents: latency of a finding, CPU, memory (5 minutes, 2 cores)
	@$(BIN)/python tests/bench/fleet_load.py

bench-failover: $(STAMP)  ## three controllers on PostgreSQL, the judge killed or cut off every 6 s: latency, losses (2 minutes)
	@$(BIN)/python -m tests.bench.bench_failover

bench-guard: $(STAMP)  ## training guard: 308 planted faults on the CPU; cost and false alarms on a GPU, where there is one
	@$(BIN)/python tests/bench/bench_guard_matrix.py
	@$(BIN)/python tests/bench/bench_guard.py || test $$? = 3

bench-fleet-tls: $(STAMP)  ## 5,000 agents over mutual TLS on 2 cores: latency, memory; all back at once (15 minutes)
	@$(BIN)/python tests/bench/fleet_load.py 5000 --tls --storm 3

bench-page: $(STAMP)  ## the page with 10,000 hosts in a real Chromium: first paint, whole map, a change
	@$(BIN)/python -m tests.bench.bench_page

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
