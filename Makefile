# What people run, and what CI runs. `make setup` once; everything else does it by itself when needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

REDIS := $(shell command -v redis-server)
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help setup redis demo test check format bench lock clean

help:
	@echo "make setup   install exact versions into $(VENV)"
	@echo "make demo    a made-up market, from its click log to a published release and its answers"
	@echo "make test    all tests (XREG_DATA=dir adds those on the large real data sets)"
	@echo "make check   ruff and mypy --strict"
	@echo "make bench   the paper's tables, training, inference, markets, tables (needs XREG_DATA)"
	@echo "make lock    resolve requirements.lock anew"

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(READY)

setup: $(READY)

# The tests of the shared table talk to a real server.
redis:
ifeq ($(REDIS),)
	$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq redis-server
endif

demo: $(READY)
	rm -rf demo
	$(BIN)/xreg synth demo/market
	$(BIN)/xreg ingest --events demo/market/events.parquet --ads demo/market/ads.csv --out demo/clicks
	$(BIN)/xreg refresh --data demo/clicks --releases demo/releases
	$(BIN)/xreg ask "throne" --releases demo/releases
	$(BIN)/xreg ask "best waterproof hiking boots" --releases demo/releases
	@echo "report: $$(echo demo/releases/$$(cat demo/releases/CURRENT)/report.html)"

test: $(READY) redis
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
	$(BIN)/python bench/market.py
	$(BIN)/python bench/tables.py

lock:
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet pip-tools
	.lock-venv/bin/pip-compile --quiet --upgrade --generate-hashes --no-header --strip-extras --allow-unsafe --extra dev \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host -o requirements.lock pyproject.toml
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
