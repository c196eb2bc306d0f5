# What people run, and what CI runs. `make setup` once; everything else does it by itself when needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# What tests use from Debian: a Redis server, Prometheus' promtool, a browser. package:command
TOOLS := redis-server:redis-server prometheus:promtool chromium:chromium
MISSING := $(strip $(foreach tool,$(TOOLS),$(if $(shell command -v $(lastword $(subst :, ,$(tool)))),,$(firstword $(subst :, ,$(tool))))))
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help setup tools demo test check format bench lock clean

help:
	@echo "make setup   install exact versions into $(VENV)"
	@echo "make demo    a made-up market, from its click log to a service that answers (XREG_PORT; CHECK=1 asks and stops)"
	@echo "make test    all tests (XREG_DATA=dir adds those on the large real data sets)"
	@echo "make check   ruff and mypy --strict"
	@echo "make bench   the paper's tables, training, inference, markets, tables, the service (needs XREG_DATA, make demo)"
	@echo "make lock    resolve requirements.lock anew"

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(READY)

setup: $(READY)

# Real tools in place of stand-ins: what is missing is installed, on Debian.
tools:
ifneq ($(MISSING),)
	$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $(MISSING)
endif

demo: $(READY)
	@$(BIN)/python deploy/demo.py $(if $(CHECK),--check)

test: $(READY) tools
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
	$(BIN)/python bench/http.py

lock:
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet pip-tools
	.lock-venv/bin/pip-compile --quiet --upgrade --generate-hashes --no-header --strip-extras --allow-unsafe --extra dev --extra ray \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host -o requirements.lock pyproject.toml
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
