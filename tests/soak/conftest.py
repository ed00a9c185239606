"""The long forms of the lab's tests: `make soak`. Their results are committed in `results`."""

from collections.abc import Iterator

import pytest

from tests.lab.collect import (
    ONE_BY_ONE,
    pytest_collection_finish,
    pytest_pycollect_makemodule,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)
from tests.soak.awake import awake

__all__ = [
    "pytest_collection_finish",
    "pytest_pycollect_makemodule",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
]


def pytest_configure(config: pytest.Config) -> None:
    """Let no guest slow another."""
    config.stash[ONE_BY_ONE] = True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop() -> Iterator[None]:
    """Keep this machine awake while the guests are timed."""
    with awake():
        yield
