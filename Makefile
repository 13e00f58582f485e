# Everything runs in .venv; a stamp file says that it is complete.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.complete

.PHONY: setup demo test check lint types clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/sooner caption --sample --compare
	$(BIN)/sooner parse --sample --compare --fresh -o build/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info
