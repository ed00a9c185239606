PYTHON ?= .venv/bin/python

.PHONY: bench
bench:
	$(PYTHON) -m pytest tests/bench
	$(PYTHON) -m tests.bench
