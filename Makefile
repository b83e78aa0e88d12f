# Every target creates .venv and installs what it needs on first use; a second call is quick.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo test check bench docs-data clean help

help:
	@echo "make demo     three plans side by side, and a real round with dropouts and liars"
	@echo "make test     every test"
	@echo "make check    lint, types, layer contract"
	@echo "make bench    ratios measured in one run, into bench/latest.json"
	@echo "make docs-data  regenerate the figures and summaries that the documents quote"
	@echo "make clean    remove what the other targets made"

demo: $(VENV)/core
	@echo "Three plans for 96 users on four kinds of link: SecAgg, the paper's, ours."
	@$(BIN)/heterosag plan --classes 24,24,24,24 --levels 2,6,8,12 --subgroup-size 8 --compare secagg,paper-composite,perfect
	@echo "One round of ours with real keys, masks and bytes; eight users vanish, two lie."
	@$(BIN)/heterosag round --drop share=2,mask=5,unmask=1 --liars 2 --rule median

test: $(VENV)/everything
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

check: $(VENV)/everything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

bench: $(VENV)/everything
	$(BIN)/python -m bench

docs-data: $(VENV)/everything
	$(BIN)/python docs/make_data.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist
	rm -f bench/latest.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	@touch $@

# torch first and alone, so that nothing asks for a newer one.
$(VENV)/everything: pyproject.toml constraints.txt | $(VENV)/core
	$(PIP) torch==2.13.0
	$(PIP) --editable ".[all,dev]"
	@touch $@
