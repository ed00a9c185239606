"""What every ring of the tests needs."""

import signal

import pytest

# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONG_FILES = ("tests/unit/tools/test_deb.py", "tests/unit/laws/test_mutated_files.py")
"""A worker needs minutes for each, so they begin while the others have enough to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the long files first, and keep the order of all others."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))
