# Commands for people: `make demo`, `make test`, `make docs`. Each sets up .venv by itself when needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= auto

.PHONY: demo test docs pages lint types clean

$(VENV)/.demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/.docs: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/undertow demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS)

# The site, into build/docs; it asks for nothing outside. Warnings (a link into nowhere) are errors.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs build/docs
	@echo "open build/docs/index.html"

# The pages that are written from tables of the code; a test says when that is due.
pages: $(VENV)/.dev
	$(BIN)/python -m tests.docs.write

lint: $(VENV)/.dev
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
