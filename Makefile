.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
INSTALLED := .venv/installed
# One worker for each CPU of a small machine; a file's tests stay together, as do its fixtures.
PARALLEL := -n 2 --dist loadfile

.PHONY: help setup image test unit hosts lab demo docs manual bench soak clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## what is needed to run and to test, installed where it is missing
	@./.ci/packages
	@./.ci/promtool

$(INSTALLED): setup.cfg pyproject.toml
	@./.ci/packages python
	@echo "setup: Python packages into .venv"
	@test -x $(PYTHON) || /usr/bin/python3 -m venv .venv
	@$(PYTHON) -m pip --quiet --disable-pip-version-check install --editable '.[dev]'
	@touch $@

image: setup ## the lab's root image, made once and kept outside the checkout
	@$(PYTHON) -m tests.lab image

# Both runs are done whatever becomes of the first, so that one command tells everything; it fails
# where either does. Where the image cannot be made, the lab's tests fail and say why.
test: setup ## every test; the lab boots both kernels
	@-$(PYTHON) -m tests.lab image
	@$(PYTEST) $(PARALLEL) tests/unit tests/hosts; described=$$?; \
	$(PYTEST) --durations=20 tests/lab && exit $$described

# These two need neither a browser nor QEMU nor promtool: tests that do are marked.
unit: $(INSTALLED) ## the pure tests
	@$(PYTEST) $(PARALLEL) -m 'not programs' tests/unit

hosts: $(INSTALLED) ## the tests on described machines
	@$(PYTEST) $(PARALLEL) -m 'not programs' tests/hosts

lab: image ## the tests on real kernels, every one on both
	@HBATUNE_LAB_KERNELS="6.1 6.12" $(PYTEST) tests/lab

demo: image ## the main job, shown in the lab
	@$(PYTHON) -m tests.lab run tests/lab/demo.sh

docs: $(INSTALLED) ## the tables and pages that are generated from the code
	@$(PYTHON) -m tools.docs

manual: $(INSTALLED) ## the man page and the completions of shells, into build/manual
	@$(PYTHON) -m tools.manual build/manual

bench: image ## what is measured, into tests/bench/results and docs/benchmarks.md
	@$(PYTEST) tests/bench
	@$(PYTHON) -m tools.docs

soak: image ## the long forms of the lab's tests; their results go to tests/soak/results
	@$(PYTEST) tests/soak
	@cp build/lab/*/artifacts/*.json tests/soak/results/

clean: ## remove what was built in this checkout
	rm -rf build dist .venv *.egg-info .mypy_cache .pytest_cache .ruff_cache
