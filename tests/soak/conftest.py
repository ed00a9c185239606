"""The long forms of the lab's tests: `make soak`. Their results are committed in `results`."""

from tests.lab.collect import (
    pytest_collection_finish,
    pytest_pycollect_makemodule,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)

__all__ = [
    "pytest_collection_finish",
    "pytest_pycollect_makemodule",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
]
