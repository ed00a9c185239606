"""Every test file of a ``guest`` folder below this one runs in the lab."""

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
