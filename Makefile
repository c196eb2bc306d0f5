# What people run, and what CI runs. `make setup` once; everything else does it by itself when needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test check format bench lock clean

help:
	@echo "make setup   install exact versions into $(VENV)"
	@echo "make demo    made-up data, a trained model, its figures and two answers"
	@echo "make test    all tests (XREG_DATA=dir adds those on the large real data sets)"
	@echo "make check   ruff and mypy --strict"
	@echo "make bench   the paper's tables, training and inference (needs XREG_DATA)"
	@echo "make lock    resolve requirements.lock anew"

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(READY)

setup: $(READY)

demo: $(READY)
	rm -rf demo
	$(BIN)/xreg make-data demo/shop
	$(BIN)/xreg train demo/shop --out demo/shop.model
	$(BIN)/xreg evaluate demo/shop.model demo/shop
	$(BIN)/xreg predict demo/shop.model demo/shop --show 2

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python bench/paper.py
	$(BIN)/python bench/training.py
	$(BIN)/python bench/inference.py
	$(BIN)/python bench/labelwise.py

lock:
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet pip-tools
	.lock-venv/bin/pip-compile --quiet --upgrade --generate-hashes --no-header --strip-extras --allow-unsafe --extra dev \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host -o requirements.lock pyproject.toml
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
