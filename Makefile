.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
PIP := $(PYTHON) -m pip --quiet --disable-pip-version-check
# Two steps of one virtual environment: what hbatune imports and packages are built with, and on top
# of it what tests it.
BUILDING := .venv/building
TESTING := .venv/testing
# A worker for each CPU of a small machine, and one for the times that they wait. A file's tests stay
# together, as do its fixtures. The files keep their order, because few tests can take long.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: help setup image test unit hosts lab demo deb rpm oci release docs manual bench soak clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## try it: the main job on a virtual machine's disks; none of this machine's is touched
	@echo "demo: installs what makes a virtual machine's image, a few MB on this system, and keeps the"
	@echo "demo: image and QEMU, 1.3 GB, in the lab's cache. The machine has disks of its own;"
	@echo "demo: none of yours is touched."
	@./.ci/packages lab
	@$(MAKE) $(BUILDING)
	@$(PYTHON) -m tests.lab run --topology tri-mode tests/lab/demo.sh

deb: ## the package for this Debian release, for `apt install ./dist/hbatune_*.deb`
	@./.ci/packages deb
	@$(MAKE) $(BUILDING)
	@$(PYTHON) -m tools.deb dist

rpm: ## the package for Fedora, with rpmbuild, for `dnf install ./dist/hbatune-*.rpm`
	@$(MAKE) $(BUILDING)
	@$(PYTHON) -m tools.rpm dist

oci: deb ## the container image with the package, for `podman load -i dist/hbatune-oci-*.tar`
	@./.ci/packages lab
	@$(PYTHON) -m tools.oci dist

release: $(BUILDING) ## the tarball and packages of a release in dist, and its tag
	@$(PYTHON) -m tools.release dist

setup: ## what is needed to run and to test, installed where it is missing
	@./.ci/packages all
	@./.ci/promtool
	@$(MAKE) $(TESTING)

$(BUILDING): setup.cfg pyproject.toml
	@./.ci/packages build
	@echo "setup: Python packages into .venv"
	@test -x $(PYTHON) || /usr/bin/python3 -m venv .venv
	@$(PIP) install --editable '.[build]'
	@touch $@

$(TESTING): $(BUILDING)
	@./.ci/packages rings
	@echo "setup: Python packages for the tests into .venv"
	@$(PIP) install --editable '.[build,dev]'
	@touch $@

image: setup ## the lab's root images, made once and kept outside the checkout; the newest kernel
	@$(PYTHON) -m tests.lab image

# The images are made while the tests of described machines run. Both runs are done whatever becomes
# of the first, so that one command tells everything; it fails where either does. Where an image
# cannot be made, the lab's tests fail and say why.
test: ## every test; the lab boots three kernels
	@test "$$(id -u)" -eq 0 || { ./.ci/packages all; echo "make test needs root: described machines \
	are mounted, and the lab makes a root file system. As any user: make unit" >&2; exit 1; }
	@$(MAKE) setup
	@mkdir -p build
	@$(PYTHON) -m tests.lab image >build/image.log 2>&1 & image=$$!; \
	$(PYTEST) $(PARALLEL) tests/hosts tests/unit; described=$$?; \
	if kill -0 $$image 2>/dev/null; then echo "lab: waits for the images: build/image.log"; fi; \
	wait $$image; \
	$(PYTEST) --durations=20 tests/lab && exit $$described

# These two need no browser, QEMU, promtool or debhelper: tests that need one are marked.
unit: $(TESTING) ## the pure tests
	@$(PYTEST) $(PARALLEL) -m 'not programs' tests/unit

hosts: $(TESTING) ## the tests on described machines
	@$(PYTEST) $(PARALLEL) -m 'not programs' tests/hosts

# Some tests cannot run on the newest kernel, so its own are a run of their own.
lab: image ## the tests on real kernels, every one on 6.1 and on 6.12
	@HBATUNE_LAB_KERNELS="6.1 6.12" $(PYTEST) tests/lab; debian_12=$$?; \
	$(PYTEST) -k 'not 6.1' tests/lab && exit $$debian_12

docs: $(TESTING) ## the tables and pages that are generated from the code
	@$(PYTHON) -m tools.docs

manual: $(BUILDING) ## the man pages and the completions of shells, into build/manual
	@$(PYTHON) -m tools.manual build/manual

bench: image ## what is measured, into tests/bench/results and docs/benchmarks.md
	@$(PYTEST) tests/bench
	@$(PYTHON) -m tools.docs

soak: image ## the long forms of the lab's tests; their results go to tests/soak/results
	@./.ci/packages soak
	@$(PIP) install --editable '.[build,dev,referee]'
	@$(PYTEST) tests/soak
	@cp build/lab/*/artifacts/*.json tests/soak/results/

clean: ## remove what was built in this checkout
	rm -rf build dist .venv *.egg-info .mypy_cache .pytest_cache .ruff_cache
