# Set-up and everyday commands. `make audit` and `make test` do all the set-up on a fresh machine.
VENV := .venv
PYTHON := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
CORES ?= $(shell nproc)
# The GPU audit where there is a GPU, else the embedded CPU default.
CONFIG ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo config/config.yaml || echo config/cpu.yaml)

.PHONY: config-reference audit test test-all bench bench-kernel soak lint format lock clean

audit: $(VENV)/ready
	snakemake --cores $(CORES) --configfile $(CONFIG)

test: $(VENV)/ready
	$(PYTHON) -m pytest -n 3 --dist loadgroup --no-loadscope-reorder -m "not slow"

test-all: $(VENV)/ready
	$(PYTHON) -m pytest

bench: $(VENV)/ready
	snakemake bench --cores $(CORES) --configfile $(CONFIG)
	PYTHONPATH=$(CURDIR) $(PYTHON) -P -m benchmarks.bench_dag

# Needs a GPU and nvcc.
bench-kernel: $(VENV)/ready
	PYTHONPATH=$(CURDIR) $(PYTHON) -P -m kernels.adaln_projection.bench

# 50 kills, 1000 flipped bits, 1000 configurations; SOAK_SEED, SOAK_KILLS and SOAK_FLIPS change it.
soak: $(VENV)/ready
	FUZZ_EXAMPLES=1000 $(PYTHON) -m pytest -s tests/soak tests/unit/test_config_fuzz.py

lint: $(VENV)/ready
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile rules
	snakemake --lint --configfile config/cpu.yaml

format: $(VENV)/ready
	ruff format .
	ruff check --fix-only .
	snakefmt Snakefile rules

config-reference: $(VENV)/ready
	PYTHONPATH=$(CURDIR) $(PYTHON) -P -m workflow_scripts.config_reference

$(VENV)/ready: requirements.txt
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --upgrade pip
	$(PYTHON) -m pip install --quiet torch==2.13.0
	$(PYTHON) -m pip install --quiet --requirement requirements.txt
	touch $@

lock: $(VENV)/ready
	$(PYTHON) -m pip install --quiet --upgrade --upgrade-strategy eager --requirement requirements.in
	(sed -n 1p requirements.txt; $(PYTHON) -m pip freeze --exclude pip | sed 's/^\(torch==[0-9.]*\).*/\1/') > requirements.new
	mv requirements.new requirements.txt

clean:
	rm -rf results .snakemake
