# Every target creates .venv and installs what it needs on first use; a second call is quick.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Tests, deployments and benchmarks start many processes; each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo installed test test-all test-other-machine check bench bench-full bench-second fuzz soak mutants installs docs docs-pages docs-data reproduction clean help

help:
	@echo "make demo     four training runs with dropouts and malicious users, and their report (a minute)"
	@echo "make test     the tests"
	@echo "make test-all  and those that take longer"
	@echo "make test-other-machine  those that touch floats, as on another processor"
	@echo "make check    lint, types, spelling, layer contract"
	@echo "make bench    ratios measured in one run, compared with bench/baseline.json"
	@echo "make bench-full  all sizes (half an hour), into the summary that docs/benchmarks.md is made from"
	@echo "make bench-second  the same once more, into the second column of the summary"
	@echo "make fuzz     every decoder under coverage-guided fuzzing, half an hour (SECONDS_OF_FUZZING=...)"
	@echo "make soak     the protocol through schedules of faults, rounds alone and in a row (SCHEDULES=... of each)"
	@echo "make mutants  mutation testing of crypto, wire, protocol and privacy (half an hour; parts with tools/mutants --only, --new, --again)"
	@echo "make installs  the wheel in fresh environments, with every extra alone (a quarter of an hour)"
	@echo "make docs     the documentation as a site, into build/site"
	@echo "make docs-pages  fill in what pages say of the tree and quote from committed summaries (seconds)"
	@echo "make docs-data  regenerate the figures and summaries that the documents quote"
	@echo "make reproduction  the paper's items at quick scale (set HETEROSAG_DATA for MNIST and CIFAR-10)"
	@echo "make clean    remove what the other targets made"

DEMO := $(BIN)/heterosag train examples/demo.toml
SIXTEEN_BITS := --levels 65536,65536,65536,65536
demo: $(VENV)/training
	@rm -rf runs/demo
	@echo "72 users on links from 0.1 to 3 Mb/s train a model of 50,826 parameters. A tenth drops out in every round,"
	@echo "two are malicious. Four ways to do it:"
	@echo
	@echo "1. HeteroSAg with the median, real cryptography; levels from links, masked vectors within 2.5 s:"
	@$(DEMO) --levels auto --deadline 2.5 --brief --out runs/demo/heterosag
	@echo "2. The same with the slowest link's level for all (from here on the plain engine: the same sums, no keys):"
	@$(DEMO) --levels 2,2,2,2 --no-secure --brief --out runs/demo/one-level
	@echo "3. The same with 16 bits for all, which is next to no quantization:"
	@$(DEMO) $(SIXTEEN_BITS) --no-secure --brief --out runs/demo/16-bits
	@echo "4. Federated averaging over plain secure aggregation, 16 bits, under the same attack:"
	@$(DEMO) $(SIXTEEN_BITS) --design secagg --rule unchecked_mean --no-secure --brief --out runs/demo/fedavg
	@echo "Side by side:"
	@$(BIN)/heterosag report runs/demo/heterosag runs/demo/one-level runs/demo/16-bits runs/demo/fedavg \
	  --out runs/demo/report.html
	@echo
	@echo "What to read from the rows:"
	@echo "- heterosag and 16-bits: about the same accuracy; the sentence below the table says how much longer 16 bits take."
	@echo "- one-level: on data as easy as these one level for all loses no accuracy either, but the error of the aggregate"
	@echo "  is larger, which counts for harder models. Fast links carry more levels in the same time."
	@echo "- faulty blocks left out: sums that honest users cannot have made, because of the two malicious users among them;"
	@echo "  the median goes on without those. Federated averaging has no such check, and one block of everybody."
	@echo "- fedavg: its mean follows the two malicious users. That is what the median is for."
	@echo "- users isolated by comparing rounds: whose updates the server could work out by subtracting sums of different"
	@echo "  rounds, if updates never changed. They do change; --hide-sets-below 3 refuses such rounds, many where users drop out."

# Coverage of crypto and protocol is measured, and must be whole, by the tests that are about them; tracing the
# others too would take another minute.
COVERING := tests/attacks tests/crypto tests/protocol tests/property tests/simulation tests/storage tests/test_ledger.py
WORKERS := 2
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

test: installed
	$(PYTEST) -m "not slow and not long" --cov --cov-report= $(COVERING)
	$(PYTEST) -m "not slow and not long" $(COVERING:%=--ignore=%)

# All tests, those that take minutes too, and random examples in double number. Deployments of Flower and installations
# wait more than they work, so there is one worker more than cores.
test-all: WORKERS := 3
test-all: installed
	HYPOTHESIS_PROFILE=thorough $(PYTEST) --cov --cov-report= $(COVERING)
	HYPOTHESIS_PROFILE=thorough $(PYTEST) $(COVERING:%=--ignore=%)

