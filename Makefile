# mrclab: `make demo` shows the laboratory, `make test` proves it. Everything they need they install; root's rights are
# needed for the Debian packages alone, once.

PYTHON := /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What only the documentation and its tests need.
DOCS_STAMP := $(VENV)/.docs-installed
APT_PACKAGES := python3-venv gcc libc6-dev python3-dev mininet iproute2 procps iputils-ping ethtool iperf3 tshark graphviz libibverbs-dev libjansson-dev
# What a program cannot do without; without the others parts of the tests and the real clock are missing.
APT_NEEDED := python3-venv gcc libc6-dev
# Runs a step of the set-up with a progress bar; see there.
STEP := setup/step.sh
# Runs two commands at the same time.
BESIDE := setup/beside.sh
# What builds the protocol core and the editable packages. They are installed first, so that the core is compiled while
# other packages are fetched.
BUILD_TOOLS := mypy setuptools hatchling editables
# Exists from an installation until its last lines, which say what to do next.
NEXT := $(VENV)/.next
# Exists while packages are installed. One that was killed is begun again from nothing, since pip takes for installed
# what is incomplete.
UNFINISHED := build/.unfinished
# What pip itself refuses, such as without a network, it leaves complete.
REFUSED = || { [ $$? != 1 ] || rm -f $(UNFINISHED); false; }
# Labs in namespaces of their own mostly wait, and none of their tests asserts a time: more of them than cores at once.
LABS := 3
PYTEST := $(BIN)/python -m pytest
# Test files that have a mark: a worker takes half a minute of CPU to read all others. At least one has each mark.
having = $$(grep -rlE --include='test_*.py' 'mark\.$(1)\b' tests extras)
# Editable installations take the sources as they are; without MRCLAB_PURE pip would fetch what only wheels are built with.
PIP := MRCLAB_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check
# `make vendor` fills this folder; where it is, the set-up needs no network.
VENDOR := vendor
ifneq ($(wildcard $(VENDOR)/wheels),)
PIP += --no-index --find-links "$(CURDIR)/$(VENDOR)/wheels"
endif
# Namespaces in which tests are root, for any user.
INSIDE := $(BIN)/python -m mrclab.lab.processes.launch --run

# What the tests of the live view need beside the rest: a browser.
WEB_STAMP := $(VENV)/.web-installed
BROWSER := chromium-headless-shell

# p4runtime-shell's own environment was made, or an attempt failed: `mrclab p4sh --install` repeats it.
P4SH_STAMP := build/.p4sh

# What builds and checks a release.
RELEASE := build/release
RELEASE_STAMP := $(RELEASE)/.installed

.PHONY: setup vendor apt native demo docs release-check wheels web-assets setup-web test test-processes test-beside-labs test-netns test-labs test-root quick lint format lock proto codec coverage mutants bench soak vm-check roots-check install-check image-check arm64-check clean

# `make setup LOCKED=1` installs the versions of requirements.lock, checked by their hashes, instead of the newest that the
# ranges of pyproject.toml allow.
setup: $(STAMP) native $(P4SH_STAMP)
	@$(TELL)

# Says once what to do next.
define TELL
if [ -e $(NEXT) ]; then rm -f $(NEXT); \
  echo "activate: . $(BIN)/activate"; echo "demo:     make demo"; echo "docs:     docs/index.md, or make docs"; fi
endef

