"""The benches of the ``guest`` folder run in the lab, and what they measured is fetched here."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.lab import collect
from tests.lab.collect import (
    ONE_BY_ONE,
    pytest_pycollect_makemodule,
    pytest_runtest_makereport,
)
from tests.lab.kernels import kernels
from tests.lab.wheel import CHECKOUT
from tools.benchmarks_page import RESULTS
from tools.wheel import build_wheel

__all__ = ["pytest_pycollect_makemodule", "pytest_runtest_makereport", "pytest_sessionfinish"]


def pytest_configure(config: pytest.Config) -> None:
    """Let no guest slow another."""
    config.stash[ONE_BY_ONE] = True


@pytest.hookimpl(hookwrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int):  # type: ignore[no-untyped-def]
    yield
    collect.pytest_sessionfinish(session, exitstatus)
    for series in kernels():
        for file in sorted((CHECKOUT / "build/lab").glob(f"*{series}/artifacts/bench/*.json")):
            shutil.copy(file, RESULTS / file.name)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment with hbatune's wheel, as a user would have it."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--quiet", "--python", str(folder / "venv")),
            *("install", str(build_wheel(folder))),
        ],
        check=True,
    )
    return folder / "venv" / "bin"
