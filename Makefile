# `make demo` and `make test` each set themselves up; a second call takes no set-up time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_VERSION := 26.3
DEMO_HOME ?= demo
NIGHTMILL_HOME ?= nightmill-home
INSTALLED := $(VENV)/.installed
# `cpu` or `gpu`: which ONNX Runtime wheel
RUNTIME ?= cpu
FUZZ_SECONDS ?= 600
SOAK_RUNS ?= 100
SCREENSHOTS ?= $(CURDIR)/build/screenshots
# Folder by folder: xdist by itself begins the files of few tests last, and those are the long ones.
BY_TWO := -n 2 --dist loadfile --no-loadscope-reorder

export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true
export HF_HUB_OFFLINE ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo up check test fuzz soak format lock bench bench-scoring bench-gpu bench-text browser debian clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

setup: $(INSTALLED) ## Make .venv with everything pinned and the command nightmill

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Nightmill needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet pip==$(PIP_VERSION)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$(RUNTIME),airflow,browser,demo,dev,production]'
	touch $(INSTALLED)

demo: setup ## Sample data, retrain and a week of nightly scoring, through Airflow
	$(BIN)/python infra/demo.py --home $(DEMO_HOME)

up: setup ## Start Airflow and MLflow here and print their addresses; Ctrl-C stops them
	$(BIN)/python infra/up.py --home $(NIGHTMILL_HOME)

check: setup ## The fast lane: format, lint, types, import directions, quick tests
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo 2>&1 | tail -n 12
	$(BIN)/pytest -q -m 'not slow' $(BY_TWO)

test: setup ## All tests
	$(BIN)/pytest -q $(BY_TWO) -m 'not alone'
	$(BIN)/pytest -q -m alone

fuzz: setup ## Damaged files through the readers, FUZZ_SECONDS long (600)
	FUZZ_SECONDS=$(FUZZ_SECONDS) HYPOTHESIS_PROFILE=new $(BIN)/pytest -q -s tests/fuzz
	HYPOTHESIS_PROFILE=new $(BIN)/pytest -q -m 'not slow' $$(grep -rl 'from hypothesis' tests --include='test_*.py')

soak: setup ## kill -9 at SOAK_RUNS random moments (100); each time a rerun and a comparison
	SOAK_RUNS=$(SOAK_RUNS) $(BIN)/pytest -q tests/faults/test_kills.py

bench: setup ## The benchmark of this machine, written to docs/BENCHMARKS.md
	$(BIN)/python tests/benchmarks/banking77.py

bench-training: setup ## What the default recipe reaches on public sets (hours on two cores)
	$(BIN)/python tests/benchmarks/training_quality.py
	$(BIN)/python tests/benchmarks/pretraining_quality.py

bench-scoring: setup ## Speed of scoring beside other ways, of variants, fixed cost, growth with the rows
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$(RUNTIME),bench]'
	$(BIN)/python tests/benchmarks/scoring_speed.py
	$(BIN)/python tests/benchmarks/variants.py
	$(BIN)/python tests/benchmarks/fixed_cost.py
	$(BIN)/python tests/benchmarks/scoring_scale.py

bench-gpu: setup ## What a GPU does with the demo's encoder, where there is one
	$(BIN)/python tests/gpu/measure.py --out gpu-figures

bench-text: setup ## Speed and memory of the text steps, and all public sets through them
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$(RUNTIME),bench]'
	$(BIN)/python tests/benchmarks/text_speed.py
	$(BIN)/python tests/benchmarks/text_memory.py
	$(BIN)/python tests/benchmarks/text_corpora.py

format: setup ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --quiet .

lock: setup ## Write constraints.txt from what is installed
	{ echo '# Exact versions of everything that `make setup` installs; refresh with `make lock`.'; \
	  $(BIN)/pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.txt

browser: setup ## A person retrains and approves in a browser; pictures of it into SCREENSHOTS
	NIGHTMILL_SCREENSHOTS=$(SCREENSHOTS) $(BIN)/pytest -q tests/browser

debian: ## Install the Debian packages that some tests start (as root): PostgreSQL, Chromium
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $$(grep -v '^#' infra/debian-packages.txt)

clean: ## Remove the environment and the demo
	rm -rf $(VENV) demo