# Mininet and the tools come from Debian: Mininet's Python package and C helper belong to the system's Python.
apt:
	@if ! command -v apt-get >/dev/null; then \
	  for p in cc $(PYTHON); do command -v $$p >/dev/null || { echo "$$p is missing, and there is no apt-get;" \
	    "docs/howto/platforms.md names the packages of Fedora and Arch" >&2; exit 1; }; done; \
	  command -v mnexec >/dev/null || echo "without Mininet (docs/howto/platforms.md) labs run in simulated time only" >&2; \
	  exit 0; fi; \
	missing=; for p in $(APT_PACKAGES); do \
	  dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  sudo=; if [ "$$(id -u)" != 0 ]; then sudo=sudo; fi; \
	  if [ -n "$$sudo" ] && ! command -v sudo >/dev/null; then \
	    echo "Debian packages are missing that only root can install; ask for: apt-get install$$missing" >&2; \
	    for p in $$missing; do case " $(APT_NEEDED) " in *" $$p "*) exit 1;; esac; done; \
	    echo "going on without them; without mininet labs run in simulated time (--clock virtual) only" >&2; \
	  else \
	    echo "installing Debian packages:$$missing"; \
	    if [ -d $(VENDOR)/debs ]; then \
	      $(STEP) 60 "Debian packages of $(VENDOR)" "Is this the distribution that $(VENDOR) was made on?" \
	        $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	        ./$(VENDOR)/debs/*.deb; exit; \
	    fi; \
	    $$sudo true && \
	    $(STEP) 10 "package lists" "Is there a network? See /etc/apt/sources.list." $$sudo apt-get update -qq && \
	    $(STEP) 60 "Debian packages" "Type apt-get install$$missing to see more." \
	      $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	  fi; \
	fi

$(STAMP): pyproject.toml p4/pyproject.toml | apt
	@[ ! -e $(UNFINISHED) ] || rm -rf $(VENV)
	@mkdir -p build && touch $(UNFINISHED)
	@$(STEP) 10 "Python environment" "Install the package python3-venv, remove $(VENV), and run make setup again." \
	  $(PYTHON) -m venv --system-site-packages $(VENV)
	@$(if $(LOCKED),$(STEP) 60 "locked Python packages" "Is there a network? Otherwise see make vendor." \
	  env $(PIP) --require-hashes --requirement requirements.lock $(REFUSED),$(STEP) 5 "tools of builds" \
	  "Is there a network to the package index? Otherwise see make vendor." env $(PIP) $(BUILD_TOOLS) $(REFUSED))
	@# mypy finds the packages of the checkout by this path before they are installed. If the core is not built here, the
	@# target native says why.
	@$(STEP) 50 "Python packages, and protocol core in C" \
	  "Is there a network to the package index? Otherwise see make vendor." \
	  $(BESIDE) 'env "PYTHONPATH=$(CURDIR)/hosts:$(CURDIR)/topologies" $(BIN)/python -m mrc_host.build' \
	  env $(PIP) $(if $(LOCKED),,--no-build-isolation) --editable ./p4 --editable '.[dev]' $(REFUSED)
	@# An earlier mrclab had this command, and pip removed it after p4lite had brought its own.
	@test -x $(BIN)/p4lite || $(PIP) --no-deps --force-reinstall --editable ./p4
	@rm $(UNFINISHED)
	@touch $(NEXT)
	@touch $@

$(DOCS_STAMP): pyproject.toml $(STAMP)
	$(PIP) --editable ./p4 --editable '.[docs,notebook]'
	@touch $@

# The protocol core as C, where a compiler and Python's headers are; MRCLAB_PURE=1 leaves it as it is.
native: $(STAMP)
	@if $(BIN)/python -m mrc_host.build --needed; then \
	  $(STEP) 60 "protocol core in C" "MRCLAB_PURE=1 make setup goes on without it, at half the speed." \
	    $(BIN)/python -m mrc_host.build; fi
	@# Programs of mrc.h and libibverbs load it; where it cannot be built only they are missing.
	@# Without bytecode every process of a lab compiles its modules: the user of root's labs cannot write any here.
	@set -- sh -c '$(BIN)/python -m libmrc.build >/dev/null 2>&1; $(BIN)/python -m compileall -q controller hosts topologies p4 extras'; \
	[ ! -e $(NEXT) ] || set -- $(STEP) 10 "library in C, and bytecode" "Run make setup again." "$$@"; \
	"$$@"
	@# Of what they lack the first set-up tells, in one line each: libmrc, and the libraries of the live view's page.
	@[ ! -e $(NEXT) ] || $(BIN)/python -m libmrc.build >/dev/null || true
	@[ ! -e $(NEXT) ] || $(BIN)/python -m mrclab.web.assets >/dev/null || true

$(P4SH_STAMP): controller/mrclab/lab/p4shell.py $(STAMP)
	@mkdir -p build
	@$(STEP) 25 "p4runtime-shell" "" sh -c '$(BIN)/mrclab p4sh --install 2>build/p4sh.error || true'
	@cat build/p4sh.error >&2
	@touch $@

# Bring what the set-up fetches into the folder vendor, for machines without a network that have the same distribution and
# Python: copy the checkout with it, and type `make setup` there. Debian packages with those that they depend on and
# that are installed here (others are alternatives to these), and wheels of this machine's Python.
vendor: setup
	@mkdir -p $(VENDOR)/debs $(VENDOR)/wheels.new
	@$(STEP) 120 "Python packages to $(VENDOR)" "Is there a network to the package index?" \
	  env MRCLAB_PURE=1 $(BIN)/pip wheel --quiet --disable-pip-version-check --wheel-dir $(VENDOR)/wheels.new \
	  ./p4 '.[dev,docs,notebook]' 'hatchling>=1.27' 'editables>=0.3'
	@# Apart from the others, since it needs an old protobuf.
	@$(STEP) 30 "p4runtime-shell to $(VENDOR)" "Is there a network to the package index?" \
	  $(BIN)/pip wheel --quiet --disable-pip-version-check --wheel-dir $(VENDOR)/wheels.new \
	  "$$($(BIN)/python -c 'from mrclab.lab.p4shell import WANTED; print(WANTED)')"
	@rm -f $(VENDOR)/wheels.new/mrclab-*.whl $(VENDOR)/wheels.new/p4lite-*.whl
	@rm -rf $(VENDOR)/wheels && mv $(VENDOR)/wheels.new $(VENDOR)/wheels
	@$(STEP) 120 "Debian packages to $(VENDOR)" "Is there a network? Run apt-get update as root first." \
	  sh -c 'cd $(VENDOR)/debs && apt-get download $$(apt-cache depends --recurse --no-recommends --no-suggests \
	    --no-conflicts --no-breaks --no-replaces --no-enhances $(APT_PACKAGES) | grep "^[a-z0-9]" | sort -u | \
	    xargs dpkg-query -W -f "\$${Package} \$${db:Status-Abbrev}\n" 2>/dev/null | sed -n "s/ ii *$$//p" | sort -u)'
	@du -sh $(VENDOR)

# Labs, and switches between interfaces, mostly wait: both kinds of tests run beside each other, and so do those of root.
# A part that fails does not keep the next one from running.
test: setup $(DOCS_STAMP)
	@failed=; \
	$(MAKE) --no-print-directory test-processes || failed="$$failed test-processes"; \
	$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync=target test-labs test-beside-labs || failed="$$failed test-labs, test-netns or test-root"; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

test-processes: setup $(DOCS_STAMP)
	@# Without a restart a worker that dies ends the run with the name of its test; with one the last tests wait for ever.
	$(PYTEST) -n auto --max-worker-restart 0 --dist loadfile --no-loadscope-reorder -m "not lab and not netns and not root"

test-beside-labs: setup
	@failed=; for part in test-netns $$([ "$$(id -u)" != 0 ] || echo test-root); do \
	  $(MAKE) --no-print-directory $$part || failed=yes; done; [ -z "$$failed" ]

test-root: setup
	$(PYTEST) -m root $(call having,root)

test-netns: setup
	$(INSIDE) $(PYTEST) -p no:cacheprovider -m "netns and not root" $(call having,netns)

test-labs: setup
	$(PYTEST) -n $(LABS) --max-worker-restart 0 --dist loadfile -m "lab and not root" $(call having,lab)

# The files of tests/quick.txt: those whose tests need less than a tenth of a second of CPU each, and most of which start
# no process.
quick: setup
	$(PYTEST) -n auto --dist loadfile -m "not lab and not netns and not root and not slow" @tests/quick.txt

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Resolve the ranges of pyproject.toml again. `--universal`: one file for every platform and Python from 3.11.
lock: $(STAMP)
	$(PIP) 'uv>=0.5,<1'
	MRCLAB_PURE=1 $(BIN)/uv pip compile p4/pyproject.toml pyproject.toml --no-emit-package p4lite --quiet --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
	  --extra dev --extra docs --extra notebook --output-file requirements.lock

# Branch coverage of the quick tests, with the protocol core interpreted, so that its lines count, too. Not a part of
# `make test`: the tracer of Python 3.11 makes tests three times as slow. Lower the floor only for a reason.
coverage: setup
	$(PIP) --editable ./p4 --editable '.[coverage]'
	MRCLAB_PURE=1 $(PYTEST) -n auto --dist loadfile -p no:cacheprovider --cov=p4 --cov=topologies --cov=controller \
	  --cov=hosts --cov=extras --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=$(or $(COVERAGE),64) \
	  -m "not lab and not netns and not root and not slow" @tests/quick.txt

# Change one place of PART (proto, wire, roce, faults, verdict, judge) at a time and see whether a test notices.
# `make mutants PART=proto MUTANTS=--table` tries each change of state, and writes tests/proto/reasons.csv.
mutants: setup
	$(PIP) --editable ./p4 --editable '.[coverage]'
	for part in $(or $(PART),judge verdict faults proto); do \
	  PYTHONPATH=tests $(BIN)/python -m support.mutants $$part $(MUTANTS) || exit 1; done

# The descriptors of the target API's messages, and their types; `p4lite.messages` builds the messages at run time.
proto: $(STAMP)
	$(PIP) grpcio-tools
	cd p4 && ../$(BIN)/python -m grpc_tools.protoc -I. --pyi_out=. \
	  --descriptor_set_out=p4lite/switch/targetapi/target.binpb p4lite/switch/targetapi/target.proto

# The encoders and decoders of the data path, made of the table of headers in hosts/mrc_host/proto/wire/fields.py. Without
# the compiled core, which may have been made of what they were.
codec: $(STAMP)
	MRCLAB_PURE=1 $(BIN)/python -m mrc_host.generate

# Build both distributions as a release would, twice, and check them (release/check.py); the files are in dist afterwards.
release-check: $(RELEASE_STAMP) web-assets
	$(RELEASE)/bin/python release/check.py

# Wheels with the compiled core for x86-64 and arm64, in build/wheels; needs Docker or Podman (CIBW_CONTAINER_ENGINE=podman).
wheels: $(RELEASE_STAMP) web-assets
	$(RELEASE)/bin/cibuildwheel --platform linux --output-dir build/wheels

$(RELEASE_STAMP): release/requirements.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --requirement release/requirements.txt
	@touch $@

bench: setup
	$(BIN)/python -m benchmarks

# Without p4runtime-shell, which the demonstration does not need.
demo: $(STAMP) native
	@$(TELL)
	$(BIN)/mrclab demo

# The live view's two libraries, from the npm registry, by their hashes; npm itself is not needed.
web-assets: $(STAMP)
	@$(BIN)/python -m mrclab.web.assets

# A browser for the live view's tests: Debian's Chromium (the part without windows will do), driven by Playwright from PyPI.
# Without it they are skipped.
setup-web: setup web-assets
	@if ! command -v chromium >/dev/null && ! command -v chromium-headless-shell >/dev/null; then \
	  sudo=; if [ "$$(id -u)" != 0 ]; then sudo=sudo; fi; \
	  if [ -n "$$sudo" ] && ! command -v sudo >/dev/null; then \
	    echo "a browser is missing that only root can install; ask for: apt-get install $(BROWSER)" >&2; exit 1; \
	  fi; \
	  echo "installing Debian packages: $(BROWSER)"; \
	  { $$sudo apt-get update -qq && \
	    $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(BROWSER) >/dev/null; } || \
	  { echo "no browser: apt-get gets no $(BROWSER); is there a network? The live view's browser tests are skipped" >&2; \
	    exit 1; }; \
	fi
	@test -f $(WEB_STAMP) || $(PIP) --editable ./p4 --editable '.[web,web-test]'
	@touch $(WEB_STAMP)

# The documentation as a site, in build/site; a link that leads nowhere fails it.
docs: setup $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@$(BIN)/python docs/slides.py build/site/teaching/decks --if-possible
	@echo "open build/site/index.html"

# Hours of a small lab, the whole simulation campaign (10 000 runs), 10 million mutated packets, the long tests (whole
# exercises of the workshop among them): some four hours on two cores.
# SOAK_REAL=1 adds an hour of a lab on the real clock.
soak: setup
	PYTHONPATH=tests $(BIN)/python -m support.proto.soak --runs 10000
	PYTHONPATH=tests $(BIN)/python -m support.proto.fuzz --packets 10000000
	PYTHONPATH=tests $(BIN)/python -m support.p4.differential --programs 10000 --packets 20 --seed 1 --cores 2
	MRCLAB_LONG=1 $(PYTEST) -n auto --dist loadfile -m "long and not lab"
	MRCLAB_LONG=1 $(PYTEST) -m "long and lab" $(call having,lab)
	@# Random examples of properties: more of them.
	MRCLAB_LONG=1 $(PYTEST) -n auto --dist loadfile -m "not lab and not netns and not root and not long" @tests/quick.txt tests/docs/test_examples.py
	PYTHONPATH=tests $(BIN)/python -m support.lab.signals --moments 10
	PYTHONPATH=tests $(BIN)/python -m support.hostile.mutations --count 100
	@# It acts as other users, and fills disks of its own.
	[ "$$(id -u)" != 0 ] || PYTHONPATH=tests $(BIN)/python -m support.hostile.surroundings
	PYTHONPATH=tests $(BIN)/python -m support.lab.endurance --hours 4
	$(if $(SOAK_REAL),PYTHONPATH=tests $(BIN)/python -m support.lab.endurance --hours 1 --clock real)

# `vagrant/provision.sh` proved on a Debian 12 of its own under qemu; as root, with debootstrap and qemu-system-x86.
vm-check:
	vagrant/vm-check.sh

# `make demo` and `make test` in a bare root of debootstrap's: NAME=debian-12, debian-13, debian-testing, ubuntu-22.04 or
# ubuntu-24.04, as PERSON=user or root, or other STEPS of the Makefile; as root, with debootstrap. OFFLINE=1 sets up from
# the folder of `make vendor`, without a network.
roots-check: STEPS := setup,demo,test
roots-check:
	PYTHONPATH=tests $(PYTHON) -m support.platforms.check $(NAME) --person $(or $(PERSON),user) \
	  --steps $(STEPS) $(if $(KEEP),--keep $(KEEP)) $(if $(OFFLINE),--offline)

# The files that `make release-check` has left in dist, installed in a bare root as an ordinary user, with the demonstration
# and tests from them: NAME as above, WAYS of wheel, sdist and mininet; as root, with debootstrap.
install-check:
	PYTHONPATH=tests $(PYTHON) -m support.platforms.install $(NAME) $(if $(WAYS),--ways $(WAYS)) $(if $(KEEP),--keep $(KEEP))

# The image of the Containerfile, built by buildah on a base of debootstrap's, measured and used; as root.
image-check:
	PYTHONPATH=tests $(PYTHON) -m support.platforms.image $(if $(BASE),--base $(BASE))

# Tests, and simulations compared with those here, on arm64 under qemu's user mode; as root, with debootstrap and
# qemu-user-static.
arm64-check: $(STAMP)
	tests/platforms/arm64.sh

clean:
	rm -rf hosts/mrc_host/__compiled__ build dist results .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache $(VENV)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
