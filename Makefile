# mrclab: `make demo` shows the laboratory, `make test` proves it. Everything they need they install.

PYTHON := /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
APT_PACKAGES := python3-venv gcc libc6-dev mininet iproute2 procps iputils-ping ethtool iperf3 tshark graphviz
# Tests that need no root run in parallel; those that share interfaces and timing do not.
PYTEST := $(BIN)/python -m pytest

.PHONY: setup apt demo test quick lint format bench soak clean

setup: $(STAMP)

# Mininet and the tools come from Debian: Mininet's Python package and C helper belong to the system's Python.
apt:
	@missing=; for p in $(APT_PACKAGES); do \
	  dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi; \
	  echo "installing Debian packages:$$missing"; \
	  $$sudo apt-get update -qq && \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

$(STAMP): pyproject.toml | apt
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

test: setup
	$(PYTEST) -n auto --dist loadfile -m "not root"
	$(PYTEST) -m root

quick: setup
	$(PYTEST) -n auto --dist loadfile -m "not root and not slow"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks

# The demonstration needs root for namespaces; without it the same lab runs in simulated time.
demo: setup
	@if [ "$$(id -u)" = 0 ]; then $(BIN)/mrclab demo; \
	elif sudo -n true 2>/dev/null; then sudo $(BIN)/mrclab demo; \
	else $(BIN)/mrclab demo; fi

# The whole simulation campaign (10 000 runs) and 5 million mutated packets: about an hour on two cores.
soak: setup
	PYTHONPATH=tests $(BIN)/python -m support.soak --runs 10000
	PYTHONPATH=tests $(BIN)/python -m support.fuzz --packets 5000000

clean:
	rm -rf build dist results .pytest_cache .mypy_cache .ruff_cache .hypothesis $(VENV)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