# The tests that touch floats once more, as on a processor whose last digits differ.
test-other-machine: installed
	$(BIN)/python tools/other_machine.py -m pytest --numprocesses 2 --dist worksteal -m "not slow" \
	  $(NO_FLOATS:%=--ignore=%)

# What compares no result of float arithmetic: bytes, states, refusals, and integers in rings.
FLOATS_OF_ROUNDS := $(patsubst %,tests/protocol/test_%.py,blocks budget encoding metrics rounding update vectors) \
  $(patsubst %,tests/flower/test_%.py,grid plans privacy ranges reports training)
NO_FLOATS := tests/attacks tests/crypto tests/property tests/storage tests/studio tests/e2e/test_help.py \
  tests/plan/test_design.py tests/plan/test_robustness.py tests/report/test_page.py tests/test_ledger.py \
  $(patsubst %,tests/project/test_%.py,api mirror packaging supply_chain) \
  $(filter-out $(FLOATS_OF_ROUNDS),$(wildcard tests/protocol/test_*.py tests/flower/test_*.py))

check: $(VENV)/everything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell src reproduction bench examples tests tools README.md ARCHITECTURE.md SECURITY.md CONTRIBUTING.md \
	  $(filter-out docs/mutants.md docs/reproduction%,$(wildcard docs/*.md)) docs/concepts docs/how-to docs/project docs/reference
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

bench: $(VENV)/everything
	$(BIN)/python -m bench

bench-full: $(VENV)/everything
	$(BIN)/python -m bench --full --baseline --summary docs/summaries/benchmarks.json

bench-second: $(VENV)/everything
	$(BIN)/python -m bench --full --second --summary docs/summaries/benchmarks.json

SECONDS_OF_FUZZING ?= 1800
fuzz: $(VENV)/everything
	$(BIN)/python tools/fuzz --seconds $(SECONDS_OF_FUZZING) --summary docs/summaries/fuzz.json

SCHEDULES ?= 20000
soak: $(VENV)/everything
	$(BIN)/python tools/fault_simulation --schedules $(SCHEDULES) --workers 2 --summary docs/summaries/soak.json

mutants: $(VENV)/everything
	$(PIP) mutmut==3.8.0
	$(BIN)/python tools/mutants --patience 4 --summary docs/summaries/mutants.json

installs: $(VENV)/everything
	$(BIN)/python tools/clean_installs.py --summary docs/summaries/installs.json

# Warnings are errors: a broken link or anchor, a name in a signature that no page explains.
docs: $(VENV)/everything
	$(BIN)/python -m sphinx --builder html --nitpicky --fail-on-warning --keep-going --fresh-env --quiet \
	  --doctree-dir build/doctrees docs build/site
	@echo "open build/site/index.html"

docs-pages: $(VENV)/everything
	$(BIN)/python tools/documents/make_data.py --pages

docs-data: $(VENV)/everything
	$(BIN)/python tools/documents/make_data.py

reproduction: $(VENV)/everything
	$(BIN)/python -m reproduction all

# Chromium for the tests that open a page; where it cannot be had they are skipped and say so.
$(VENV)/browser: | $(VENV)/bin/python
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update && apt-get -qq install -y chromium; } \
	  || echo "no Chromium here: tests that open a page will be skipped"
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist
	rm -f bench/latest.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What tests need, the browser beside the packages.
installed:
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/everything $(VENV)/browser

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone, so that nothing asks for a newer one. On Linux the usual index has it with several gigabytes of
# CUDA: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu takes the CPU build.
TORCH := torch==2.13.0 $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
$(VENV)/torch: constraints.txt | $(VENV)/bin/python
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/training: pyproject.toml constraints.txt | $(VENV)/torch
	$(PIP) --editable ".[training,report]"
	@touch $@

LOCK_FITS := $(shell $(PYTHON) -c 'import platform as p; print(*p.python_version_tuple()[:2], p.system(), p.machine())')
ifeq ($(LOCK_FITS),3 11 Linux x86_64)
# The lock before torch: pip checks no hash of what is installed already, and torch would bring some of it. The lock is
# whole, so nothing is resolved; bytecode is compiled afterwards, on every core.
$(VENV)/locked: requirements-lock.txt | $(VENV)/bin/python
	$(BIN)/python -m pip --disable-pip-version-check --quiet install --require-hashes --only-binary :all: --no-deps \
	  --no-compile --requirement requirements-lock.txt
	@touch $@

$(VENV)/everything: pyproject.toml constraints.txt $(VENV)/locked
	$(PIP) --no-compile $(TORCH)
	$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # some packages hold files for other versions of Python
	@touch $(VENV)/torch $@
else
$(VENV)/everything: pyproject.toml constraints.txt | $(VENV)/torch
	$(PIP) --editable ".[all,dev]"
	@touch $@
endif
